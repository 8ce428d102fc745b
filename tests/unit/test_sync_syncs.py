"""When an offset sync is due: MM2's rules, with the numbers of its own tests."""

from __future__ import annotations

from heliograph.sync.syncs import Last

LAG = 50


def test_when_one_is_due() -> None:
    last = Last(0, 0, 100)
    seen = []
    # (run, upstream, downstream): a gap at the source begins a new run
    for run, upstream, downstream in (
        (0, 0, 100),
        (2, 2, 102),
        (2, 3, 152),
        (2, 4, 153),
        (2, 5, 154),
        (2, 6, 203),
        (2, 7, 204),
        (1, 2, 206),
        (1, 3, 207),
        (4, 4, 3),
        (4, 5, 4),
    ):
        last.run, last.upstream, last.downstream = run, upstream, downstream
        due = last.due(LAG)
        seen.append(due)
        if due:
            last.synced, last.synced_run = downstream, run
    assert seen == [True, True, False, True, False, False, True, True, False, True, False]


def test_without_lag_each_record_is_due() -> None:
    assert Last(0, 5, 6, synced_run=0, synced=5).due(0)
    assert not Last(0, 5, 5, synced_run=0, synced=5).due(0)

"""Shares of a cap: dealt by what tasks took, always adding up to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.flow.caps import Caps, Want, deal
from heliograph.flow.tally import Tally
from heliograph.mirror.protocol import PartitionReport, Report, partition_report
from heliograph.types import Cap, Cluster, Flow, TopicPartition

MB = 1_000_000
ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.booleans()), min_size=1, max_size=8), st.floats(1e3, 1e9))
def test_shares_add_up_and_nobody_is_left_without(wants: list[tuple[float, bool]], limit: float) -> None:
    shares = deal(limit, [Want(*want) for want in wants])
    assert sum(shares) == pytest.approx(limit)
    assert min(shares) >= 0.01 * limit / len(wants) * 0.99


def test_who_is_short_gets_what_the_others_leave() -> None:
    shares = deal(10 * MB, [Want(2 * MB, False), Want(5 * MB, True), Want(0, False)])
    assert shares[0] == pytest.approx(2 * MB, rel=0.05)
    assert shares[2] < 0.1 * MB
    assert shares[1] > 7.8 * MB


def test_who_is_short_shares_alike() -> None:
    assert deal(10 * MB, [Want(8 * MB, True), Want(2 * MB, True)]) == [5 * MB, 5 * MB]


def test_what_nobody_needs_is_there_for_all() -> None:
    assert sum(deal(10 * MB, [Want(MB, False), Want(0, False)])) == pytest.approx(10 * MB)
    assert min(deal(10 * MB, [Want(MB, False), Want(0, False)])) > 4 * MB


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def lane(tp: TopicPartition, size: int) -> PartitionReport:
    plain = {
        "topic": tp.topic,
        "partition": tp.partition,
        "next": 1,
        "end": 1,
        "state": "flowing",
        "reason": "",
        "fix": "",
    }
    return partition_report({**plain, "bytes": size})


def caps_of(*caps: Cap) -> tuple[Caps, Tally, Clock]:
    tally, clock = Tally(), Clock()
    return Caps(caps, tally, clock), tally, clock


def test_an_epochs_first_shares_follow_what_moved() -> None:
    caps, _, _ = caps_of(Cap(10 * MB))
    assert caps.begin(1, [[ORDERS], [CLICKS]], {}) == [(5 * MB,), (5 * MB,)]
    shares = caps.begin(2, [[ORDERS], [CLICKS]], {ORDERS: 9.0 * MB, CLICKS: 1.0 * MB})
    assert shares == [(7 * MB,), (3 * MB,)]


def test_shares_are_dealt_anew_by_what_tasks_say() -> None:
    """Two tasks: one copies history without end, one has 1 MB/s to copy. Both speak once a second, not in step."""
    caps, _, clock = caps_of(Cap(10 * MB))
    shares = [list(share) for share in caps.begin(1, [[ORDERS], [CLICKS]], {})]
    rounds = 0
    for tick in range(80):
        clock.now += 0.13
        task = 0 if tick % 8 == 0 else 1 if tick % 8 == 5 else None
        if task is None:
            continue
        took = min(shares[0][0], 20 * MB) if task == 0 else min(shares[1][0], 1 * MB)
        told = caps.reported((1, task, 0), Report(caps=[(int(took * 8 * 0.13), task == 0)]))
        for other, share in told.items():
            shares[other] = share
        rounds += bool(told)
        assert shares[0][0] + shares[1][0] == pytest.approx(10 * MB)
    assert shares[0][0] > 8.8 * MB
    assert shares[1][0] > 1.0 * MB
    assert rounds == 1, "what does not change is not said again"
    assert caps.share((1, 0, 3)) == shares[0], "a task that is begun again goes on with what it had"


def test_a_task_of_an_epoch_that_is_over_changes_nothing() -> None:
    caps, _, clock = caps_of(Cap(10 * MB))
    caps.begin(1, [[ORDERS], [CLICKS]], {})
    caps.begin(2, [[ORDERS, CLICKS]], {})
    clock.now += 1
    assert caps.reported((1, 1, 0), Report(caps=[(MB, True)])) == {}
    assert caps.share((1, 0, 0)) == []


def test_other_caps_count_from_the_next_epoch() -> None:
    caps, tally, clock = caps_of(Cap(10 * MB))
    caps.begin(1, [[ORDERS], [CLICKS]], {})
    caps.change(Flow(Cluster("us"), Cluster("eu"), caps=(Cap(6 * MB), Cap(2 * MB, "clicks"))))
    for second in range(3):  # tasks of this epoch know one cap, and speak of one
        clock.now += 1
        for task in (0, 1):
            report = Report([lane(ORDERS, MB * second)], caps=[(MB, True)])
            tally.add((1, task, 0), report)
            caps.reported((1, task, 0), report)
    assert [one.limit_bytes_per_s for one in caps.status()] == [10 * MB]
    assert caps.begin(2, [[ORDERS], [CLICKS]], {}) == [(3 * MB, MB), (3 * MB, MB)]
    caps.reported((1, 0, 0), Report(caps=[(MB, True)]))  # a late one of the epoch before
    assert [one.limit_bytes_per_s for one in caps.status()] == [6 * MB, 2 * MB]
    caps.change(Flow(Cluster("us"), Cluster("eu")))
    assert caps.begin(3, [[ORDERS], [CLICKS]], {}) == [(), ()]
    assert caps.status() == ()


def test_what_is_used_is_what_was_acknowledged() -> None:
    caps, tally, clock = caps_of(Cap(10 * MB), Cap(2 * MB, "clicks"))
    caps.begin(1, [[ORDERS, CLICKS]], {})
    for second in range(10):
        clock.now += 1
        report = Report([lane(ORDERS, 4 * MB * second), lane(CLICKS, 2 * MB * second)])
        tally.add((1, 0, 0), report)
        caps.reported((1, 0, 0), report)
    flow, clicks = caps.status()
    assert flow.bytes_per_s == pytest.approx(6 * MB)
    assert flow.words == "capped at 10 MB/s, using 6"
    assert clicks.words == "clicks capped at 2 MB/s, using 2"

"""Positions changed by hand: the arithmetic of what comes again and what never comes, and what is not written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from heliograph.cli.offsets import preview
from heliograph.errors import ConfigError
from heliograph.mirror.positions import Position
from heliograph.review import shifts
from heliograph.review.shifts import Shift, consequences, select
from heliograph.review.standing import Standing
from heliograph.survey.starts import Bounds, NoStart, Start, beginnings, resolve
from heliograph.types import Cluster, Flow, StartPoint, StartRule, TopicPartition
from heliograph.wire.codes import broker_error

CLAIMED = Position(100, 7, 0, 100)
LOG = Bounds(20, 150)
TP = TopicPartition("orders", 0)
FLOW = Flow(Cluster("us"), Cluster("eu"))


class Source:
    """The logs of a cluster: partition -> (first, end), and where the first record of a time is."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, int]], times: Mapping[int, int] | None = None) -> None:
        self.logs, self.times = logs, times or {}

    def list_offsets(self, tps: Any, *, at: Any) -> dict[TopicPartition, Any]:
        found: dict[TopicPartition, Any] = {}
        for tp in tps:
            if tp not in self.logs:
                found[tp] = broker_error(3, topic=tp.topic)
            elif isinstance(at, int):
                found[tp] = self.times.get(at, -1)
            else:
                found[tp] = self.logs[tp][at == "latest"]
        return found


def standing(position: Position | None = CLAIMED, *, beyond: int = 0, tp: TopicPartition = TP, **more: Any) -> Standing:
    remote = TopicPartition(f"us.{tp.topic}", tp.partition)
    return Standing(tp, remote, True, position, more.pop("source", LOG), more.pop("target_end", 100), beyond, **more)


@pytest.mark.parametrize(
    ("position", "beyond", "to", "again", "never"),
    [
        (CLAIMED, 0, 100, 0, 0),
        (CLAIMED, 0, 20, 80, 0),  # back to the beginning of the log: what retention took cannot come again
        (CLAIMED, 0, 150, 0, 50),
        (CLAIMED, 0, 60, 40, 0),
        (CLAIMED, 5, 100, 5, 0),  # a new era forgets that five more are there
        (CLAIMED, 5, 103, 2, 0),
        (CLAIMED, 5, 110, 0, 5),
        (Position(10), 0, 30, 0, 10),  # retention took 10 of the 20 before: only 20 to 29 are passed over
        (None, 0, 20, 0, 0),
        (None, 0, 150, 0, 130),
    ],
)
def test_what_comes_again_and_what_never_comes(
    position: Position | None, beyond: int, to: int, again: int, never: int
) -> None:
    assert consequences(position, beyond, LOG, to) == (again, never)


def test_the_same_place_is_no_change() -> None:
    """A new era there would forget what lies behind the position already."""
    assert not Shift(standing(beyond=5), 100).changes
    assert not Shift(standing(Position(100)), 100).changes
    assert Shift(standing(None), 100).changes
    assert Shift(standing(), 100, forget=True).changes
    assert not Shift(standing(None), 100, forget=True).changes


def test_write_leaves_alone_what_does_not_change() -> None:
    class Log:
        written: Mapping[TopicPartition, Position | None] = {}
        made = 0

        def ensure(self) -> None:
            self.made += 1

        def set_by_hand(self, entries: Mapping[TopicPartition, Position | None]) -> None:
            self.written = entries

    log: Any = Log()
    other, third = TopicPartition("orders", 1), TopicPartition("orders", 2)
    wanted = [Shift(standing(), 100), Shift(standing(tp=other), 40), Shift(standing(tp=third), 20, forget=True)]
    assert shifts.write(log, wanted) == 2
    assert log.written == {other: Position(40), third: None}
    assert shifts.write(log, wanted[:1]) == 0
    assert log.made == 1


def test_offsets_outside_of_the_log_are_refused_with_the_numbers() -> None:
    source: Any = Source({TP: (20, 150)})
    with pytest.raises(ConfigError, match=r"offset 151 of orders-0 is behind its end \(20 to 150 are there\)"):
        shifts.moved(source, [standing()], StartPoint("offset", 151))
    with pytest.raises(ConfigError, match="offset 19 is gone: the source has 20 to 150"):
        shifts.moved(source, [standing()], StartPoint("offset", 19))
    (edge,) = shifts.moved(source, [standing()], StartPoint("offset", 150))
    assert (edge.to, edge.never) == (150, 50)


def test_a_partition_without_a_source_can_only_be_forgotten() -> None:
    source: Any = Source({})
    gone = standing(source=None, trouble="its source is not there")
    with pytest.raises(ConfigError, match="its source is not there"):
        shifts.moved(source, [gone], StartPoint("earliest"))
    (forgotten,) = shifts.forgotten(FLOW, source, [gone])
    assert forgotten.forget
    assert forgotten.changes


def test_select_names_what_names_nothing() -> None:
    all_of_it = [standing(tp=TopicPartition(t, p)) for t, p in (("orders", 0), ("orders", 1), ("payments", 0))]
    assert [str(s.tp) for s in select(all_of_it, [("orders", 1), ("pay.*", None)])] == ["orders-1", "payments-0"]
    assert select(all_of_it, []) == all_of_it
    with pytest.raises(ConfigError) as caught:
        select(all_of_it, [("orders", 7), ("order", None)])
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["orders", "order"]


def test_starts_as_offsets() -> None:
    tps = [TopicPartition("orders", p) for p in range(6)]
    logs = dict.fromkeys(tps[:5], (20, 150))
    points = ("earliest", 0), ("latest", 0), ("timestamp", 5000), ("timestamp", 9000), ("offset", 10), ("latest", 0)
    source: Any = Source(logs, {5000: 77})
    found = resolve(source, {tp: StartPoint(*point) for tp, point in zip(tps, points, strict=True)})  # type: ignore[arg-type]
    offsets = [one.offset if isinstance(one, Start) else None for one in (found[tp] for tp in tps)]
    assert offsets == [20, 150, 77, 150, 20, None]
    late, taken = found[tps[3]], found[tps[4]]
    assert isinstance(late, Start)
    assert "begins at the end" in late.note
    assert isinstance(taken, Start)
    assert "retention took 10 offsets" in taken.note


def test_a_start_never_moves_what_has_a_position() -> None:
    flow = Flow(Cluster("us"), Cluster("eu"), start=(StartRule(StartPoint("offset", 30)),))
    new, again = TopicPartition("orders", 1), TopicPartition("orders", 2)
    source: Any = Source(dict.fromkeys((TP, new, again), (20, 150)))
    found = beginnings(flow, source, [TP, new, again], {TP: CLAIMED, again: Position(20)})
    assert found == {
        TP: Start(100),
        new: Start(30, StartPoint("offset", 30)),
        again: Start(20),  # where a topic that was made anew begins: the offset was meant for the log that is gone
    }


def test_an_offset_behind_the_end_is_no_start() -> None:
    flow = Flow(Cluster("us"), Cluster("eu"), start=(StartRule(StartPoint("offset", 151)),))
    source: Any = Source({TP: (20, 150)})
    found = beginnings(flow, source, [TP], {})[TP]
    assert isinstance(found, NoStart)
    assert "(20 to 150 are there)" in found.reason


def test_the_preview_says_it_in_words() -> None:
    other = TopicPartition("orders", 1)
    text = "\n".join(preview([Shift(standing(), 60, again=40), Shift(standing(tp=other), 150, never=50)]))
    assert "40 records will come again" in text
    assert "50 records will never come" in text
    assert "2 of 2 positions change" in text
    assert "on the target twice" in text
    assert preview([Shift(standing(), 100)]) == ["nothing to do: every position is there already"]

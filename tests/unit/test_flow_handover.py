"""Where partitions stand when epochs change, without clusters: last words are believed when all are in, and only about
the era that is known."""

from __future__ import annotations

from heliograph.flow.handover import Handover
from heliograph.mirror.offsetmap import Span
from heliograph.mirror.positions import Position, decode
from heliograph.mirror.protocol import LanePosition, PartitionReport, partition_report
from heliograph.state.positions import PositionsLog
from heliograph.types import Cluster, Flow, TopicPartition

ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Read:
    """A topic that is read to its end: how often."""

    def __init__(self) -> None:
        self.times = 0

    def catch_up(self) -> None:
        self.times += 1

    def last_run(self, tp: TopicPartition, position: Position) -> Span:
        return Span(0, 0, position.next_offset)


def stage() -> tuple[Handover, PositionsLog, Read]:
    positions = PositionsLog(None, Flow(Cluster("us"), Cluster("eu")))  # type: ignore[arg-type]
    positions.known.update({ONE: Position(10, 7, 0, 10, None, 10), OTHER: Position(20, 8, 0, 20, None, 20)})
    read = Read()
    positions.catch_up = lambda: (read.catch_up(), positions.known)[1]  # type: ignore[method-assign]
    return Handover(positions, read), positions, read  # type: ignore[arg-type]


def word(tp: TopicPartition, at: int, producer: int) -> PartitionReport:
    where = {"topic": tp.topic, "partition": tp.partition, "next": at, "sequence": at, "target": at}
    run = {"run": [0, 0, at], "map": [0, 0, at]}
    return partition_report({**where, **run, "producer": producer, "end": at, "state": "flowing"})


def told(lanes: list[LanePosition]) -> dict[TopicPartition, int]:
    positions = {lane.tp: decode(lane.position.encode()) for lane in lanes}
    return {tp: position.next_offset for tp, position in positions.items() if position is not None}


def test_nothing_is_read_when_every_task_has_said_where_it_stood() -> None:
    handover, _, read = stage()
    handover.expect({(1, 0), (1, 1)})
    handover.heard((1, 0), [word(ONE, 15, 7)])
    assert not handover.all_told
    handover.heard((1, 1), [word(OTHER, 25, 8)])
    assert handover.all_told
    assert told(handover.standing([ONE, OTHER], attempt=0)) == {ONE: 15, OTHER: 25}
    assert read.times == 0


def test_a_word_that_is_missing_is_looked_up() -> None:
    handover, _, read = stage()
    handover.expect({(1, 0), (1, 1)})
    handover.heard((1, 0), [word(ONE, 15, 7)])
    lanes = handover.standing([ONE, OTHER], attempt=0)
    assert told(lanes) == {ONE: 15, OTHER: 20}
    assert [lane.run for lane in lanes] == [Span(0, 0, 15), Span(0, 0, 20)]
    assert read.times == 2  # positions, then the map


def test_who_tries_again_is_told_what_is_written() -> None:
    handover, _, read = stage()
    handover.expect({(1, 0)})
    handover.heard((1, 0), [word(ONE, 15, 7)])
    handover.standing([ONE], attempt=1)
    assert read.times == 2


def test_a_last_word_of_an_era_that_is_over_is_no_word() -> None:
    handover, positions, _ = stage()
    handover.expect({(1, 0)})
    positions.known[ONE] = Position(3, 9, 0, 0, None, 10)  # it began anew
    handover.heard((1, 0), [word(ONE, 15, 7)])
    assert handover.all_told
    assert handover.standing([ONE], attempt=0) == []  # neither its position nor its run: rule D finds out


def test_the_first_epoch_has_nobody_before_it() -> None:
    handover, _, _ = stage()
    handover.expect(set())
    assert not handover.all_told

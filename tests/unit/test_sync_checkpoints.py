"""Checkpoints while tasks go on writing: no offset is taken further than what the map tells of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from heliograph.formats import Checkpoint
from heliograph.mirror.offsetmap import Span
from heliograph.mirror.positions import Position
from heliograph.mirror.runs import Runs
from heliograph.sync.checkpoints import Checkpoints
from heliograph.sync.marks import Mark
from heliograph.types import Cluster, Flow, TopicPartition
from heliograph.wire import Committed

TP = TopicPartition("orders", 0)


class World:
    """A map's topic and a position, written by a task (map first), read by us; the task goes on between two reads."""

    def __init__(self) -> None:
        self.spans, self.position = [Span(0, 0, 100)], Position(100, 1, 0, 100, None, 100, run=0, run_end=100)
        self.reads = 0

    def read(self) -> None:
        self.reads += 1
        if self.reads == 2:  # a marker at source offset 100, and 50 records behind it
            self.spans.append(Span(101, 100, 50))
            self.position = Position(151, 1, 0, 150, None, 150, run=101, run_end=150)


class Positions:
    def __init__(self, world: World) -> None:
        self.world = world
        self.known: dict[TopicPartition, Position] = {}

    def catch_up(self) -> Mapping[TopicPartition, Position]:
        self.world.read()
        self.known = {TP: self.world.position}
        return self.known


class Offsets:
    def __init__(self, world: World) -> None:
        self.world = world
        self.runs = Runs()

    def catch_up(self) -> None:
        self.world.read()
        self.runs = Runs()
        self.runs.add(self.world.spans)

    def translate(self, tp: TopicPartition, offset: int, known: Mapping[TopicPartition, Position]) -> int | None:
        self.runs.extend(known[tp].run or 0, known[tp].run_end)
        return self.runs.floor(offset)

    def generations(self, tp: TopicPartition, position: Position, remote: int) -> frozenset[int]:
        return frozenset([position.producer_id])


class OneGroup(Checkpoints):
    written: list[tuple[bytes, bytes]]

    def ensure(self) -> None:
        self.written = []
        self._log.news = lambda: iter(())  # type: ignore[method-assign]

    def _append(self, fresh: Mapping[Checkpoint, Mark], now_ms: int) -> None:
        self.written += [(one.key(), one.value()) for one in fresh]

    def _refresh_groups(self) -> None: ...

    def _committed(self) -> dict[str, dict[TopicPartition, Committed]]:
        return {"g": {TP: Committed(121)}}

    def _starts(self, committed: object) -> dict[TopicPartition, int]:
        return {}


def test_a_run_that_begins_between_two_reads_is_not_passed_over() -> None:
    world = World()
    nobody: Any = None
    offsets: Any = Offsets(world)
    positions: Any = Positions(world)
    make: Callable[..., OneGroup] = OneGroup
    checkpoints = make(Flow(Cluster("a"), Cluster("b")), nobody, nobody, offsets, positions)
    assert checkpoints.emit() == 1
    (checkpoint,) = checkpoints.known.values()
    assert checkpoint.downstream <= 120  # 121 is the 21st record of the second run, at target offset 120

"""Where partitions stand when one epoch takes over from another, and where a task that is tried again goes on.

Tasks say with their last word where they stood, and have written it down before. If all tasks of an epoch said it,
nothing need be read back, which is most of what a change of epochs would otherwise take; if one did not, the topics
are read. A last word about an era that is over counts for nothing (the partition began anew meanwhile).

Thread-safe: tasks speak on a thread each.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

from heliograph.mirror.offsetmap import Span
from heliograph.mirror.positions import Position, encode
from heliograph.mirror.protocol import LanePosition, PartitionReport
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.types import TopicPartition

TaskName = tuple[int, int]  # epoch, task: whichever attempt


class Handover:
    def __init__(self, positions: PositionsLog, offsets: OffsetMap) -> None:
        self._positions, self._offsets = positions, offsets
        self._lock = threading.Lock()
        self._ended: set[TaskName] = set()  # whose last word came in
        self._before: set[TaskName] = set()  # those of the epoch before
        self._last_runs: dict[TopicPartition, Span | None] = {}  # as last words had them, since the plan was made

    def expect(self, tasks: set[TaskName]) -> None:
        """A plan is being made: these tasks go before it."""
        with self._lock:
            self._before = tasks
            self._ended &= tasks
            self._last_runs = {}

    @property
    def all_told(self) -> bool:
        """Whether every task that goes before has said where it stood."""
        with self._lock:
            return bool(self._before) and self._before <= self._ended

    def heard(self, task: TaskName, lanes: Iterable[PartitionReport]) -> None:
        """A task's last word."""
        runs = {}
        for lane in lanes:
            where, run = (lane.next_offset, lane.sequence, lane.target_offset), lane.map
            named = (run.source, run.target + run.length) if run is not None else (-1, -1)
            if self._positions.learn(lane.tp, *where, producer_id=lane.producer_id, strands=lane.strands, run=named):
                runs[lane.tp] = run
        with self._lock:
            self._ended.add(task)
            self._last_runs.update(runs)

    def standing(self, assigned: Collection[TopicPartition], *, attempt: int) -> list[LanePosition]:
        """What a task is told of its lanes: partition, position, the last run of its offset map."""
        known: Mapping[TopicPartition, Position] = self._positions.known
        if attempt == 0 and self.all_told:
            with self._lock:
                runs = dict(self._last_runs)
        else:
            known = self._positions.catch_up()
            self._offsets.catch_up()
            runs = {tp: self._offsets.last_run(tp, known[tp]) for tp in assigned if tp in known}
        return [
            LanePosition(*tp, encode(known[tp]).decode(), runs[tp]) for tp in assigned if tp in runs and tp in known
        ]

"""What a task writes down of its lanes as it goes: the offset map's runs, then the positions that cover them. The
strands of a divided partition have one position together.

Only what is acknowledged (rule C), and of lanes that moved. Notes go out by the appender, beside the records and by
the same connections; a lane's `written` is what the target has acknowledged.

Invariants:
  a. Where a new run began, the map's records go first, and the position when all of them are acknowledged (invariant a
     of `mirror.offsetmap`).
  b. No batch of map records is larger than MAP_BATCH_BYTES, however many segments wait: one beyond the topic's
     `max.message.bytes` would be refused for ever, and every position would wait for it.
  c. Of each partition of the positions topic one batch at a time is under way. Of what waits for its answer only the
     newest position of each source partition is kept: that topic may be without a leader for hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from heliograph.batch import Record, encode
from heliograph.mirror import offsetmap, positions
from heliograph.mirror.append import Note, Target
from heliograph.mirror.assignment import Assignment
from heliograph.mirror.lane import Lane
from heliograph.mirror.positions import Position
from heliograph.mirror.strands import bundles, position_of
from heliograph.types import TopicPartition

log = structlog.get_logger()

GROWTH_EVERY_S = 10.0  # so much of a run is not exact after another mirror took over
MAP_BATCH_BYTES = 256 << 10  # a quarter of the default of `max.message.bytes`; one segment is below 30 KB


@dataclass(frozen=True, slots=True)
class Moved:
    """The position of a source partition at one moment, and what the offset map must hold before it may be written."""

    lanes: tuple[Lane, ...]  # one, or its strands
    acked: tuple[Position, ...]
    segments: tuple[list[list[offsetmap.Span]], ...]  # of each lane
    complete: bool = True  # no segment was left for the next write: the position may follow these

    @property
    def tp(self) -> TopicPartition:
        return self.lanes[0].spec.tp

    @property
    def position(self) -> Position:
        return position_of(self.lanes, self.acked)

    def records(self, source_alias: str) -> list[tuple[bytes, bytes]]:
        """For the map."""
        found = []
        for lane, segments in zip(self.lanes, self.segments, strict=True):
            strand = lane.spec.index if lane.spec.strands else -1
            subject = offsetmap.Subject(self.tp, lane.spec.topic_id, strand, lane.acked.producer_id)
            found += [
                (offsetmap.key_of(source_alias, subject, one[0].source), offsetmap.encode(one)) for one in segments
            ]
        return found

    def mapped(self, ok: bool) -> None:
        for lane, segments in zip(self.lanes, self.segments, strict=True):
            if segments:
                lane.map.written(ok, segments)

    def written(self) -> None:
        for lane, acked in zip(self.lanes, self.acked, strict=True):
            lane.written = acked


class Journal:
    def __init__(self, assignment: Assignment, lanes: Sequence[Lane], target: Target) -> None:
        self._a = assignment
        self._partitions = [bundle.lanes for bundle in bundles(lanes).values()]
        self._target = target
        self._out = 0
        self._growth_at = time.monotonic() + GROWTH_EVERY_S
        self._under_way: set[int] = set()  # partitions of the positions topic (invariant c)
        self._waiting: dict[int, dict[TopicPartition, Moved]] = {}  # for the answers of these
        for lane in lanes:
            lane.map.kept = bool(assignment.map_topic)

    @property
    def unanswered(self) -> bool:
        """Whether something written is not acknowledged yet."""
        return bool(self._target.notes_waiting or self._out)

    def write(self) -> None:
        if (now := time.monotonic()) >= self._growth_at:
            self._growth_at = now + GROWTH_EVERY_S
            for lane in (lane for lanes in self._partitions for lane in lanes if not lane.spec.strands):
                lane.map.record_growth()
        mapped: list[Moved] = []
        plain: list[Moved] = []
        for lanes in self._partitions:
            if len(lanes) == 1 and lanes[0].acked is lanes[0].written and not lanes[0].map.dirty:
                continue  # it stands still, as most of ten thousand do: nothing to compare
            moved = any(lane.written is None or lane.acked != lane.written or lane.map.dirty for lane in lanes)
            if moved and not any(lane.map.pending for lane in lanes):
                at_most = max(offsetmap.WRITTEN_AT_ONCE // len(lanes), 1)
                acked, segments = tuple(lane.acked for lane in lanes), tuple(lane.map.take(at_most) for lane in lanes)
                one = Moved(lanes, acked, segments, all(lane.map.all_taken for lane in lanes))
                if any(one.segments) and not self._a.map_topic:
                    one.mapped(True)  # runs are noted for offset syncs alone; no position names them
                (mapped if any(one.segments) and self._a.map_topic else plain).append(one)
        self._note_positions(plain)
        self._note_map(mapped)

    def _note_map(self, moved: list[Moved]) -> None:
        a = self._a
        by_partition: dict[int, list[Moved]] = {}
        for one in moved:
            key = positions.key_of(a.source.alias, one.tp)
            by_partition.setdefault(positions.partition_for(key, a.map_partitions), []).append(one)
        for partition, group in by_partition.items():
            batches = _batches([pair for one in group for pair in one.records(a.source.alias)])
            answers: list[bool] = []

            def answered(
                ok: bool, group: list[Moved] = group, answers: list[bool] = answers, due: int = len(batches)
            ) -> None:
                answers.append(ok)
                if len(answers) == due:
                    self._map_written(all(answers), group)

            for pairs in batches:
                self._note(TopicPartition(a.map_topic, partition), pairs, answered)

    def _map_written(self, ok: bool, group: list[Moved]) -> None:
        for one in group:
            one.mapped(ok)
        if ok:
            self._note_positions([one for one in group if one.complete])
        else:
            log.warning(
                "offset map not written, positions wait for it",
                flow=self._a.flow,
                topic=self._a.map_topic,
                partitions=[str(one.tp) for one in group[:5]],
                fix="the target's log line beside this says why; records are copied meanwhile",
            )

    def _note_positions(self, moved: list[Moved]) -> None:
        """One batch per partition of the positions topic."""
        a = self._a
        due: set[int] = set()
        for one in moved:
            partition = positions.partition_for(self._key_of(one), a.positions_partitions)
            self._waiting.setdefault(partition, {})[one.tp] = one
            due.add(partition)
        for partition in sorted(due - self._under_way):
            self._note_waiting(partition)

    def _note_waiting(self, partition: int) -> None:
        group = list(self._waiting.pop(partition, {}).values())
        if not group:
            return
        self._under_way.add(partition)

        def answered(ok: bool) -> None:
            self._under_way.discard(partition)
            for one in group if ok else ():
                one.written()
            self._note_waiting(partition)

        pairs = [(self._key_of(one), positions.encode(one.position)) for one in group]
        self._note(TopicPartition(self._a.positions_topic, partition), pairs, answered)

    def _key_of(self, one: Moved) -> bytes:
        return positions.key_of(self._a.source.alias, one.tp, self._a.positions_under)

    def _note(self, tp: TopicPartition, pairs: list[tuple[bytes, bytes]], done: Callable[[bool], None]) -> None:
        now_ms = time.time_ns() // 1_000_000
        batch = encode([Record(i, now_ms, key, value, ()) for i, (key, value) in enumerate(pairs)])
        self._out += 1

        def answered(ok: bool) -> None:
            self._out -= 1
            done(ok)

        self._target.note(Note(tp, batch, answered))


def _batches(pairs: list[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
    """In order, each within MAP_BATCH_BYTES (invariant b)."""
    found: list[list[tuple[bytes, bytes]]] = []
    room = 0
    for key, value in pairs:
        size = len(key) + len(value)
        if not found or size > room:
            found.append([])
            room = MAP_BATCH_BYTES
        found[-1].append((key, value))
        room -= size
    return found

"""The strands of a source partition whose copy has another number of partitions, put together.

A strand is a lane: the records of one source partition that go to one target partition, with a producer id, a sequence
and a position of its own, so that rules A to H hold for it as for any lane. Here is what they share: the fetch that
serves them all (`Bundle`), and the one row in which the rest of the world sees them. A source partition that is copied
partition by partition is a bundle of one.

Invariants:
  a. A bundle is fetched from the place of the lane that is least far of those that are being read. Who is further drops
     what it has seen: a record is pushed into its lane once, whoever was read again.
  b. A lane that holds enough, lost track or is parked is not read, and holds up nobody. It comes back at its own place.
  c. The records of a shared topic that are put back have an anchor, a lane that nothing is sent by. It stays before the
     first record that is nobody's until that is written down (strange), or belongs to a strand (a target that was not
     known): a strand that is new begins at the anchor's place, and what MM2 or a restart goes on from is never past it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heliograph.batch import Chunk, Limits
from heliograph.batch.demux import Strange, Targets, demux
from heliograph.batch.labels import Stamp
from heliograph.batch.mux import mux
from heliograph.batch.sharing import MOST_BYTES, Shares
from heliograph.batch.split import split
from heliograph.mirror.assignment import LaneSpec, PutBack
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.positions import SEQUENCES, Position, join, strands_text
from heliograph.mirror.timing import Spread
from heliograph.types import TopicPartition
from heliograph.wire import Fetched

NO_LIMITS = Limits()  # of chunks without records
NOBODY: Mapping[TopicPartition, int] = {}


@dataclass(frozen=True, slots=True)
class Brought:
    """What one answer holds for each, and how many bytes of it are to be copied, as they came: each counts once."""

    chunks: list[tuple[Lane, Chunk]]
    bytes: int
    made: int = 0  # bytes that were unpacked for it; 0: the batches are still as they came
    strange: tuple[Strange, ...] = ()  # that stop the anchor: not written down yet
    unknown: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_late: bool = False  # it holds less than the answer did: there was no more time


@dataclass(slots=True, eq=False)
class Bundle:
    """The lanes of one source partition, by target partition."""

    lanes: tuple[Lane, ...]
    reading: dict[Lane, None] = field(default_factory=dict)  # those that the fetch is for
    aside: set[int] = field(default_factory=set)  # offsets of strange records that are written down
    bite_bytes: int = 0  # fetched at a time at most, while dividing takes long; 0: as much as of any partition
    read_failures: int = 0  # in a row, for the backoff of its fetch; those of writing are the lanes' own
    _targets: Targets | None = None

    @property
    def tp(self) -> TopicPartition:
        return self.lanes[0].spec.tp

    @property
    def divides(self) -> bool:
        """Whether its records are taken out of their batches, one by one: to be labelled or divided."""
        return len(self.lanes) > 1 or self.lanes[0].spec.stage is not None

    @property
    def fetch_offset(self) -> int:
        """Invariant a."""
        return min(lane.fetch_offset for lane in self.reading)

    @property
    def history(self) -> bool:
        """Which way the fetch goes: by the lane that is least far."""
        return any(lane.history for lane in self.reading)

    def takers(self, offset: int) -> list[Lane]:
        """For whom an answer to a fetch from this offset is. For a lane alone: none that was asked for before it was
        reset (its invariant d); a strand takes what reaches its place."""
        if len(self.lanes) == 1:
            alone = self.lanes[0]
            fits = alone.fetch_offset == offset and alone.state is State.FLOWING and alone in self.reading
            return [alone] if fits else []
        return [lane for lane in self.reading if lane.state is State.FLOWING and lane.fetch_offset >= offset]

    def brought(
        self,
        takers: Sequence[Lane],
        part: Fetched,
        limits: Callable[[int], Limits],
        *,
        read_committed: bool,
        most_bytes: int = MOST_BYTES,
        until: float = math.inf,
    ) -> Brought:
        """BatchError if its first batch cannot be read. What has to be unpacked ends behind the batch that makes it
        more than `most_bytes`, or in which `until` passes, and is fetched again from there."""
        stage = self.lanes[0].spec.stage
        if isinstance(stage, PutBack):
            return self._put_back(stage, takers, part, limits, read_committed, most_bytes, until)
        if isinstance(stage, Stamp):
            now_ms = time.time_ns() // 1_000_000
            labelled = mux(part.records, stage, now_ms, most_bytes=most_bytes, until=until)
            if labelled.newest_ms >= 0:
                self.lanes[0].aged_ms = max(now_ms - labelled.newest_ms, 0) if stage.timed else 0
            chunks = self._chunks(takers, labelled.shares, part, limits, read_committed)
            return _brought(chunks, labelled.shares)
        if len(self.lanes) == 1:
            alone = takers[0]
            chunk = Chunk(
                part.records,
                wanted=alone.fetch_offset,
                aborted=part.aborted,
                read_committed=read_committed,
                limits=limits(alone.max_batch_bytes),
            )
            return Brought([(alone, chunk)], chunk.remaining_bytes)
        shares = split(part.records, len(self.lanes), most_bytes=most_bytes, until=until)
        return _brought(self._chunks(takers, shares, part, limits, read_committed), shares)

    def _chunks(
        self,
        takers: Sequence[Lane],
        shares: Shares,
        part: Fetched,
        limits: Callable[[int], Limits],
        read_committed: bool,
    ) -> list[tuple[Lane, Chunk]]:
        """For each its share, which is that of its place among the lanes."""
        return [
            (
                lane,
                Chunk(
                    shares.buffers[self._place_of(lane)],
                    wanted=lane.fetch_offset,
                    aborted=part.aborted,
                    read_committed=read_committed,
                    limits=replace(limits(lane.max_batch_bytes), codec_of_target=shares.codec),
                    check_crc=False,  # done when they were divided
                    shared=True,
                ),
            )
            for lane in takers
        ]

    def _place_of(self, lane: Lane) -> int:
        if isinstance(lane.spec.stage, Stamp):
            return 0
        return lane.spec.index - 1 if isinstance(lane.spec.stage, PutBack) else lane.spec.index

    @property
    def anchor(self) -> Lane | None:
        """Invariant c."""
        stage = self.lanes[0].spec.stage
        return self.lanes[0] if isinstance(stage, PutBack) and stage.origin is None else None

    def _put_back(
        self,
        stage: PutBack,
        takers: Sequence[Lane],
        part: Fetched,
        limits: Callable[[int], Limits],
        read_committed: bool,
        most_bytes: int,
        until: float,
    ) -> Brought:
        if self._targets is None:
            origins = [lane.spec.stage.origin for lane in self.lanes if isinstance(lane.spec.stage, PutBack)]
            self._targets = Targets([origin for origin in origins if origin is not None])
        assert stage.origin is None, f"{self.tp}: the first lane is not the anchor"  # else every share is another's
        refused, following = stage.refused, stage.following
        done = demux(
            part.records,
            self._targets,
            keep=stage.keep_labels,
            refuses=lambda origin: origin in refused or following.refuses(origin),
            aborted=part.aborted if read_committed else (),
            most_bytes=most_bytes,
            until=until,
        )
        anchor, filled = self.anchor, done.shares.filled
        others = [lane for lane in takers if lane is not anchor]
        served = [lane for lane in others if self._place_of(lane) in filled]
        chunks = self._chunks(served, done.shares, part, limits, read_committed)
        chunks += [(lane, _nothing(done.next_offset, lane)) for lane in others if self._place_of(lane) not in filled]
        if anchor is None or anchor not in takers:
            return _brought(chunks, done.shares, (), done.unknown)
        self.aside = {offset for offset in self.aside if offset >= anchor.fetch_offset}
        # What others wrote down before is in `held` (rule H's answer). What is behind a record that waits for its place
        # is not written down yet: who begins that target may be another, and would not know.
        written, waits = self.aside | anchor.held, min(done.unknown.values(), default=done.next_offset)
        strange = tuple(
            one
            for one in done.strange
            if anchor.fetch_offset <= one.record.offset < waits and one.record.offset not in written
        )
        place = strange[0].record.offset if strange else waits
        chunks = [(anchor, _nothing(place, anchor)), *chunks]
        return _brought(chunks, done.shares, strange, done.unknown)


def _brought(
    chunks: list[tuple[Lane, Chunk]],
    shares: Shares,
    strange: tuple[Strange, ...] = (),
    unknown: Mapping[TopicPartition, int] = NOBODY,
) -> Brought:
    return Brought(chunks, shares.size, shares.made, strange, unknown, shares.is_late)


def _nothing(until: int, lane: Lane) -> Chunk:
    """What a fetch brought for a lane none of whose records is before this offset."""
    return Chunk(b"", wanted=max(until, lane.fetch_offset), limits=NO_LIMITS)


def bundles(lanes: Iterable[Lane]) -> dict[TopicPartition, Bundle]:
    found: dict[TopicPartition, list[Lane]] = {}
    for lane in lanes:
        found.setdefault(lane.spec.tp, []).append(lane)
    return {tp: Bundle(tuple(sorted(some, key=lambda lane: lane.spec.index))) for tp, some in found.items()}


def share_of(position: Position, spec: LaneSpec) -> Position | None:
    """What the position of a source partition says of this lane; None: it is about another shape."""
    if spec.stage is not None:  # strands may have been added (invariant g of positions)
        mine = spec.index < len(position.targets) and position.targets[spec.index] == spec.remote
        return position.strands[spec.index] if mine else None
    if len(position.strands) != spec.strands or position.targets:
        return None
    return position.strands[spec.index] if spec.strands else position


def position_of(lanes: Sequence[Lane], acked: Sequence[Position] | None = None) -> Position:
    """What is to be written of the lanes of one source partition."""
    acked = [lane.acked for lane in lanes] if acked is None else acked
    targets = [lane.spec.remote for lane in lanes] if lanes[0].spec.stage is not None else ()
    return join(acked, targets) if lanes[0].spec.strands else acked[0]


WORST = (State.FLOWING.value, State.LOST.value, State.HALTED.value, State.PARKED.value)
SUMMED = ("records", "bytes", "batches", "skipped", "retries", "resyncs", "repeated", "lost")


def together(lanes: Sequence[Lane], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row of several: counts summed, the position the smallest, the state the worst, saying whose it is."""
    position = position_of(lanes)
    worst = max(rows, key=lambda row: WORST.index(row["state"]))
    whose = f"to {lanes[rows.index(worst)].spec.remote}: " if worst["reason"] and len(rows) > 1 else ""
    hindered = [(row, lane) for row, lane in zip(rows, lanes, strict=True) if row["why"]]
    hindered.sort(key=lambda one: one[0]["vague"])  # what is known stands before what is guessed
    why = hindered[0][0] if hindered else rows[0]
    wishes = [row["wish"] for row in rows if row["wish"]]
    settled = all(lane.acked == lane.written for lane in lanes)
    oldest = [row["oldest"] for row in rows if row["oldest"] >= 0]
    return rows[0] | {
        "next": position.next_offset,
        "sequence": sum(row["sequence"] for row in rows) % SEQUENCES,
        "end": max(row["end"] for row in rows),
        "state": worst["state"],
        "reason": whose + worst["reason"],
        "fix": worst["fix"],
        "wish": wishes[0] if wishes and settled else "",
        "wished": _wished(lanes, wishes[0]) if wishes and settled else [],
        "timestamp": max(row["timestamp"] for row in rows),
        "target": -1,
        "run": None,
        "map": None,
        "why": whose + why["why"] if why["why"] == worst["reason"] else why["why"],
        "blind": any(row["blind"] for row in rows),
        "vague": why["vague"],
        "history": any(row["history"] for row in rows),
        "oldest": min(oldest, default=-1),
        "latency": _spread(row["latency"] for row in rows),
        "age": _spread(row["age"] for row in rows),
        "strands": strands_text(position),
        **{name: sum(row[name] for row in rows) for name in SUMMED},
    }


def _wished(lanes: Sequence[Lane], wish: str) -> list[tuple[str, int, int]]:
    """Whose wish it is, with their producer ids, where strands have targets of their own; none: it is about all."""
    return [(*lane.spec.remote, lane.acked.producer_id) for lane in lanes if lane.spec.stage and lane.wish == wish]


def _spread(told: Iterable[list[int]]) -> list[int]:
    whole = Spread()
    for one in told:
        whole.add(Spread(*one))
    return whole.told()

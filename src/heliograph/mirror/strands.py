"""The strands of a source partition whose copy has another number of partitions, put together.

A strand is a lane: the records of one source partition that go to one target partition, with a producer id, a sequence
and a position of its own, so that rules A to H hold for it as for any lane. Here is what they share: the fetch that
serves them all (`Bundle`), and the one row in which the rest of the world sees them. A source partition that is copied
partition by partition is a bundle of one.

Invariants:
  a. A bundle is fetched from the place of the lane that is least far of those that are being read. Who is further drops
     what it has seen: a record is pushed into its lane once, whoever was read again.
  b. A lane that holds enough, lost track or is parked is not read, and holds up nobody. It comes back at its own place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heliograph.batch import Chunk, Limits
from heliograph.batch.split import split
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.positions import SEQUENCES, Position, join, strands_text
from heliograph.mirror.timing import Spread
from heliograph.types import TopicPartition
from heliograph.wire import Fetched


@dataclass(frozen=True, slots=True)
class Brought:
    """What one answer holds for each, and how many bytes of it are to be copied, as they came: each counts once."""

    chunks: list[tuple[Lane, Chunk]]
    bytes: int


@dataclass(slots=True, eq=False)
class Bundle:
    """The lanes of one source partition, by target partition."""

    lanes: tuple[Lane, ...]
    reading: dict[Lane, None] = field(default_factory=dict)  # those that the fetch is for

    @property
    def tp(self) -> TopicPartition:
        return self.lanes[0].spec.tp

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
        self, takers: Sequence[Lane], part: Fetched, limits: Callable[[int], Limits], *, read_committed: bool
    ) -> Brought:
        """BatchError if its first batch cannot be read."""
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
        shares = split(part.records, len(self.lanes))
        chunks = [
            (
                lane,
                Chunk(
                    shares.buffers[lane.spec.remote.partition],
                    wanted=lane.fetch_offset,
                    aborted=part.aborted,
                    read_committed=read_committed,
                    limits=replace(limits(lane.max_batch_bytes), codec_of_target=shares.codec),
                    check_crc=False,  # `split` has done it
                ),
            )
            for lane in takers
        ]
        return Brought(chunks, shares.size)


def bundles(lanes: Iterable[Lane]) -> dict[TopicPartition, Bundle]:
    found: dict[TopicPartition, list[Lane]] = {}
    for lane in lanes:
        found.setdefault(lane.spec.tp, []).append(lane)
    return {tp: Bundle(tuple(some)) for tp, some in found.items()}


def share_of(position: Position, spec: LaneSpec) -> Position | None:
    """What the position of a source partition says of this lane; None: it is about another shape."""
    if len(position.strands) != spec.strands:
        return None
    return position.strands[spec.remote.partition] if spec.strands else position


def position_of(lanes: Sequence[Lane]) -> Position:
    """What is to be written of the lanes of one source partition."""
    return join([lane.acked for lane in lanes]) if lanes[0].spec.strands else lanes[0].acked


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
        "timestamp": max(row["timestamp"] for row in rows),
        "target": -1,
        "run": None,
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


def _spread(told: Iterable[list[int]]) -> list[int]:
    whole = Spread()
    for one in told:
        whole.add(Spread(*one))
    return whole.told()

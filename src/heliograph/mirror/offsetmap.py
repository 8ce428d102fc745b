"""Which source offsets became which target offsets: runs, in the format of the offset map's topic.

A run is a stretch of consecutive source offsets that became consecutive target offsets. A new one begins only where the
source has a hole (a transaction's marker, an aborted record, a record that compaction took) or where another producer
wrote to the remote partition. So a plain topic has one run for its whole life.

Runs belong to a generation of the copy: the records that were appended under one producer id. A producer id is claimed
for one source topic and one remote topic (rule G), and every break of the copy (MM2 copied for a while, the copy was
deleted or cut, an operator moved the position) leads to a new claim. The claim writes a `Generation`: it names the
older generations whose records are still in the copy. Runs of all others are void.

Of a strand (`mirror.strands`), whose source has holes at nearly every record, only points are written down: now and
then, which record became which. They have a map of their own for each target partition.

The map's topic is compacted. A record holds a segment: some runs in a row, keyed by the generation and the first run's
source offset. A tombstone removes the segment. This module is the format and the writer's side in a lane;
`mirror.runs` holds what was read and translates, `state.offsets` reads the topic.

Invariants:
  a. A position is written only after the map's records about everything before it, and names the run that the map ends
     with and where that run ends (`Position.run`, `run_end`). A position of a task that cannot write the map goes on
     naming the last run that the topic has, with the end it had then. So no run is ever taken to be longer than what a
     task copied and wrote down, whatever was killed in between.
  b. A segment begins with the run that was the last of the segment before, now with its length. So a run's length is
     the longest that any record or position says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import msgspec

from heliograph.mirror.positions import OFFSETS
from heliograph.types import TopicPartition

NAME = "HeliographOffsetMap"
POINT_EVERY = 1000  # records of a strand between two points
SEGMENT_RUNS = 1000  # about 4 KB, 27 KB at most: rewritten once a second while it grows
WRITTEN_AT_ONCE = 16  # segments of a lane in one write: far below any limit of a batch's size
UNWRITTEN_SEGMENTS = 64  # of a lane, while the topic cannot be written; beyond that the oldest get less exact
OF_0_1 = -1  # the producer id of runs that 0.1 wrote: their keys name none
HEADER = -1  # "from" in the key of a generation: no run begins there


class Span(NamedTuple):
    """A run."""

    source: int
    target: int
    length: int


class Subject(NamedTuple):
    """Whose offsets: a topic that was deleted and created again is another one."""

    tp: TopicPartition
    topic_id: UUID | None
    strand: int = -1  # the target partition, if the topic is divided
    producer: int = OF_0_1  # the generation of the copy, by its producer id


def key_of(source_alias: str, subject: Subject, first: int) -> bytes:
    about: dict[str, str | int] = {
        "cluster": source_alias,
        "from": first,
        "id": str(subject.topic_id or ""),
        "partition": subject.tp.partition,
        "topic": subject.tp.topic,
    }
    if subject.strand >= 0:
        about["strand"] = subject.strand
    if subject.producer >= 0:
        about["producer"] = subject.producer
    return msgspec.json.encode([NAME, about])


class Generation(msgspec.Struct, frozen=True):
    """How a generation of the copy began. Written by the coordinator that claimed its producer id, after the claim."""

    start: int  # the source offset of the claim
    end: int  # where the remote partition ended then: all of this generation lies behind it
    copy: str = ""  # the remote topic's id; empty: the brokers have none
    follows: list[int] = []  # producer ids of the generations before it whose records are still there, newest first
    fresh: bool = False  # nothing of the source partition was copied before
    exact: int = 0  # the source offset from which on no run was dropped from the topic
    source_end: int = -1  # where the source partition ended then: nothing behind it had been copied; -1: not known


class Segment(NamedTuple):
    """A record of the topic. Neither spans nor a generation: a tombstone of what begins at `first`."""

    subject: Subject
    spans: list[Span]
    first: int
    generation: Generation | None = None


def read(key: bytes | None, value: bytes | None, source_alias: str) -> Segment | None:
    """None for other clusters' records and for nonsense, among it a segment that is not where its key says."""
    try:
        name, about = msgspec.json.decode(key or b"")
        if name != NAME or about["cluster"] != source_alias:
            return None
        topic, id_ = about["topic"], about["id"]
        numbers = about["partition"], about["from"], about.get("strand", -1), about.get("producer", OF_0_1)
        if not isinstance(topic, str) or not isinstance(id_, str) or any(type(one) is not int for one in numbers):
            return None
        partition, first, strand, producer = numbers
        subject = Subject(TopicPartition(topic, partition), UUID(id_) if id_ else None, strand, producer)
        if first == HEADER and value is not None:
            return Segment(subject, [], first, msgspec.msgpack.decode(value, type=Generation))
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
        return None
    spans = decode(value)
    if value is not None and (not spans or spans[0].source != first):
        return None
    return Segment(subject, spans, first)


def encode_generation(generation: Generation) -> bytes:
    return msgspec.msgpack.encode(generation)


def encode(spans: Sequence[Span]) -> bytes:
    """Each run as its distance from the end of the one before, in source and target, and its length."""
    numbers: list[int] = []
    source = target = 0
    for span in spans:
        numbers += (span.source - source, span.target - target, span.length)
        source, target = span.source + span.length, span.target + span.length
    return msgspec.msgpack.encode(numbers)


def decode(value: bytes | None) -> list[Span]:
    """Empty for a tombstone and for nonsense."""
    try:
        numbers = msgspec.msgpack.decode(value or b"", type=list[int])
    except ValueError:
        return []
    if len(numbers) % 3:
        return []
    spans: list[Span] = []
    source = target = 0
    each = iter(numbers)
    for hole, foreign, length in zip(each, each, each, strict=True):
        source, target = source + hole, target + foreign
        if length <= 0 or source < 0 or target < 0:
            return []
        spans.append(Span(source, target, length))
        source, target = source + length, target + length
        if source > OFFSETS or target > OFFSETS:
            return []
    return spans


@dataclass(slots=True)
class Writer:
    """A lane's side: runs in, segments to be written out. `last` is the run that was noted last."""

    last: Span | None = None
    open: list[Span] = field(default_factory=list)  # the segment that still grows
    full: list[list[Span]] = field(default_factory=list)  # segments that are complete and not yet known to be written
    dirty: bool = False  # the open segment has a run that no written record has
    pending: bool = False  # segments are on their way to the topic: positions wait (invariant a)
    kept: bool = True  # there is a topic that runs are written to
    saved: Span | None = None  # the run that the topic ended with when the lane began
    _open_taken: bool = False
    _recorded: int = 0  # the length of the last run when it was last taken to be written

    def begin(self, last: Span | None) -> None:
        """`last`: what the topic ends with."""
        self.last = self.saved = last
        self._recorded = 0

    @property
    def written_last(self) -> Span | None:
        """The run that the topic ends with once everything is written (invariant a)."""
        return self.last if self.kept else self.saved

    @property
    def named(self) -> tuple[int, int]:
        """What a position says of it: where it begins and ends; (-1, -1): the topic has none."""
        run = self.written_last
        return (run.source, run.target + run.length) if run is not None else (-1, -1)

    def note(self, source: int, target: int, length: int) -> None:
        if self.last is not None:
            # Rule D may show us again what we have noted already: the same content at the same place.
            known = min(max(self.last.source + self.last.length - source, 0), length)
            source, target, length = source + known, target + known, length - known
        if not length:
            return
        if self.last is not None and self._joins(self.last, source, target):
            self.last = Span(self.last.source, self.last.target, self.last.length + length)
            if self.open:
                self.open[-1] = self.last
            return
        if len(self.open) >= SEGMENT_RUNS:
            self.full.append(self.open)
            self.open = []
            self._bound()
        if not self.open and self.last is not None:
            self.open.append(self.last)  # invariant b
        self.last = Span(source, target, length)
        self.open.append(self.last)
        self.dirty = True

    @staticmethod
    def _joins(last: Span, source: int, target: int) -> bool:
        return last.source + last.length == source and last.target + last.length == target

    def record_growth(self) -> None:
        """The last run is to be written with the length it has by now. Positions say it too, and are lost when another
        mirror writes its own in their place."""
        if self.kept and self.last is not None and self.last.length > self._recorded:
            self.open = self.open or [self.last]
            self.dirty = True

    def take(self, at_most: int = WRITTEN_AT_ONCE) -> list[list[Span]]:
        """The segments to write now; `written` must follow."""
        if not self.dirty and not self.full:
            return []
        segments, self.full = self.full[:at_most], self.full[at_most:]
        self._open_taken = self.dirty and not self.full and len(segments) < at_most
        if self._open_taken:
            segments.append(list(self.open))
            self.dirty, self._recorded = False, self.open[-1].length
        self.pending = True
        return segments

    @property
    def all_taken(self) -> bool:
        """Whether nothing is left to write behind what was taken."""
        return not self.dirty and not self.full

    def written(self, ok: bool, segments: list[list[Span]]) -> None:
        self.pending = False
        if not ok:
            # The open segment is still here, longer by now: put back, it would be written once more with each failure.
            self.full[:0] = segments[:-1] if self._open_taken else segments
            self.dirty = self.dirty or self._open_taken
            self._bound()

    def _bound(self) -> None:
        """A run that is left out is a stretch that is not known: offsets in it translate to the end of the run before
        (invariant c of `mirror.runs`)."""
        while len(self.full) > UNWRITTEN_SEGMENTS:
            older, newer = self.full[:2]
            self.full[:2] = [[*older, *newer][::2]]

"""Which source offsets became which target offsets: runs, as they are written down for ever.

A run is a stretch of consecutive source offsets that became consecutive target offsets. A new one begins only where the
source has a hole (a transaction's marker, an aborted record, a record that compaction took) or where somebody else
wrote to the remote partition. So a plain topic has one run for its whole life, and the map stays small whatever is
copied.

Of a strand (`mirror.strands`), whose source has holes at nearly every record, only points are written down: now and
then, which record became which. They have a map of their own for each target partition.

The map's topic is compacted. A record holds a segment: some runs in a row, keyed by the first one's source offset. This
module is its format, the writer's side in a lane and the rule of translation; `state.offsets` reads.

Invariants:
  a. A position is written only after the map's records about everything before it. So what a position covers, the map
     knows, whatever was killed in between.
  b. A segment begins with the run that was the last of the segment before, now with its length. So a run's length is
     the longest that any record says; only the last run of all is still open, and ends at the position's target offset.
  c. Translating never passes over a record: behind the end of a run the answer is its end, where the next record that
     is known to follow begins, or where it begins at the latest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import msgspec

from heliograph.mirror.positions import OFFSETS
from heliograph.types import TopicPartition

NAME = "HeliographOffsetMap"
POINT_EVERY = 1000  # records of a strand between two points: a point costs the coordinator some 100 bytes
SEGMENT_RUNS = 1000  # about 4 KB: rewritten once a second while it grows


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
    return msgspec.json.encode([NAME, about])


class Segment(NamedTuple):
    """A record of the topic. No spans: a tombstone."""

    subject: Subject
    spans: list[Span]


def read(key: bytes | None, value: bytes | None, source_alias: str) -> Segment | None:
    """None for other clusters' records and for nonsense, among it a segment that is not where its key says."""
    try:
        name, about = msgspec.json.decode(key or b"")
        if name != NAME or about["cluster"] != source_alias:
            return None
        topic, partition, id_, first = about["topic"], about["partition"], about["id"], about["from"]
        if not isinstance(topic, str) or not isinstance(partition, int) or not isinstance(id_, str):
            return None
        strand = about.get("strand", -1)
        if not isinstance(strand, int) or isinstance(strand, bool):
            return None
        subject = Subject(TopicPartition(topic, partition), UUID(id_) if id_ else None, strand)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
        return None
    spans = decode(value)
    if value is not None and (not spans or spans[0].source != first):
        return None
    return Segment(subject, spans)


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
    spans: list[Span] = []
    source = target = 0
    for at in range(0, len(numbers), 3):
        if at + 3 > len(numbers):
            return []
        source, target, length = source + numbers[at], target + numbers[at + 1], numbers[at + 2]
        if length <= 0 or source < 0 or target < 0 or max(source, target) + length > OFFSETS:
            return []
        spans.append(Span(source, target, length))
        source, target = source + length, target + length
    return spans


@dataclass(slots=True)
class Writer:
    """A lane's side: runs in, segments to be written out. `last` is the run the map already ends with."""

    last: Span | None = None
    open: list[Span] = field(default_factory=list)  # the segment that still grows
    full: list[list[Span]] = field(default_factory=list)  # segments that are complete and not yet known to be written
    dirty: bool = False  # the open segment has a run that no written record has
    pending: bool = False  # segments are on their way to the topic: positions wait (invariant a)

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
        if not self.open and self.last is not None:
            self.open.append(self.last)  # invariant b
        self.last = Span(source, target, length)
        self.open.append(self.last)
        self.dirty = True

    @staticmethod
    def _joins(last: Span, source: int, target: int) -> bool:
        return last.source + last.length == source and last.target + last.length == target

    def take(self) -> list[list[Span]]:
        """The segments to write now; `written` must follow."""
        if not self.dirty and not self.full:
            return []
        segments = [*self.full, list(self.open)]
        self.full, self.dirty, self.pending = [], False, True
        return segments

    def written(self, ok: bool, segments: list[list[Span]]) -> None:
        self.pending = False
        if not ok:
            self.full[:0] = segments
            self.dirty = True


def _continues(known: Span, span: Span) -> bool:
    """Inside the known run or right behind it."""
    same_distance = span.target - span.source == known.target - known.source
    return same_distance and known.source <= span.source <= known.source + known.length


def _precedes(first: Span, second: Span) -> bool:
    return first.source + first.length <= second.source and first.target + first.length <= second.target


class Runs:
    """The reader's side: all runs of one partition, in order of source offsets."""

    def __init__(self) -> None:
        self._sources: list[int] = []
        self._spans: list[Span] = []

    def add(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self._add(span)

    def _add(self, span: Span) -> None:
        at = bisect_right(self._sources, span.source)
        before = self._spans[at - 1] if at else None
        after = self._spans[at] if at < len(self._spans) else None
        if before is not None and _continues(before, span):
            length = max(before.length, span.source - before.source + span.length)
            if after is not None:
                length = min(length, after.source - before.source)
            self._spans[at - 1] = before._replace(length=length)
        elif (before is None or _precedes(before, span)) and (after is None or _precedes(span, after)):
            self._sources.insert(at, span.source)
            self._spans.insert(at, span)
        else:
            # It contradicts what came earlier: the partition was copied anew, and the newer word is the true one.
            keep = next((i for i, known in enumerate(self._spans) if not _precedes(known, span)), len(self._spans))
            self._spans[keep:], self._sources[keep:] = [span], [span.source]

    @property
    def last(self) -> Span | None:
        return self._spans[-1] if self._spans else None

    def __len__(self) -> int:
        return len(self._spans)

    def spans(self, end_target: int) -> list[Span]:
        """All, the last as long as a position with this target offset says."""
        last = self.open_to(end_target)
        return [*self._spans[:-1], last] if last is not None else []

    def open_to(self, target: int) -> Span | None:
        """The last run, as long as a position with this target offset says it is by now."""
        last = self.last
        if last is None or target < 0:
            return last
        return last._replace(length=max(last.length, target - last.target))

    def behind(self, source: int) -> int:
        """Of points: before which target offset there is no record at or after this source offset."""
        at = bisect_right(self._sources, source)
        if at == 0:
            return 0  # rule D may have passed over the first ones without learning their places: they have no point
        span = self._spans[at - 1]
        return span.target + min(source - span.source, span.length)

    def translate(self, source: int, end_target: int) -> int | None:
        """Where the target has the first record at or after this source offset. None: nobody knows (it was copied
        before the map began). `end_target` is the position's: where the open run ends."""
        at = bisect_right(self._sources, source)
        if at == 0:
            # Nothing before the first run was ever copied if it began a new remote partition.
            return 0 if self._spans and self._spans[0].target == 0 else None
        span = self._spans[at - 1]
        if at == len(self._spans):
            span = self.open_to(end_target) or span
        return span.target + min(source - span.source, span.length)

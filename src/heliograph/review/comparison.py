"""A source partition and its copy compared record by record, by the offset map: key, value, headers, timestamp.

Reads both sides once, in order, holding one fetched stretch of each. What may be missing without harm is known: what
retention or compaction took on either side since, aborted transactions and markers. What may not: a record of the
source behind the map's beginning that no run of the map has, unless it was part of a transaction; and a record that a
run has and the copy does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from heliograph.batch import Header, Record, decode, headers
from heliograph.errors import BatchError
from heliograph.mirror.offsetmap import Span
from heliograph.topiclog import fetch_below
from heliograph.types import TopicPartition
from heliograph.wire import Fetched

FETCH_BYTES = 4 << 20


class Fetching(Protocol):
    """What is needed of a `Client`."""

    def fetch(self, tp: TopicPartition, offset: int, *, max_bytes: int = ...) -> Fetched: ...


@dataclass(slots=True)
class Compared:
    """`first`: the source offset at which it first went wrong."""

    same: int = 0
    changed: int = 0
    missing: int = 0
    first: int | None = None

    def wrong(self, offset: int) -> None:
        self.first = offset if self.first is None else self.first

    @property
    def problem(self) -> str:
        parts = {"missing": self.missing, "changed": self.changed}
        words = ", ".join(f"{count:,} records {word}" for word, count in parts.items() if count)
        return f"{words}, first at source offset {self.first}" if words else ""


def stretch(client: Fetching, tp: TopicPartition, first: int, end: int) -> Iterator[tuple[Record, Header]]:
    """Every record from `first` to before `end`, each with the header of its batch."""
    at = first
    while at < end:
        before, place = at, 0
        found = fetch_below(end, partial(client.fetch, tp, at, max_bytes=FETCH_BYTES), offset=at)
        fetched = memoryview(found.records)
        for head in headers(fetched):
            if not head.control:
                batch = fetched[place : place + head.size_bytes]
                yield from ((record, head) for record in decode(batch) if before <= record.offset < end)
            at, place = max(at, head.last_offset + 1), place + head.size_bytes
        if at == before:
            if len(fetched):
                raise BatchError(f"{tp} at {at}: not a batch of today's format, so it is not compared")
            return  # holes up to the end


def compare(
    source: Iterator[tuple[Record, Header]],
    target: Iterator[tuple[Record, Header]],
    spans: Sequence[Span],
    *,
    target_start: int = 0,
    compacted: bool = False,
    passed_over: Collection[int] = (),
) -> Compared:
    """`spans`: the map, in order. `target_start`: where the copy's log begins; `compacted`: it may have lost more.
    `passed_over`: source offsets that the target refused, which have their own account (`review.audit`)."""
    found = Compared()
    copies = _Copies(target)
    at = 0
    for record, head in source:
        while at < len(spans) and record.offset >= spans[at].source + spans[at].length:
            at += 1
        span = spans[at] if at < len(spans) and record.offset >= spans[at].source else None
        if span is None:
            if not head.transactional and record.offset not in passed_over:
                found.missing += 1
                found.wrong(record.offset)
            continue
        place = span.target + record.offset - span.source
        copy = copies.at(place)
        if copy is not None and _alike(record, *copy):
            found.same += 1
        elif copy is not None:
            found.changed += 1
            found.wrong(record.offset)
        elif place >= target_start and not compacted:
            found.missing += 1
            found.wrong(record.offset)
    return found


class _Copies:
    """The copy's records, asked for by rising offsets."""

    def __init__(self, records: Iterator[tuple[Record, Header]]) -> None:
        self._records = records
        self._next = next(records, None)

    def at(self, offset: int) -> tuple[Record, Header] | None:
        while self._next is not None and self._next[0].offset < offset:
            self._next = next(self._records, None)
        return self._next if self._next is not None and self._next[0].offset == offset else None


def _alike(ours: Record, theirs: Record, head: Header) -> bool:
    same = (ours.key, ours.value, ours.headers) == (theirs.key, theirs.value, theirs.headers)
    # Where the target's topic stamps records itself, their time is not ours.
    return same and (head.log_append_time or ours.timestamp == theirs.timestamp)

"""The messages of a topic's partitions, in order: fetched, unpacked, without markers and what transactions aborted.

Answers for whatever a broker may hand out: every codec, formats of before 0.11, holes, batches that cannot be read
(named, and passed over). Does not decide where to begin or end, and changes nothing on the cluster: it is in no group
and commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from heliograph.batch import columns as c
from heliograph.batch import decode, legacy, scan
from heliograph.batch.header import LOG_APPEND_TIME
from heliograph.batch.records import Headers
from heliograph.errors import BatchError, BrokerError
from heliograph.topiclog import fetch_below
from heliograph.types import Isolation, TopicPartition
from heliograph.wire import Fetched, Metadata
from heliograph.wire.codes import OFFSET_OUT_OF_RANGE

# What is held of all partitions together while they are merged, and of one: a broker gives a whole batch in any case.
HELD_BYTES = 64 << 20
MOST_BYTES = 1 << 20
LEAST_BYTES = 64 << 10


class Reading(Protocol):
    """What is needed of a `Client`."""

    @property
    def alias(self) -> str: ...

    def metadata(self, topics: Sequence[str] | None = ...) -> Metadata: ...

    def list_offsets(
        self, tps: Iterable[TopicPartition], *, at: Literal["earliest", "latest"] | int, isolation: Isolation = ...
    ) -> dict[TopicPartition, int | BrokerError]: ...

    def fetch(
        self, tp: TopicPartition, offset: int, *, max_bytes: int = ..., isolation: Isolation = ...
    ) -> Fetched: ...


@dataclass(frozen=True, slots=True)
class Message:
    partition: int
    offset: int
    timestamp_ms: int  # -1: it has none
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    appended: bool = False  # its time is that of the append (LogAppendTime), not its producer's


@dataclass(slots=True)
class Watch:
    """What became of the reading besides messages: `note` is told in words, `tick` called with each step."""

    note: Callable[[str], None] = lambda words: None
    tick: Callable[[], None] = lambda: None
    looked_at: int = 0  # offsets
    unreadable: int = 0  # batches that were passed over


@dataclass(frozen=True, slots=True)
class Reader:
    client: Reading
    topic: str
    isolation: Isolation = "read_committed"
    fetch_bytes: int = MOST_BYTES
    watch: Watch = field(default_factory=Watch)

    def read(self, partition: int, first: int, end: int) -> Iterator[Message]:
        """From `first` to before `end`. What nobody can read any more is noted and passed over."""
        tp = TopicPartition(self.topic, partition)
        at = first
        while at < end:
            fetched = self._fetch(tp, at, end)
            if fetched is None:
                after = self._begins(tp, at)
            else:
                view, found = self._walk(fetched, at)
                for row in found.rows:
                    yield from self._messages(tp, view, row, at, end)
                after = found.next_offset
                if found.problem:  # nobody knows where the next batch begins
                    self.watch.note(f"{tp} cannot be read behind offset {after}: {scan.refuse(found)}")
                    self.watch.unreadable += 1
                    after = at
            self.watch.looked_at += min(max(after, at), end) - at
            self.watch.tick()
            if after <= at:
                return  # nothing but holes up to the end
            at = after

    def _fetch(self, tp: TopicPartition, at: int, end: int) -> Fetched | None:
        """None: the log does not have this offset (any more)."""

        def fetch() -> Fetched:
            return self.client.fetch(tp, at, max_bytes=self.fetch_bytes, isolation=self.isolation)

        try:
            return fetch_below(end, fetch, offset=at, isolation=self.isolation)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            return None

    def _begins(self, tp: TopicPartition, at: int) -> int:
        start = self.client.list_offsets([tp], at="earliest")[tp]
        if isinstance(start, BrokerError):
            raise start
        if start > at:
            self.watch.note(f"{tp}: offsets {at} to {start - 1} were deleted meanwhile")
        else:
            self.watch.note(f"{tp} does not have offset {at} any more: it was cut, or made anew")
        return start

    def _walk(self, fetched: Fetched, at: int) -> tuple[memoryview, scan.Found]:
        committed = self.isolation == "read_committed"
        view = memoryview(fetched.records)
        found = scan.walk(view, at, fetched.aborted, committed, True, len(view) + 1)
        if found is not None and found.problem == c.OLD_FORMAT:
            view = memoryview(legacy.upgrade(view, True))
            found = scan.walk(view, at, fetched.aborted, committed, True, len(view) + 1)
        assert found is not None  # a buffer has fewer batches than bytes
        return view, found

    def _messages(self, tp: TopicPartition, view: memoryview, row: scan.Row, first: int, end: int) -> Iterator[Message]:
        batch = view[row[c.AT_POS] : row[c.AT_POS] + row[c.AT_SIZE]]
        try:
            records = decode(batch)
        except BatchError as error:
            self.watch.unreadable += 1
            self.watch.note(f"{tp}: offsets {row[c.AT_BASE]} to {row[c.AT_LAST]} cannot be read: {error}")
            return
        appended = bool(row[c.AT_FLAGS] & LOG_APPEND_TIME)
        for one in records:
            if first <= one.offset < end:
                yield Message(tp.partition, one.offset, one.timestamp, one.key, one.value, one.headers, appended)


def fetch_bytes(partitions: int) -> int:
    """Of one fetch, where so many partitions are read at once."""
    return max(LEAST_BYTES, min(MOST_BYTES, HELD_BYTES // max(partitions, 1)))

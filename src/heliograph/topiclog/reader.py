"""A topic that holds state, read to its end again and again by whoever folds its records.

Invariants:
  a. `read` ends without an error only when every record up to the ends, as they were when it began, was handed on. A
     leader that does not serve them yet (its high watermark lags after an election) is waited for, then an error names
     the offset. Nothing is skipped but what cannot be decoded, and that is named.
  b. What was handed on is the beginning of the log as it is. Where that stops being true, the topic is read again from
     its start, and `on_refold` is called before the first record: callers begin a new fold and put it in the place of
     the old one when `read` has ended. That is so when the topic was recreated (another topic id), when its end or the
     end of the leader epoch it was read in went back (a tail lost in an unclean election), when retention took records
     that were not read, and when a transaction was committed whose records had been left out.
  c. Records come in the order of their offsets, those of aborted transactions never. Records behind an open transaction
     do come, since our own writes must be read back; the open ones are left out until they are committed (then b).
  d. Of a record that was stored twice because its answer was lost, the first is handed on (`writer`, invariant c).
  e. Tombstones are records like any other: they are handed on.

Not thread-safe: callers lock, since they fold.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import structlog

from heliograph.batch import Record
from heliograph.errors import BrokerError
from heliograph.topiclog.batches import Batch, batches, require_no_bytes
from heliograph.topiclog.writer import WRITE_HEADER
from heliograph.types import Isolation, TopicPartition
from heliograph.wire import Client, Fetched
from heliograph.wire.backoff import Backoff
from heliograph.wire.calls import sleep
from heliograph.wire.codes import (
    INCONSISTENT_TOPIC_ID,
    OFFSET_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    broker_error,
)

log = structlog.get_logger()

FETCH_BYTES = 4 << 20
WAIT_S = 5.0  # for a new leader's high watermark: followers fetch every half second at most
REFOLDS = 3  # in one read: a topic that is recreated again and again is an error, not a loop
WRITES_KEPT = 50_000  # names of writes; a repeat comes within the timeout of a call, so far fewer would do


def fetch_below(
    end: int, fetch: Callable[[], Fetched], *, offset: int, isolation: Isolation = "read_uncommitted"
) -> Fetched:
    """One fetch at an offset below a known end of the log. Without records it says that there are none up to that end:
    a leader whose high watermark is still below it is asked again for WAIT_S, then OFFSET_NOT_AVAILABLE is raised."""
    deadline, pause = time.monotonic() + WAIT_S, Backoff()
    while True:
        found = fetch()
        if len(found.records):
            return found
        readable = found.last_stable_offset if isolation == "read_committed" else found.high_watermark
        if readable >= end:
            return found
        if not sleep(pause, deadline):
            raise broker_error(
                OFFSET_NOT_AVAILABLE,
                f"the log ended at {end}, and after {WAIT_S:g} s its leader serves it only up to {readable}",
                topic=found.topic,
                partition=found.partition,
                offset=offset,
            )


class _Refold(Exception):
    """Invariant b. `kept`: of one partition, how much of what was read is still there; None: nothing of any."""

    def __init__(self, why: str, kept: tuple[int, int] | None = None) -> None:
        super().__init__(why)
        self.kept = kept


@dataclass(slots=True)
class _Progress:
    """Of one partition."""

    next_offset: int = 0
    leader_epoch: int = -1  # in which it was read, or an earlier one
    open: set[int] = field(default_factory=set)  # producer ids of transactions that were left out (invariant c)


class _Waiting(NamedTuple):
    record: Record
    producer_id: int


class TopicReader:
    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self.topic = topic
        self.partitions = 0  # as of the last look at the metadata
        self._visible_id: UUID | None = None  # of the same look; None: the brokers have no topic ids
        self._topic_id: UUID | None = None  # of the topic that was read
        self._epochs: dict[int, int] = {}  # the leaders', as of the same look
        self._progress: dict[int, _Progress] = {}
        self._reread: dict[int, int] = {}
        self._writes: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # partition and offset of each
        self._named: set[tuple[int, int]] = set()
        self.on_refold: Callable[[], None] = lambda: None
        self.on_repeat: Callable[[int, Record], None] = lambda partition, record: None

    def look(self) -> bool:
        """Whether the topic is visible in the metadata."""
        topic = self._client.metadata([self.topic]).topics.get(self.topic)
        if topic is None or topic.error or not topic.partitions:
            return False
        self.partitions, self._visible_id = len(topic.partitions), topic.id
        if topic.id is not None:
            self._epochs = {number: part.leader_epoch for number, part in topic.partitions.items()}
        return True

    def restart(self) -> None:
        """The next read begins at the start of the topic."""
        for number, at in self._progress.items():
            self._reread[number] = max(at.next_offset, self._reread.get(number, 0))
        self._progress = {}
        self._writes.clear()

    def is_reread(self, partition: int, offset: int) -> bool:
        """Whether the record was handed on before the last refold: what was said of it needs no second line."""
        return offset < self._reread.get(partition, 0)

    def read(self, partitions: Iterable[int] | None = None) -> Iterator[tuple[int, Record]]:
        """Every record since the last call with its partition, up to the ends as they are now. None: all partitions."""
        wanted = None if partitions is None else list(partitions)
        for _ in range(1 + REFOLDS):
            try:
                self._require_same_topic()
                yield from self._to_the_ends(range(self.partitions) if wanted is None else wanted)
                return
            except _Refold as found:
                self._refold(found)
        text = f"recreated or truncated {REFOLDS + 1} times while it was read"
        raise broker_error(OFFSET_NOT_AVAILABLE, text, cluster=self._client.alias, topic=self.topic)

    def stretch(self, partition: int, first: int, end: int) -> Iterator[Record]:
        """The records of a stretch, whatever was read before; that is left as it is."""
        reader = TopicReader(self._client, self.topic)
        reader._progress[partition] = _Progress(first)
        try:
            for record in reader._read(TopicPartition(self.topic, partition), end):
                if record.offset < end:
                    yield record
        except _Refold as found:
            error = f"offset {first} is not in the log any more: {found}"
            raise broker_error(OFFSET_OUT_OF_RANGE, error, topic=self.topic, partition=partition) from found

    def _refold(self, found: _Refold) -> None:
        log.warning(
            "state topic is read again from its start", topic=self.topic, cluster=self._client.alias, why=str(found)
        )
        self.restart()
        self.on_refold()
        if found.kept is None:
            self._reread = {}
        else:
            partition, kept = found.kept
            self._reread[partition] = min(self._reread.get(partition, 0), kept)

    def _require_same_topic(self) -> None:
        if not self.look() or self._visible_id is None:
            return  # a topic that is not visible is waited for by list_offsets, which then names it
        before, self._topic_id = self._topic_id, self._visible_id
        if before not in (None, self._topic_id):
            raise _Refold("the topic was recreated")

    def _to_the_ends(self, partitions: Iterable[int]) -> Iterator[tuple[int, Record]]:
        tps = [TopicPartition(self.topic, number) for number in partitions]
        self._require_untruncated(tps)
        ends = self._client.list_offsets(tps, at="latest")
        for tp in tps:
            end = ends[tp]
            if isinstance(end, BrokerError):
                raise end
            read = self._progress.get(tp.partition, _Progress()).next_offset
            if end < read:
                raise _Refold(f"partition {tp.partition} ended at {read} and ends at {end}", (tp.partition, end))
        for tp in tps:
            end = ends[tp]
            assert isinstance(end, int)
            # Before anything is handed on: a read that ends with an error, or halfway, has read in this epoch as well.
            progress = self._progress.setdefault(tp.partition, _Progress())
            progress.leader_epoch = max(progress.leader_epoch, self._epochs.get(tp.partition, -1))
            for record in self._read(tp, end):
                if self._is_first(tp.partition, record):
                    yield tp.partition, record

    def _require_untruncated(self, tps: Iterable[TopicPartition]) -> None:
        """A tail that was lost and has grown again beyond what was read shows in the leader epoch alone (KIP-320)."""
        doubtful: dict[TopicPartition, int] = {}
        for tp in tps:
            at = self._progress.get(tp.partition)
            if at is not None and at.next_offset and 0 <= at.leader_epoch < self._epochs.get(tp.partition, -1):
                doubtful[tp] = at.leader_epoch
        ends = self._client.epoch_end_offsets(doubtful) if doubtful else {}
        for tp, end in ends.items():
            if isinstance(end, BrokerError):
                raise end
            read = self._progress[tp.partition].next_offset
            if 0 <= end < read:
                why = f"partition {tp.partition} was read to {read}, and its leader kept it to {end}"
                raise _Refold(why, (tp.partition, end))

    def _read(self, tp: TopicPartition, end: int) -> Iterator[Record]:
        progress = self._progress[tp.partition]
        waiting: deque[_Waiting] = deque()
        at = progress.next_offset
        while at < end:
            at, fetched = self._fetch(tp, at, end)
            before = at
            for batch in batches(fetched.records):
                if batch.next_offset <= at:
                    continue
                self._take(tp, batch, at, progress, waiting)
                at = batch.next_offset
                while waiting and waiting[0].producer_id < 0:
                    yield waiting.popleft().record
                progress.next_offset = waiting[0].record.offset if waiting else at
            if at == before:
                require_no_bytes(fetched.records, self._client.alias, tp, at)
                at = end  # nothing but holes up to the end (`fetch_below`)
        if not waiting:
            progress.next_offset = max(at, progress.next_offset)
        yield from self._pass_open(progress, waiting, at)

    def _take(self, tp: TopicPartition, batch: Batch, at: int, progress: _Progress, waiting: deque[_Waiting]) -> None:
        """Records of open transactions wait, and all behind them (invariant c), until a marker decides."""
        if batch.problem:
            self._name(tp, batch)
        for record in batch.records:
            if record.offset >= at:
                waiting.append(_Waiting(record, batch.producer_id))
        if batch.marker is None:
            return
        if batch.marker and batch.producer_id in progress.open:
            why = f"a transaction in partition {tp.partition} that was open when it was read is committed now"
            raise _Refold(why, (tp.partition, progress.next_offset))
        progress.open.discard(batch.producer_id)
        for _ in range(len(waiting)):
            one = waiting.popleft()
            if one.producer_id != batch.producer_id:
                waiting.append(one)
            elif batch.marker:
                waiting.append(_Waiting(one.record, -1))

    def _pass_open(self, progress: _Progress, waiting: deque[_Waiting], at: int) -> Iterator[Record]:
        """At the end: what stands behind open transactions, without them. Where nothing does, they are read again."""
        if all(one.producer_id >= 0 for one in waiting):
            return
        for one in waiting:
            if one.producer_id < 0:
                yield one.record
            else:
                progress.open.add(one.producer_id)
        progress.next_offset = at

    def _fetch(self, tp: TopicPartition, at: int, end: int) -> tuple[int, Fetched]:
        """With the offset it was fetched from: the log may begin later."""
        try:
            return at, self._fetch_below(tp, at, end)
        except BrokerError as error:
            if error.code == INCONSISTENT_TOPIC_ID:
                raise _Refold("the topic was recreated") from error
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
        start = self._client.list_offsets([tp], at="earliest")[tp]
        if isinstance(start, BrokerError):
            raise start
        if start <= at:
            raise _Refold(f"partition {tp.partition} ended at {end} and does not have offset {at}", (tp.partition, at))
        if at:
            why = f"retention moved the start of partition {tp.partition} to {start}, and offset {at} was not read"
            raise _Refold(why, (tp.partition, at))
        if start >= end:  # all of it is gone
            return end, Fetched(*tp, 0, end, end, start, (), b"", offset=end)
        return start, self._fetch_below(tp, start, end)

    def _fetch_below(self, tp: TopicPartition, at: int, end: int) -> Fetched:
        def fetch() -> Fetched:
            if self._topic_id is None:
                return self._client.fetch(tp, at, max_bytes=FETCH_BYTES)
            return self._client.fetch(tp, at, max_bytes=FETCH_BYTES, topic_id=self._topic_id)

        return fetch_below(end, fetch, offset=at)

    def _is_first(self, partition: int, record: Record) -> bool:
        """Invariant d."""
        write = next((value for name, value in record.headers if name == WRITE_HEADER), None)
        if write is None:
            return True
        place = partition, record.offset
        first = self._writes.setdefault(write, place)
        if len(self._writes) > WRITES_KEPT:
            self._writes.popitem(last=False)
        if first == place:
            return True
        if not self.is_reread(partition, record.offset):
            log.warning(
                "a repeated write is passed over: the broker stored it twice",
                topic=self.topic,
                partition=partition,
                offset=record.offset,
                first=first[1],
            )
        self.on_repeat(partition, record)
        return False

    def _name(self, tp: TopicPartition, batch: Batch) -> None:
        if (tp.partition, batch.first_offset) in self._named:
            return
        self._named.add((tp.partition, batch.first_offset))
        log.warning(
            "records that cannot be decoded are passed over",
            topic=tp.topic,
            partition=tp.partition,
            offsets=f"{batch.first_offset}-{batch.next_offset - 1}",
            why=batch.problem,
            fix="write the state of their keys again, if they were Heliograph's",
        )

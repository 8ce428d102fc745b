"""A cluster in memory, as state topics meet it: high watermarks that lag, topics recreated, tails lost, compaction,
retention, transactions, producer ids, and answers that are lost. No sockets, no time.

It does what Kafka does where it matters here: a batch with a known sequence is stored once; `latest` is the high
watermark; a fetch shows nothing beyond it; compaction keeps the last record of each key, with its offset.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.batch import Header, Record, decode, encode
from heliograph.batch.header import CONTROL, TRANSACTIONAL
from heliograph.errors import BrokerError
from heliograph.types import TopicPartition
from heliograph.wire import Fetched, Metadata, NewTopic, PartitionMeta, Produced, TopicMeta, broker_error
from heliograph.wire.codes import (
    INCONSISTENT_TOPIC_ID,
    OFFSET_OUT_OF_RANGE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
)


@dataclass(slots=True)
class Log:
    """One partition."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epoch: int = 0
    epoch_ends: dict[int, int] = field(default_factory=dict)  # of epochs that are over
    producers: dict[int, dict[int, int]] = field(default_factory=dict)  # id -> first sequence -> base offset
    lag: list[int] = field(default_factory=list)  # high watermarks that the next fetches see


class Brokers:
    """Is to a test what a `Client` is to the code."""

    alias = "us"

    def __init__(self, **topics: int) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.ids: dict[str, uuid.UUID] = {}
        self.sent = 0
        self.lost_answers: list[Callable[[], object]] = []  # what happens before the next batches are sent again
        self.between_sends: Callable[[], object] = lambda: None  # what another client does before the next batch
        self.remembers_producers = True
        self._next_producer = 7000
        for topic, partitions in topics.items():
            self.make(topic.replace("_", "-"), partitions)

    # -- what happens to a cluster

    def make(self, topic: str, partitions: int = 1) -> None:
        """Again under the same name: recreated."""
        for tp in [tp for tp in self.logs if tp.topic == topic]:
            del self.logs[tp]
        self.ids[topic] = uuid.uuid4()
        self.logs |= {TopicPartition(topic, number): Log() for number in range(partitions)}

    def truncate(self, tp: TopicPartition, end: int) -> None:
        """An unclean election: the new leader has the log up to here."""
        log = self.logs[tp]
        self.elect(tp)
        heads = [Header.parse(one) for one in log.batches]
        log.end = max(log.start, min([end, log.end, *(one.base_offset for one in heads if one.last_offset >= end)]))
        log.batches = [one for one, head in zip(log.batches, heads, strict=True) if head.last_offset < log.end]
        log.epoch_ends = {epoch: min(at, log.end) for epoch, at in log.epoch_ends.items()}
        log.producers = {}

    def elect(self, tp: TopicPartition) -> None:
        log = self.logs[tp]
        log.epoch_ends[log.epoch] = log.end
        log.epoch += 1

    def compact(self, tp: TopicPartition, *, below: int, tombstones: bool = False) -> None:
        """What lies below an offset: the last record of each key stays (`tombstones`: and those go as well)."""
        log = self.logs[tp]
        last = {record.key: record.offset for record in self.records(tp)}
        kept = []
        for batch in log.batches:
            head = Header.parse(batch)
            if head.control or head.last_offset >= below:
                kept.append(batch)
                continue
            records = [
                one for one in decode(batch) if last[one.key] == one.offset and not (tombstones and one.value is None)
            ]
            if records:
                kept.append(_again(head, records))
        log.batches = kept

    def delete_records(self, tp: TopicPartition, below: int) -> None:
        log = self.logs[tp]
        log.start = max(log.start, min(below, log.end))
        log.batches = [one for one in log.batches if Header.parse(one).last_offset >= log.start]

    def append(self, tp: TopicPartition, *records: Record, **batch: int) -> None:
        """By another producer."""
        self._store(tp, encode([_numbered(n, one) for n, one in enumerate(records)], **batch))

    def append_in_transaction(self, tp: TopicPartition, producer_id: int, *records: Record) -> None:
        self.append(tp, *records, producer_id=producer_id, producer_epoch=0, attributes=TRANSACTIONAL)

    def end_transaction(self, tp: TopicPartition, producer_id: int, *, commit: bool) -> None:
        marker = Record(0, 0, struct.pack(">hh", 0, int(commit)), b"\x00" * 6)
        self.append(tp, marker, producer_id=producer_id, producer_epoch=0, attributes=TRANSACTIONAL | CONTROL)

    def records(self, tp: TopicPartition) -> list[Record]:
        """All that the log holds, those of aborted transactions too."""
        batches = [one for one in self.logs[tp].batches if not Header.parse(one).control]
        return [record for one in batches for record in decode(one)]

    def _store(self, tp: TopicPartition, batch: bytes) -> int:
        log, base = self.logs[tp], self.logs[tp].end
        log.batches.append(struct.pack(">qii", base, len(batch) - 12, log.epoch) + batch[16:])
        log.end = base + Header.parse(batch).last_offset_delta + 1
        return base

    # -- a client's calls

    def metadata(self, topics: Sequence[str] | None = None, **_more: object) -> Metadata:
        found = {}
        for name in self.ids if topics is None else topics:
            parts = {
                tp.partition: PartitionMeta(0, log.epoch, (0,), (0,), 0)
                for tp, log in self.logs.items()
                if tp.topic == name
            }
            found[name] = TopicMeta(name, self.ids.get(name), False, 0 if parts else UNKNOWN_TOPIC_OR_PARTITION, parts)
        return Metadata({}, found, 0, "fake")

    def list_offsets(
        self, tps: Iterable[TopicPartition], *, at: str, **_more: object
    ) -> dict[TopicPartition, int | BrokerError]:
        found: dict[TopicPartition, int | BrokerError] = {}
        for tp in tps:
            log = self.logs.get(tp)
            unknown = broker_error(UNKNOWN_TOPIC_OR_PARTITION, topic=tp.topic, partition=tp.partition)
            found[tp] = unknown if log is None else log.start if at == "earliest" else log.end
        return found

    def epoch_end_offsets(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | BrokerError]:
        return {tp: self.logs[tp].epoch_ends.get(epoch, self.logs[tp].end) for tp, epoch in epochs.items()}

    def fetch(
        self, tp: TopicPartition, offset: int, *, max_bytes: int = 1 << 20, topic_id: uuid.UUID | None = None
    ) -> Fetched:
        if topic_id is not None and self.ids.get(tp.topic) != topic_id:
            raise broker_error(INCONSISTENT_TOPIC_ID, topic=tp.topic, partition=tp.partition)
        log = self.logs[tp]
        if not log.start <= offset <= log.end:
            raise broker_error(OFFSET_OUT_OF_RANGE, topic=tp.topic, partition=tp.partition)
        watermark = min(log.lag.pop(0), log.end) if log.lag else log.end
        shown = [one for one in log.batches if offset <= Header.parse(one).last_offset < watermark][:2]
        return Fetched(*tp, 0, watermark, watermark, log.start, (), b"".join(shown), offset=offset)

    def init_producer_ids(self, count: int, **_more: object) -> list[tuple[int, int]]:
        first, self._next_producer = self._next_producer, self._next_producer + count
        return [(first + n, 0) for n in range(count)]

    def produce(self, tp: TopicPartition, batch: bytes, **_more: object) -> Produced:
        """As `Client.produce`: sent again with the same bytes while the answer is lost."""
        before, self.between_sends = self.between_sends, lambda: None
        before()
        while True:
            base = self._send(tp, batch)
            if not self.lost_answers:
                return Produced(*tp, 0, base, -1, self.logs[tp].start)
            self.lost_answers.pop(0)()

    def _send(self, tp: TopicPartition, batch: bytes) -> int:
        self.sent += 1
        if tp not in self.logs:
            raise broker_error(UNKNOWN_TOPIC_OR_PARTITION, topic=tp.topic, partition=tp.partition)
        head = Header.parse(batch)
        known = self.logs[tp].producers.setdefault(head.producer_id, {})
        if head.producer_id >= 0 and head.base_sequence in known and self.remembers_producers:
            return known[head.base_sequence]
        base = self._store(tp, batch)
        known[head.base_sequence] = base
        return base

    def create_topics(self, specs: Sequence[NewTopic], **_more: object) -> dict[str, BrokerError | None]:
        found: dict[str, BrokerError | None] = {}
        for spec in specs:
            there = spec.name in self.ids
            found[spec.name] = broker_error(TOPIC_ALREADY_EXISTS, topic=spec.name) if there else None
            if not there:
                self.make(spec.name, spec.partitions)
        return found

    def cluster_id(self) -> str:
        return "fake"

    def close(self) -> None: ...

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_error: object) -> None: ...


def _numbered(offset: int, record: Record) -> Record:
    return Record(offset, record.timestamp, record.key, record.value, record.headers)


def _again(head: Header, records: Sequence[Record]) -> bytes:
    """The batch with these records left, its offsets as they were."""
    first = records[0].offset
    return encode(
        records,
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence + first - head.base_offset if head.base_sequence >= 0 else -1,
        attributes=head.attributes,
        last_offset_delta=head.last_offset - first,
        leader_epoch=head.leader_epoch,
    )

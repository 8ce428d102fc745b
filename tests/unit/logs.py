"""A cluster of logs in memory, as `heliograph.messages` asks for one: batches appended as bytes, fetched as a broker
would, with its errors. No sockets, no time."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from heliograph.batch import Header, Record, encode
from heliograph.errors import BrokerError
from heliograph.types import TopicPartition
from heliograph.wire import Fetched, Metadata, NewTopic, PartitionMeta, Produced, TopicMeta, broker_error
from heliograph.wire.codes import (
    MESSAGE_TOO_LARGE,
    OFFSET_OUT_OF_RANGE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
)


@dataclass(slots=True)
class Log:
    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    stable: int | None = None  # the last stable offset, where a transaction is open
    aborted: tuple[tuple[int, int], ...] = ()


class Logs:
    """Is to a test what a `Client` is to the code."""

    alias = "us"

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.ids: dict[str, uuid.UUID] = {}
        self.most_bytes, self.refused = 1 << 20, 0
        self.fetches: list[tuple[TopicPartition, int]] = []
        self.produced: list[Header] = []
        self.troubles: list[BaseException] = []  # raised by the next calls of `produce`
        for topic, partitions in (topics or {}).items():
            self.make(topic, partitions)

    def make(self, topic: str, partitions: int = 1) -> None:
        self.ids[topic] = uuid.uuid4()
        for number in range(partitions):
            self.logs[TopicPartition(topic, number)] = Log()

    def append(self, topic: str, records: Iterable[Record], partition: int = 0, **marks: Any) -> None:
        """One batch; offsets as the records say, or one after the other from the log's end if all say 0."""
        log, given = self.logs[TopicPartition(topic, partition)], list(records)
        if len({record.offset for record in given}) < len(given) or (given[0].offset == 0 and log.end):
            given = [Record(log.end + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(given)]
        self.put(topic, encode(given, **marks), partition)

    def put(self, topic: str, batch: bytes, partition: int = 0) -> None:
        log = self.logs[TopicPartition(topic, partition)]
        log.batches.append(batch)
        log.end = Header.parse(batch).last_offset + 1 if batch[16] == 2 else log.end + 1

    # -- a client's calls

    def metadata(self, topics: Sequence[str] | None = None, **_more: object) -> Metadata:
        names = self.ids if topics is None else topics
        found = {}
        for name in names:
            parts = {tp.partition: PartitionMeta(0, 0, (0,), (0,), 0) for tp in self.logs if tp.topic == name}
            error = 0 if parts else UNKNOWN_TOPIC_OR_PARTITION
            found[name] = TopicMeta(name, self.ids.get(name), False, error, parts)
        return Metadata({}, found, 0, "fake")

    def list_offsets(
        self, tps: Iterable[TopicPartition], *, at: str | int, isolation: str = "read_uncommitted", **_more: object
    ) -> dict[TopicPartition, int | BrokerError]:
        return {tp: self._offset(tp, at, isolation) for tp in tps}

    def _offset(self, tp: TopicPartition, at: str | int, isolation: str) -> int | BrokerError:
        log = self.logs.get(tp)
        if log is None:
            return broker_error(UNKNOWN_TOPIC_OR_PARTITION, cluster=self.alias, topic=tp.topic, partition=tp.partition)
        if at == "earliest":
            return log.start
        if at == "latest":
            return log.stable if isolation == "read_committed" and log.stable is not None else log.end
        from heliograph.batch import decode_all

        for record, _ in decode_all(b"".join(log.batches)):
            if record is not None and record.offset >= log.start and record.timestamp >= int(at):
                return record.offset
        return -1

    def fetch(
        self, tp: TopicPartition, offset: int, *, max_bytes: int = 1 << 20, isolation: str = "", **_more: object
    ) -> Fetched:
        log = self.logs[tp]
        self.fetches.append((tp, offset))
        if not log.start <= offset <= log.end:
            raise broker_error(OFFSET_OUT_OF_RANGE, cluster=self.alias, topic=tp.topic, partition=tp.partition)
        end = log.stable if isolation == "read_committed" and log.stable is not None else log.end
        data = b""
        for batch in log.batches:
            old = batch[16] != 2
            last = int.from_bytes(batch[:8], "big") if old else Header.parse(batch).last_offset
            if last < offset or last >= end:
                continue
            if data and len(data) + len(batch) > max_bytes:
                break
            data += batch
        aborted = log.aborted if isolation == "read_committed" else ()
        return Fetched(*tp, 0, log.end, end, log.start, aborted, data, offset=offset)

    def init_producer_ids(self, count: int, **_more: object) -> list[tuple[int, int]]:
        return [(7000 + i, 0) for i in range(count)]

    def produce(self, tp: TopicPartition, batch: bytes, **_more: object) -> Produced:
        if self.troubles:
            raise self.troubles.pop(0)
        if len(batch) > self.most_bytes:
            self.refused += 1
            raise broker_error(MESSAGE_TOO_LARGE, cluster=self.alias, topic=tp.topic, partition=tp.partition)
        log, head = self.logs[tp], Header.parse(batch)
        self.produced.append(head)
        base = log.end
        log.batches.append(base.to_bytes(8, "big") + batch[8:])
        log.end += head.count
        return Produced(*tp, 0, base, -1, log.start)

    def create_topics(self, specs: Sequence[NewTopic], **_more: object) -> dict[str, BrokerError | None]:
        found: dict[str, BrokerError | None] = {}
        for spec in specs:
            there = spec.name in self.ids
            found[spec.name] = broker_error(TOPIC_ALREADY_EXISTS, topic=spec.name) if there else None
            if not there:
                self.make(spec.name, spec.partitions)
        return found

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_error: object) -> None: ...

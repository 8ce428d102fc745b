"""A cluster in memory, for the classes that keep state in topics: logs with offsets, topic ids, groups' offsets. Only
what they ask a `Client` for. A test may refuse writes to a topic, delete a topic, cut a log or compact one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from heliograph.batch import Record, decode_all, encode
from heliograph.errors import BrokerError
from heliograph.types import TopicPartition
from heliograph.wire import Committed, Fetched, NewTopic
from heliograph.wire.codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, broker_error
from heliograph.wire.metadata import Metadata, PartitionMeta, TopicMeta

FETCHED = 500  # records of an answer


class MemoryCluster:
    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.topics: dict[str, tuple[UUID, int]] = {}  # id, partitions
        self.logs: dict[TopicPartition, list[Record]] = {}  # of topics that records are produced to
        self.ends: dict[TopicPartition, int] = {}  # of the others, and of logs that were compacted
        self.starts: dict[TopicPartition, int] = {}
        self.groups: dict[str, dict[TopicPartition, Committed]] = {}
        self.members: set[str] = set()  # groups that have some
        self.refused: set[str] = set()  # topics that may not be written
        self.unlisted = False  # one broker does not answer when groups are listed
        self._ids = itertools.count(1)
        self._producers = itertools.count(4000)

    # ---------------------------------------------------------------- what a test does

    def make(self, topic: str, partitions: int = 1) -> UUID:
        """Made, or made again: with another id, and empty."""
        self.topics[topic] = UUID(int=next(self._ids)), partitions
        for tp in (TopicPartition(topic, p) for p in range(partitions)):
            self.logs.pop(tp, None)
            self.starts.pop(tp, None)
            self.ends[tp] = 0
            for offsets in self.groups.values():
                offsets.pop(tp, None)  # as brokers do
        return self.topics[topic][0]

    def compact(self, topic: str) -> None:
        """The last record of each key stays, without tombstones."""
        for tp, log in self.logs.items():
            if tp.topic == topic:
                self.ends[tp] = self._end(tp)
                last = {record.key: record for record in log}
                kept = sorted(last.values(), key=lambda record: record.offset)
                self.logs[tp] = [record for record in kept if record.value is not None]

    def size(self, topic: str) -> int:
        """Bytes of keys and values."""
        logs = [log for tp, log in self.logs.items() if tp.topic == topic]
        return sum(len(r.key or b"") + len(r.value or b"") for log in logs for r in log)

    def _end(self, tp: TopicPartition) -> int:
        log = self.logs.get(tp)
        return max(self.ends.get(tp, 0), log[-1].offset + 1 if log else 0)

    # ---------------------------------------------------------------- a client's calls

    def metadata(self, names: Sequence[str]) -> Metadata:
        part = PartitionMeta(1, 0, (1,), (1,), 0)
        found = {
            name: TopicMeta(name, self.topics[name][0], False, 0, dict.fromkeys(range(self.topics[name][1]), part))
            for name in names
            if name in self.topics
        }
        return Metadata({}, found, 1, self.alias)

    def create_topics(self, specs: Iterable[NewTopic], **_: object) -> dict[str, BrokerError | None]:
        for spec in specs:
            self.make(spec.name, max(spec.partitions, 1))
        return dict.fromkeys(spec.name for spec in specs)

    def list_offsets(
        self, tps: Iterable[TopicPartition], *, at: str, **_: object
    ) -> dict[TopicPartition, int | BrokerError]:
        missing = broker_error(UNKNOWN_TOPIC_OR_PARTITION)
        where = self._end if at == "latest" else (lambda tp: self.starts.get(tp, 0))
        return {tp: where(tp) if tp.topic in self.topics else missing for tp in tps}

    def epoch_end_offsets(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {tp: self._end(tp) for tp in epochs}

    def produce(self, tp: TopicPartition, batch: Any, **_: object) -> None:
        if tp.topic in self.refused:
            raise broker_error(TOPIC_AUTHORIZATION_FAILED, topic=tp.topic)
        log = self.logs.setdefault(tp, [])
        for record, _next in decode_all(bytes(batch)):
            assert record is not None
            log.append(Record(self._end(tp), record.timestamp, record.key, record.value, record.headers))

    def fetch(self, tp: TopicPartition, at: int, **_: object) -> Fetched:
        some = [record for record in self.logs.get(tp, []) if record.offset >= at][:FETCHED]
        end = self._end(tp)
        return Fetched(*tp, 0, end, end, 0, (), encode(some) if some else b"", offset=at)

    def init_producer_ids(self, count: int) -> list[tuple[int, int]]:
        return [(next(self._producers), 0) for _ in range(count)]

    # ---------------------------------------------------------------- groups

    def list_groups(self) -> dict[str, str]:
        if self.unlisted:
            raise broker_error(15, "broker 3 does not answer")
        return dict.fromkeys(self.groups, "Stable")

    def group_offsets(self, names: Iterable[str]) -> dict[str, dict[TopicPartition, Committed]]:
        return {name: dict(self.groups.get(name, {})) for name in names}

    def describe_groups(self, names: Iterable[str]) -> dict[str, str]:
        return {name: "Stable" if name in self.members else "Empty" for name in names}

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, BrokerError | None]:
        self.groups.setdefault(group, {}).update(offsets)
        return dict.fromkeys(offsets)

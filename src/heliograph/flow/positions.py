"""The positions topic of a flow, read to its end again and again, and the claims of rule G.

Owned by the coordinator. Tasks only append to the topic (`mirror.task`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from heliograph import policy
from heliograph.batch import Record, decode_all, encode
from heliograph.errors import BrokerError, ConfigError, WireError
from heliograph.mirror.positions import Position, fold, key_of, partition_for, partition_of_key
from heliograph.mirror.positions import encode as encode_position
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Client, NewTopic
from heliograph.wire.codes import INVALID_REPLICATION_FACTOR, TOPIC_ALREADY_EXISTS

PARTITIONS = 25  # Connect's default for offset.storage.partitions
FETCH_BYTES = 4 << 20


class PositionsLog:
    def __init__(self, client: Client, source: Cluster, target: Cluster) -> None:
        self._client = client
        self._target = target.alias
        self._alias = source.alias
        self.topic = policy.positions_topic(source.alias)
        self.partitions = 0
        self.known: dict[TopicPartition, Position] = {}
        self._read_to: dict[int, int] = {}
        self._lock = threading.RLock()  # the planner's thread, and those of tasks that start again

    def ensure(self, replication_factor: int) -> None:
        """Created as Connect's worker would: compacted, 25 partitions."""
        if not self._count():
            spec = NewTopic(self.topic, PARTITIONS, replication_factor, {"cleanup.policy": "compact"})
            error = self._client.create_topics([spec])[self.topic]
            if error is not None and error.code == INVALID_REPLICATION_FACTOR:
                raise ConfigError(
                    f"{self._target}.offset.storage.replication.factor is {replication_factor}, more than "
                    f"{self._target} has brokers: {self.topic} cannot be created. Set it to the number of brokers, or 1"
                )
            if error is not None and error.code != TOPIC_ALREADY_EXISTS:
                raise error
            deadline = time.monotonic() + 30
            while not self._count():
                if time.monotonic() > deadline:
                    raise BrokerError(3, "UNKNOWN_TOPIC_OR_PARTITION", "created but not to be seen", topic=self.topic)
                time.sleep(0.05)

    def catch_up(self) -> Mapping[TopicPartition, Position]:
        """Read everything new and fold it in."""
        with self._lock:
            return self._catch_up()

    def learn(self, tp: TopicPartition, next_offset: int, sequence: int) -> None:
        """A task's own last word, which it has also written: saves reading it back."""
        with self._lock:
            known = self.known.get(tp)
            if known is not None and known.claimed and next_offset >= known.next_offset:
                self.known[tp] = replace(known, next_offset=next_offset, sequence=sequence)

    def _catch_up(self) -> Mapping[TopicPartition, Position]:
        tps = [TopicPartition(self.topic, p) for p in range(self.partitions)]
        ends = self._client.list_offsets(tps, at="latest")
        for tp in tps:
            end = ends[tp]
            if isinstance(end, WireError):
                raise end
            at = self._read_to.get(tp.partition, 0)
            if at < end:
                self._read_to[tp.partition] = self._read(tp, at, end)
        return self.known

    def claim(self, wanted: Mapping[TopicPartition, tuple[int, UUID | None]]) -> None:
        """Rule G, for partitions without a claimed position: `wanted` says where each would start."""
        if not wanted:
            return
        ids = self._client.init_producer_ids(len(wanted))
        claims = {
            tp: Position(start, producer_id, epoch, 0, topic_id)
            for (tp, (start, topic_id)), (producer_id, epoch) in zip(wanted.items(), ids, strict=True)
        }
        self.write(claims)
        self.catch_up()
        lost = {tp: self.known[tp] for tp, mine in claims.items() if self.known[tp].producer_id != mine.producer_id}
        self.write(lost)  # invariant d of positions: the winner's claim is the last of the two in the log

    def void(self, tps: Iterable[TopicPartition]) -> None:
        """Start a new era (invariant a): a position without a producer id at the beginning of the log."""
        self.write({tp: Position(0) for tp in tps})
        self.catch_up()

    def write(self, entries: Mapping[TopicPartition, Position]) -> None:
        by_partition: dict[int, list[tuple[bytes, bytes]]] = {}
        for tp, position in entries.items():
            key = key_of(self._alias, tp)
            by_partition.setdefault(partition_for(key, self.partitions), []).append((key, encode_position(position)))
        now_ms = time.time_ns() // 1_000_000
        for partition, pairs in by_partition.items():
            records = [Record(i, now_ms, key, value, ()) for i, (key, value) in enumerate(pairs)]
            self._client.produce(TopicPartition(self.topic, partition), encode(records))

    def _count(self) -> int:
        topic = self._client.metadata([self.topic]).topics.get(self.topic)
        self.partitions = len(topic.partitions) if topic and not topic.error else 0
        return self.partitions

    def _read(self, tp: TopicPartition, at: int, end: int) -> int:
        while at < end:
            part = self._client.fetch(tp, at, max_bytes=FETCH_BYTES)
            before = at
            for record, next_offset in decode_all(part.records):
                if record is not None and record.offset >= at:
                    self._fold(record)
                at = max(at, next_offset)
            if at == before:
                return end  # a compacted-away tail: nothing but holes up to the end
        return at

    def _fold(self, record: Record) -> None:
        tp = partition_of_key(record.key, self._alias) if record.key is not None else None
        if tp is None:
            return
        position = fold(self.known.get(tp), record.value)
        if position is None:
            self.known.pop(tp, None)
        else:
            self.known[tp] = position

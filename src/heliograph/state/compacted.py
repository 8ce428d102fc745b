"""A compacted topic that holds state: made when missing, appended to, read to its end again and again.

Positions, the offset map, checkpoints, heartbeats and offset syncs all live in one. What the records mean is the
caller's business, and so is nonsense among them. What a complete read is, and what a write is that counts once, is
`topiclog`'s.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from heliograph.batch import Record
from heliograph.batch.records import Headers
from heliograph.errors import BrokerError, ConfigError
from heliograph.topiclog import TopicReader, TopicWriter
from heliograph.types import STORAGE_FACTOR, Factor, Flow, TopicPartition
from heliograph.wire import Client, NewTopic
from heliograph.wire.codes import (
    INVALID_REPLICATION_FACTOR,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    broker_error,
)

BATCH_RECORDS = 2000  # per append: well below any limit of a batch's size
APPEAR_S = 30.0


class CompactedLog(TopicReader):
    def __init__(self, client: Client, topic: str) -> None:
        super().__init__(client, topic)
        self._writer = TopicWriter(client, topic)

    def ensure(self, partitions: int, factor: Factor) -> None:
        """Made as MM2 would: compacted."""
        if not self.count():
            self._create(partitions, factor)
        self._await()

    def _create(self, partitions: int, factor: Factor) -> None:
        configs = {"cleanup.policy": "compact"}
        spec = NewTopic(self.topic, partitions, factor.replicas, configs, lowerable=factor.lowerable)
        error = self._client.create_topics([spec])[self.topic]
        if error is not None and error.code == INVALID_REPLICATION_FACTOR and not error.retriable:
            raise ConfigError(
                f"{factor.key} is {factor.replicas}, more than {self._client.alias} has brokers: {self.topic} cannot "
                f"be created. Set it to the number of brokers, or 1"
            )
        if error is not None and error.code != TOPIC_ALREADY_EXISTS:
            raise error

    def _await(self) -> None:
        """Until the leader of every partition has heard of it: one broker's word that it is there is not theirs, and a
        busy one hears of new topics seconds later."""
        deadline = time.monotonic() + APPEAR_S
        while not self._known_to_leaders():
            if time.monotonic() > deadline:
                why = f"created, but its leaders do not know it after {APPEAR_S:g} s"
                raise broker_error(UNKNOWN_TOPIC_OR_PARTITION, why, cluster=self._client.alias, topic=self.topic)
            time.sleep(0.05)

    def _known_to_leaders(self) -> bool:
        tps = [TopicPartition(self.topic, p) for p in range(self.partitions or self.count())]
        found = self._client.list_offsets(tps, at="latest").values()
        return bool(tps) and not any(
            isinstance(end, BrokerError) and end.code == UNKNOWN_TOPIC_OR_PARTITION for end in found
        )

    def ensure_storage(self, flow: Flow) -> None:
        """Made as Connect makes its offset storage."""
        self.ensure(flow.offset_storage_partitions, flow.factor(STORAGE_FACTOR))

    def count(self) -> int:
        if not self.look():
            self.partitions = 0
        return self.partitions

    def append(
        self,
        partition: int,
        pairs: Sequence[tuple[bytes, bytes | None]],
        timestamp_ms: int = 0,
        headers: Headers = (),
    ) -> None:
        """`headers`: of every record. A batch is stored once (`TopicWriter`); several are appended one by one."""
        now_ms = timestamp_ms or time.time_ns() // 1_000_000
        for begin in range(0, len(pairs), BATCH_RECORDS):
            part = pairs[begin : begin + BATCH_RECORDS]
            self._writer.append(partition, [Record(0, now_ms, key, value, headers) for key, value in part])

    def news(self, partition: int | None = None) -> Iterator[tuple[int, Record]]:
        """Every record since the last call with its partition (or of one), up to the ends as they are now. After a
        refold all of them come again; `on_refold` was called before."""
        return self.read(None if partition is None else (partition,))

    def between(self, partition: int, first: int, end: int) -> list[Record]:
        """The records of a stretch, whatever was read before; that is left as it is."""
        return list(self.stretch(partition, first, end))

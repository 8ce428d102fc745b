"""The positions topic of a flow, read to its end again and again, and the claims of rule G.

Owned by the coordinator. Tasks only append to the topic (`mirror.task`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from heliograph import policy
from heliograph.batch import Record
from heliograph.flow.compacted import CompactedLog
from heliograph.mirror.positions import Position, encode, fold, key_of, partition_for, partition_of_key
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client


class PositionsLog:
    def __init__(self, client: Client, flow: Flow) -> None:
        self._client = client
        self._flow = flow
        self._alias = flow.source.alias
        self._log = CompactedLog(client, flow.positions_topic or policy.positions_topic(self._alias))
        self.known: dict[TopicPartition, Position] = {}
        self._lock = threading.RLock()  # the planner's thread, and those of tasks that start again

    @property
    def topic(self) -> str:
        return self._log.topic

    @property
    def partitions(self) -> int:
        return self._log.partitions

    def ensure(self) -> None:
        self._log.ensure_storage(self._flow)

    def catch_up(self) -> Mapping[TopicPartition, Position]:
        """Read everything new and fold it in."""
        with self._lock:
            for record in self._log.news():
                self._fold(record)
            return self.known

    def learn(self, tp: TopicPartition, next_offset: int, sequence: int, target: int) -> None:
        """A task's own last word, which it has also written: saves reading it back."""
        with self._lock:
            known = self.known.get(tp)
            if known is not None and known.claimed and next_offset >= known.next_offset:
                self.known[tp] = replace(known, next_offset=next_offset, sequence=sequence, target=target)

    def claim(self, wanted: Mapping[TopicPartition, tuple[int, UUID | None, int]]) -> None:
        """Rule G, for partitions without a claimed position: `wanted` says where each would start, and where its remote
        partition ends now: what the flow appends will lie behind it."""
        if not wanted:
            return
        ids = self._client.init_producer_ids(len(wanted))
        claims = {
            tp: Position(start, producer_id, epoch, 0, topic_id, target)
            for (tp, (start, topic_id, target)), (producer_id, epoch) in zip(wanted.items(), ids, strict=True)
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
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for tp, position in entries.items():
            key = key_of(self._alias, tp)
            by_partition.setdefault(partition_for(key, self.partitions), []).append((key, encode(position)))
        for partition, pairs in by_partition.items():
            self._log.append(partition, pairs)

    def _fold(self, record: Record) -> None:
        tp = partition_of_key(record.key, self._alias) if record.key is not None else None
        if tp is None:
            return
        position = fold(self.known.get(tp), record.value)
        if position is None:
            self.known.pop(tp, None)
        else:
            self.known[tp] = position

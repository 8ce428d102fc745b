"""The benchmark's own eyes on a cluster: end offsets, records to compare, topics made and deleted.

Records are read by confluent-kafka, so that nothing of Heliograph's decides whether a copy is exact. End offsets are
asked for on a bare connection: librdkafka remembers for a while that a topic was missing, and a topic that appears is
just what is waited for here. One broker a cluster, so any connection leads to the leader.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]  # it does, at run time

from bench.batches import connect
from heliograph.errors import ConnectionLost
from heliograph.types import Cluster
from heliograph.wire.connection import Connection
from heliograph.wire.messages import build

TIMEOUT_S = 60  # a thousand partitions take a broker a while
SPOTS = 6  # places in each partition where the copy is compared
RUN = 25  # records compared at each place


class Watch:
    """One cluster, seen from outside."""

    def __init__(self, settings: Mapping[str, str], cluster: Cluster) -> None:
        self.settings: dict[str, str | int | float | bool] = {
            **settings,
            "log_level": 0,
        }  # brokers come and go here: no word about it on our stderr
        self._admin = AdminClient(self.settings)
        self._cluster = cluster
        self._connection: Connection | None = None

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        for future in self._admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))]).values():
            future.result(TIMEOUT_S)
        self._await_led(topic, partitions)

    def create_all(self, topics: Sequence[str], partitions: int = 1) -> None:
        """Many at once: one by one, each waited for, four hundred would take a minute."""
        for future in self._admin.create_topics([NewTopic(one, partitions, 1) for one in topics]).values():
            future.result(TIMEOUT_S)
        for topic in topics:
            self._await_led(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """To this number of partitions."""
        for future in self._admin.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result(TIMEOUT_S)
        self._await_led(topic, partitions)

    def _await_led(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self._ends(topic, partitions) is None:  # known to the cluster is not yet led by its broker
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} was made and has no leaders after {TIMEOUT_S} s: see the broker's log")
            time.sleep(0.02)

    def topics(self) -> dict[str, int]:
        """Every topic with its number of partitions. Asking for all creates none, asking for one by name might."""
        found = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def await_topic(self, topic: str, partitions: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.topics().get(topic) == partitions:
                return True
            time.sleep(0.05)
        return False

    def ends(self, topic: str, partitions: int) -> list[int]:
        """The end offset of each partition; zeros while the topic or a leader is not there."""
        return self._ends(topic, partitions) or [0] * partitions

    def _ends(self, topic: str, partitions: int) -> list[int] | None:
        try:
            return self._ask_ends(topic, partitions)
        except ConnectionLost:  # brokers close what was idle for ten minutes
            return self._ask_ends(topic, partitions)

    def _ask_ends(self, topic: str, partitions: int) -> list[int] | None:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._cluster)
        request = build(
            "list_offsets",
            self._connection.version("list_offsets"),
            replica_id=-1,
            isolation_level=0,
            timeout=5000,
            topics=[{"name": topic, "partitions": [_latest(p) for p in range(partitions)]}],
        )
        found = {
            int(part.partition_index): int(part.offset)
            for each in self._connection.call(request).topics
            for part in each.partitions
            if not part.error_code
        }
        return [found[p] for p in range(partitions)] if len(found) == partitions else None

    def delete(self, topics: list[str]) -> None:
        """Deletes what exists of these, and waits until it is gone."""
        present = [t for t in topics if t in self.topics()]
        if not present:
            return
        for future in self._admin.delete_topics(present).values():
            future.result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while set(present) & set(self.topics()) and time.monotonic() < deadline:
            time.sleep(0.05)

    @contextmanager
    def consumer(self, **settings: object) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                **self.settings,
                "group.id": "bench",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **settings,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        """`count` records from an offset, fewer when they do not come."""
        with self.consumer(**{"fetch.wait.max.ms": 100, "queued.max.messages.kbytes": 4096}) as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            got: list[Message] = []
            deadline = time.monotonic() + TIMEOUT_S
            while len(got) < count and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    got.append(message)
            return got


def _latest(partition: int) -> dict[str, int]:
    return {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}


def verdict(expected: list[int], actual: list[int], finished: bool) -> str:
    """What the counts say of a copy: `exact`, or what is wrong with it, in words."""
    total, there = sum(expected), sum(actual)
    if not finished and there < total:
        return f"did not finish ({there:,} of {total:,})"
    lost = sum(max(e - a, 0) for e, a in zip(expected, actual, strict=True))
    doubled = sum(max(a - e, 0) for e, a in zip(expected, actual, strict=True))
    faults = [f"lost {lost:,}" if lost else "", f"doubled {doubled:,}" if doubled else ""]
    return ", ".join(f for f in faults if f) or "exact"


def differences(source: Watch, topic: str, target: Watch, remote: str, ends: list[int]) -> str:
    """Compares samples of both topics; empty when they are equal, else the first difference."""
    chance = random.Random(20)
    partitions = [p for p in range(len(ends)) if ends[p]]
    for partition in chance.sample(partitions, min(4, len(partitions))):
        count = min(RUN, ends[partition])
        last = ends[partition] - count
        for offset in {0, last, *(chance.randint(0, last) for _ in range(SPOTS - 2))}:
            wanted, got = source.read(topic, partition, offset, count), target.read(remote, partition, offset, count)
            if [_content(m) for m in wanted] != [_content(m) for m in got]:
                return f"differs from the source near {remote}-{partition}@{offset}"
    return ""


def _content(message: Message) -> tuple[object, ...]:
    return message.offset(), message.key(), message.value(), message.headers(), message.timestamp()

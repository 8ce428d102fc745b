"""What a cluster looks like: brokers, topics, partitions and their leaders, as plain values.

Answers for reading a Metadata response of any version. Does not fetch it, does not keep it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.types import TopicPartition
from heliograph.wire.link import Address
from heliograph.wire.messages import Message


@dataclass(frozen=True, slots=True)
class PartitionMeta:
    leader: int  # -1: none at the moment
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int
    offline: tuple[int, ...] = ()  # replicas that cannot serve: of brokers that are down, or of one whose disk failed


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """`error` is Kafka's code (3: there is no such topic, 29: not allowed). `id` is None where brokers have none."""

    name: str
    id: uuid.UUID | None
    internal: bool
    error: int
    partitions: dict[int, PartitionMeta]


@dataclass(frozen=True, slots=True)
class Metadata:
    brokers: dict[int, Address]
    topics: dict[str, TopicMeta]
    controller: int
    cluster_id: str

    def leader(self, tp: TopicPartition) -> PartitionMeta | None:
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)


def request_fields(topics: Sequence[str] | None) -> dict[str, Any]:
    """The fields that ask for these topics (None: all). Asking never creates a topic."""
    return {
        "topics": None if topics is None else [{"name": name} for name in topics],
        "allow_auto_topic_creation": False,
    }


def read(response: Message) -> Metadata:
    topics = [_topic(topic) for topic in response.topics if topic.name is not None]
    return Metadata(
        {int(b.node_id): Address(str(b.host), int(b.port)) for b in response.brokers},
        {topic.name: topic for topic in topics},
        int(response.controller_id),
        response.cluster_id or "",
    )


def _topic(topic: Any) -> TopicMeta:
    return TopicMeta(
        str(topic.name),
        getattr(topic, "topic_id", None),
        bool(topic.is_internal),
        int(topic.error_code),
        {int(p.partition_index): _partition(p) for p in topic.partitions},
    )


def _partition(part: Any) -> PartitionMeta:
    return PartitionMeta(
        int(part.leader_id),
        int(part.leader_epoch),
        tuple(map(int, part.replica_nodes)),
        tuple(map(int, part.isr_nodes)),
        int(part.error_code),
        tuple(map(int, part.offline_replicas)),
    )

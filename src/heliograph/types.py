"""Names and small values that several rooms share. Nothing here does anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Isolation = Literal["read_committed", "read_uncommitted"]

SECRET_WORDS = ("password", "secret", "jaas", "token", "ssl.keystore.key", "credential")


def is_secret(key: str) -> bool:
    """Whether the value of this client property must never be printed."""
    return any(word in key.lower() for word in SECRET_WORDS)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach one cluster: its alias and Kafka's own client properties, already resolved.

    `properties` holds `bootstrap.servers`, `security.protocol`, `ssl.*`, `sasl.*` under the names Kafka's Java clients
    use. It may hold secrets, so printing it masks them.
    """

    alias: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return self.properties.get("bootstrap.servers", "")

    def __repr__(self) -> str:
        shown = {k: "***" if is_secret(k) else v for k, v in self.properties.items()}
        return f"Cluster({self.alias!r}, {shown})"


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction between two clusters, and what it copies."""

    source: Cluster
    target: Cluster
    topics: tuple[str, ...] = (".*",)
    topics_exclude: tuple[str, ...] = (r"mm2.*\.internal", r".*\.replica", "__.*")
    heartbeats_replication: bool = True  # heartbeat topics are copied whatever the filter says
    tasks_max: int | None = None  # None: as many as the work can use
    replication_factor: int = 2  # MM2's default for new remote topics
    isolation: Isolation = "read_committed"
    offset_storage_replication_factor: int = 3
    refresh_topics_interval_seconds: float = 600  # MM2's default

    @property
    def name(self) -> str:
        return f"{self.source.alias}->{self.target.alias}"

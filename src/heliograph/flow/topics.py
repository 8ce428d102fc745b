"""Which topics a flow copies, and the remote topics they need: made before their data comes.

Reads both clusters' metadata, applies the policy, creates what is missing with the source's partition count. Does not
alter topics that exist: a remote topic that cannot take a partition has that partition parked, with the reason.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from heliograph import policy
from heliograph.errors import BrokerError
from heliograph.flow.status import ParkedPartition
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client, NewTopic, TopicMeta
from heliograph.wire.codes import TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED

log = structlog.get_logger()

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # a pattern that is no pattern but a name
APPEAR_S = 15.0  # a created topic is in every broker's metadata well before this


@dataclass(frozen=True, slots=True)
class Route:
    """A source partition that can be copied, and where to."""

    tp: TopicPartition
    topic_id: UUID | None
    remote: TopicPartition
    max_batch_bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    routes: tuple[Route, ...] = ()
    parked: tuple[ParkedPartition, ...] = ()
    topics: int = 0


@dataclass(slots=True)
class Topics:
    flow: Flow
    source: Client
    target: Client
    _limits: dict[str, int] = field(default_factory=dict)  # max.message.bytes of remote topics

    def survey(self) -> Survey:
        """What can be copied now. Creates remote topics that are missing."""
        wanted, hidden = self._wanted()
        remote_of = {name: policy.remote_topic(self.flow, name) for name in wanted}
        there = self.target.metadata(sorted(remote_of.values())).topics if remote_of else {}
        missing = [name for name in wanted if self._absent(there.get(remote_of[name]))]
        refused = self._create([(remote_of[name], len(wanted[name].partitions)) for name in missing])
        if missing:
            there = self._await([remote_of[name] for name in wanted if remote_of[name] not in refused])
        self._learn_limits([r for r in remote_of.values() if r in there and r not in refused])
        routes: list[Route] = []
        parked = [_hidden(name) for name in hidden]
        for name, topic in sorted(wanted.items()):
            remote = remote_of[name]
            if remote in refused:
                error = refused[remote]
                parked.append(ParkedPartition(name, None, f"{remote} cannot be created: {error.message}", error.fix))
                continue
            self._route(topic, remote, there.get(remote), routes, parked)
        return Survey(tuple(routes), tuple(parked), len(wanted) + len(hidden))

    def _wanted(self) -> tuple[dict[str, TopicMeta], list[str]]:
        """Topics to copy, and those the file names outright that the source will not show us."""
        topics = self.source.metadata(None).topics
        named = [name for name in self.flow.topics if TOPIC_NAME.fullmatch(name) and name not in topics]
        asked = self.source.metadata(named).topics if named else {}
        hidden = [name for name, topic in asked.items() if topic.error == TOPIC_AUTHORIZATION_FAILED]
        wanted = {
            name: topic
            for name, topic in topics.items()
            if not topic.internal and topic.partitions and policy.should_replicate(self.flow, name)
        }
        return wanted, hidden

    @staticmethod
    def _absent(topic: TopicMeta | None) -> bool:
        return topic is None or (not topic.partitions and topic.error != TOPIC_AUTHORIZATION_FAILED)

    def _create(self, topics: list[tuple[str, int]]) -> dict[str, BrokerError]:
        if not topics:
            return {}
        specs = [NewTopic(name, partitions, self.flow.replication_factor, {}) for name, partitions in topics]
        refused: dict[str, BrokerError] = {}
        for name, error in self.target.create_topics(specs).items():
            if error is None:
                log.info("remote topic created", flow=self.flow.name, topic=name)
            elif error.code != TOPIC_ALREADY_EXISTS:
                refused[name] = error
                log.warning("remote topic refused", flow=self.flow.name, topic=name, why=str(error))
        return refused

    def _await(self, names: list[str]) -> dict[str, TopicMeta]:
        """Metadata of created topics, once every partition has a leader (bounded: what is late is caught next time)."""
        deadline = time.monotonic() + APPEAR_S
        while True:
            topics = self.target.metadata(sorted(names)).topics if names else {}
            led = all(
                (topic := topics.get(name)) is not None
                and topic.partitions
                and all(p.leader >= 0 for p in topic.partitions.values())
                for name in names
            )
            if led or time.monotonic() > deadline:
                return topics
            time.sleep(0.05)

    def _learn_limits(self, remotes: list[str]) -> None:
        unknown = [name for name in remotes if name not in self._limits]
        if not unknown:
            return
        for name, configs in self.target.describe_topic_configs(unknown).items():
            entry = configs.get("max.message.bytes") if not isinstance(configs, BrokerError) else None
            self._limits[name] = int(entry.value) if entry and entry.value else DEFAULT_MAX_MESSAGE_BYTES

    def _route(
        self,
        topic: TopicMeta,
        remote: str,
        there: TopicMeta | None,
        routes: list[Route],
        parked: list[ParkedPartition],
    ) -> None:
        has = there.partitions if there else {}
        if not has:
            code = there.error if there else 3
            why = "not authorised" if code == TOPIC_AUTHORIZATION_FAILED else f"not to be seen yet (error {code})"
            allow = f"allow this principal CREATE, DESCRIBE, READ and WRITE on {remote}"
            fix = allow if code == TOPIC_AUTHORIZATION_FAILED else ""
            parked.append(ParkedPartition(topic.name, None, f"remote topic {remote} is {why}", fix))
            return
        for partition in sorted(topic.partitions):
            if partition in has:
                routes.append(
                    Route(
                        TopicPartition(topic.name, partition),
                        topic.id,
                        TopicPartition(remote, partition),
                        self._limits.get(remote, DEFAULT_MAX_MESSAGE_BYTES),
                    )
                )
            else:
                parked.append(
                    ParkedPartition(
                        topic.name,
                        partition,
                        f"{remote} has {len(has)} partitions, its source {topic.name} has {len(topic.partitions)}",
                        f"add partitions: kafka-topics --alter --topic {remote} --partitions {len(topic.partitions)}",
                    )
                )


def _hidden(name: str) -> ParkedPartition:
    return ParkedPartition(
        name, None, f"not allowed to see the source topic {name}", f"allow this principal DESCRIBE and READ on {name}"
    )

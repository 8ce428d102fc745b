"""A client that writes nothing: it keeps what it was asked to do, and answers from then on as if that had been done.

`plan` gives it to the very code that makes topics, settings and permissions follow the source, so that no rule stands
anywhere twice. What the brokers can judge beforehand (a creation, more partitions, a setting) they are asked to judge;
a refusal is the answer, as it would be.

Invariants:
  a. No request leaves here that changes a cluster: every call that could is overridden below, or refused.
  b. All rehearsals of one cluster share one `World`: what a flow would make is there for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

from heliograph.errors import BrokerError
from heliograph.types import Cluster, Isolation, TopicPartition
from heliograph.wire import Acl, Client, ConfigEntry, Foreseen, Metadata, NewTopic, PartitionMeta, TopicMeta
from heliograph.wire.codes import SECURITY_DISABLED, TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED, broker_error

IMAGINED = 0  # the leader of a partition that is not there: any broker but none


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that would be done to a cluster."""

    cluster: str
    what: Literal["create topic", "add partitions", "alter settings", "add permission"]
    topic: str
    partitions: int = 0  # of a new topic, or of one that grows: then
    partitions_now: int = 0
    replication_factor: int = 0
    settings: Mapping[str, str | None] = field(default_factory=dict)  # None: the topic's own value removed
    settings_now: Mapping[str, str | None] = field(default_factory=dict)
    acl: str = ""


@dataclass(slots=True)
class World:
    """One cluster as it would be, where that differs from how it is."""

    topics: dict[str, TopicMeta] = field(default_factory=dict)
    imagined: set[TopicPartition] = field(default_factory=set)
    configs: dict[str, dict[str, ConfigEntry] | None] = field(default_factory=dict)  # of new topics
    altered: dict[str, dict[str, str | None]] = field(default_factory=dict)  # of those that are there
    acls: list[Acl] = field(default_factory=list)


class Rehearsal(Client):
    def __init__(self, cluster: Cluster, world: World, deeds: list[Deed], *, timeout_s: float = 30.0) -> None:
        super().__init__(cluster, timeout_s=timeout_s)
        self._world, self._deeds = world, deeds

    # -- reading: what is there, and what would be -------------------------------------------------------------------

    def metadata(self, topics: Sequence[str] | None = None, *, timeout_s: float | None = None) -> Metadata:
        found = super().metadata(topics, timeout_s=timeout_s)
        new = {name: topic for name, topic in self._world.topics.items() if topics is None or name in topics}
        return replace(found, topics={**found.topics, **new})

    def list_offsets(
        self,
        tps: Iterable[TopicPartition],
        *,
        at: Literal["earliest", "latest", "log_end"] | int,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int | BrokerError]:
        tps = list(tps)
        there = [tp for tp in tps if tp not in self._world.imagined]
        found = super().list_offsets(there, at=at, isolation=isolation, timeout_s=timeout_s)
        return found | {tp: 0 if isinstance(at, str) else -1 for tp in tps if tp in self._world.imagined}

    def describe_topic_configs(
        self, names: Iterable[str], *, inherited: bool = False, timeout_s: float | None = None
    ) -> dict[str, dict[str, ConfigEntry] | BrokerError]:
        names = list(names)
        world = self._world
        there = [name for name in names if name not in world.configs]
        found = super().describe_topic_configs(there, inherited=inherited, timeout_s=timeout_s)
        for name, settings in world.altered.items():
            entries = found.get(name)
            if isinstance(entries, dict):
                found[name] = _with(entries, settings)
        for name in names:
            if name in world.configs:
                configs = world.configs[name]
                found[name] = self._unseen(name) if configs is None else configs
        return found

    def describe_acls(self, *, timeout_s: float | None = None) -> list[Acl] | BrokerError:
        found = super().describe_acls(timeout_s=timeout_s)
        return found if isinstance(found, BrokerError) else [*found, *self._world.acls]

    # -- writing: kept, not done -------------------------------------------------------------------------------------

    def create_topics(
        self, specs: Sequence[NewTopic], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, BrokerError | None]:
        results: dict[str, BrokerError | None] = {
            spec.name: broker_error(TOPIC_ALREADY_EXISTS, cluster=self.alias, topic=spec.name)
            for spec in specs
            if spec.name in self._world.topics
        }
        new = {spec.name: spec for spec in specs if spec.name not in results}
        for name, foreseen in self.foresee_topics(list(new.values())).items():
            results[name] = foreseen if isinstance(foreseen, BrokerError) else None
            if isinstance(foreseen, Foreseen) and not validate_only:
                self._imagine(new[name], foreseen)
        return results

    def _imagine(self, spec: NewTopic, foreseen: Foreseen) -> None:
        world = self._world
        world.topics[spec.name] = _topic(spec.name, foreseen.partitions, foreseen.replication_factor)
        world.imagined |= {TopicPartition(spec.name, p) for p in range(foreseen.partitions)}
        world.configs[spec.name] = None if foreseen.configs is None else dict(foreseen.configs)
        self._deeds.append(
            Deed(
                self.alias,
                "create topic",
                spec.name,
                partitions=foreseen.partitions,
                replication_factor=foreseen.replication_factor,
                settings=_made_with(spec, foreseen),
            )
        )

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, BrokerError | None]:
        there = self.metadata(sorted(counts)).topics if counts else {}
        results = super().create_partitions(counts, validate_only=True, timeout_s=timeout_s)
        for name, error in results.items():
            if error is None and not validate_only:
                self._grow(there[name], counts[name])
        return results

    def _grow(self, topic: TopicMeta, count: int) -> None:
        now = len(topic.partitions)
        replicas = max((len(part.replicas) for part in topic.partitions.values()), default=1)
        new = {p: topic.partitions.get(p) or _partition(replicas) for p in range(count)}
        self._world.topics[topic.name] = replace(topic, partitions=new)
        self._world.imagined |= {TopicPartition(topic.name, p) for p in range(now, count)}
        self._deeds.append(Deed(self.alias, "add partitions", topic.name, partitions=count, partitions_now=now))

    def alter_topic_configs(
        self,
        changes: Mapping[str, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, BrokerError | None]:
        """Of a topic that is not there yet nobody can judge a setting: it is taken to be agreed to."""
        there = {name: settings for name, settings in changes.items() if name not in self._world.configs}
        now = self.describe_topic_configs(changes)
        results = super().alter_topic_configs(there, validate_only=True, timeout_s=timeout_s)
        results |= dict.fromkeys(changes.keys() - there.keys())
        for name, settings in changes.items():
            if results[name] is None and not validate_only:
                self._alter(name, settings, now[name])
        return results

    def _alter(
        self, name: str, settings: Mapping[str, str | None], now: Mapping[str, ConfigEntry] | BrokerError
    ) -> None:
        entries = {} if isinstance(now, BrokerError) else now
        before = {key: entries[key].value if key in entries else None for key in settings}
        if name in self._world.configs:
            self._world.configs[name] = _with(entries, settings)
        else:
            self._world.altered.setdefault(name, {}).update(settings)
        self._deeds.append(Deed(self.alias, "alter settings", name, settings=dict(settings), settings_now=before))

    def create_acls(self, wanted: Sequence[Acl], *, timeout_s: float | None = None) -> dict[Acl, BrokerError | None]:
        if isinstance(there := super().describe_acls(), BrokerError) and there.code == SECURITY_DISABLED:
            return dict.fromkeys(wanted, there)
        for acl in wanted:
            self._world.acls.append(acl)
            self._deeds.append(Deed(self.alias, "add permission", acl.name, acl=str(acl)))
        return dict.fromkeys(wanted)

    def _never(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise AssertionError("a rehearsal writes nothing")

    produce = delete_topics = init_producer_ids = commit_group_offsets = _never

    def _unseen(self, name: str) -> BrokerError:
        return broker_error(TOPIC_AUTHORIZATION_FAILED, "its settings", cluster=self.alias, topic=name)


def _with(entries: Mapping[str, ConfigEntry], settings: Mapping[str, str | None]) -> dict[str, ConfigEntry]:
    """Settings as they would be after an alteration."""
    then = dict(entries)
    for key, value in settings.items():
        now = entries.get(key)
        if now is None:
            continue
        if value is None:
            then[key] = replace(now, value=now.inherited, source="DEFAULT_CONFIG")
        else:
            then[key] = replace(now, value=value, source="DYNAMIC_TOPIC_CONFIG")
    return then


def _made_with(spec: NewTopic, foreseen: Foreseen) -> dict[str, str | None]:
    """Its own settings: those it was asked to have, and those that it needs to fit the cluster."""
    own = {key: one.value for key, one in (foreseen.configs or {}).items() if not one.is_default}
    return {**spec.configs, **own}


def _topic(name: str, partitions: int, replicas: int) -> TopicMeta:
    return TopicMeta(name, None, False, 0, {p: _partition(replicas) for p in range(partitions)})


def _partition(replicas: int) -> PartitionMeta:
    copies = tuple(range(max(replicas, 1)))
    return PartitionMeta(IMAGINED, 0, copies, copies, 0)

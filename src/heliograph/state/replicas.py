"""How many replicas Heliograph's own topics and new copies get, and whether that is fewer than by default.

Answers for which topics a flow needs and by which key each is made, for what a cluster's brokers allow, and for saying
it. A factor that the file sets is refused where the cluster cannot hold it; a default is lowered to the number of
registered brokers (`wire.topics.fitted` does it when a topic is created). The rules are pure; `look` asks a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliograph import policy
from heliograph.state import incidents, quarantine
from heliograph.types import (
    CHECKPOINTS_FACTOR,
    COPIES_FACTOR,
    HEARTBEATS_FACTOR,
    STORAGE_FACTOR,
    SYNCS_FACTOR,
    Cluster,
    Factor,
    Flow,
)
from heliograph.wire import Client, TopicMeta
from heliograph.wire.codes import UNKNOWN_TOPIC_OR_PARTITION

RAISE = "heliograph replicas raise FILE --yes"
NEW_COPIES = ""  # in the place of a topic's name: copies that are made from now on
NAMED = 8  # topics in a sentence


@dataclass(frozen=True, slots=True)
class Needed:
    """A topic that a flow needs, and by which factor it is created."""

    cluster: Cluster
    topic: str  # or NEW_COPIES
    factor: Factor


@dataclass(frozen=True, slots=True)
class Seen:
    """What a cluster has."""

    brokers: Mapping[int, bool]  # id -> whether it is up
    replicas: Mapping[str, int]  # of the topics that are there: of the partition that has the fewest


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A topic with fewer replicas than its factor says, or one that will be created with fewer."""

    cluster: str
    topic: str  # or NEW_COPIES
    factor: Factor
    has: int  # 0: it is not there yet
    brokers: int  # registered

    @property
    def possible(self) -> int:
        return min(self.factor.replicas, self.brokers)


def needed_by(flow: Flow) -> list[Needed]:
    """Every topic that the flow creates, in the order in which it does; copies last."""
    found: list[Needed] = []
    alias, names, storage = flow.source.alias, policy.of(flow), flow.factor(STORAGE_FACTOR)

    def on_target(topic: str, factor: Factor) -> None:
        found.append(Needed(flow.target, topic, factor))

    if flow.enabled:
        on_target(flow.positions_topic or policy.positions_topic(alias), storage)
        if not flow.staged:
            on_target(policy.offset_map_topic(alias), storage)
    if flow.emit_heartbeats_s is not None:
        on_target(policy.HEARTBEATS, flow.factor(HEARTBEATS_FACTOR))
    if flow.enabled and flow.emit_offset_syncs:
        if flow.copies:
            on_source = flow.offset_syncs_location == "source"
            place, other = (flow.source, flow.target.alias) if on_source else (flow.target, alias)
            found.append(Needed(place, names.offset_syncs_topic(other), flow.factor(SYNCS_FACTOR)))
        if flow.emit_checkpoints_s is not None:
            on_target(names.checkpoints_topic(alias), flow.factor(CHECKPOINTS_FACTOR))
    if flow.enabled and flow.copies:
        on_target(incidents.topic_of(flow).name, storage)
        if flow.on.refused == "quarantine":
            on_target(quarantine.topic_of(flow).name, storage)
        for factor in dict.fromkeys(rule.factor for rule in flow.demux) or (flow.factor(COPIES_FACTOR),):
            on_target(NEW_COPIES, factor)
    return found


def different(needed: Iterable[Needed]) -> list[Needed]:
    """Each once: flows share topics, heartbeats for one."""
    return list({(one.cluster.alias, one.topic, one.factor): one for one in needed}.values())


def look(client: Client, needed: Sequence[Needed]) -> Seen:
    """At the cluster of these."""
    most = max((one.factor.replicas for one in needed), default=0)
    names = sorted({one.topic for one in needed if one.topic != NEW_COPIES})
    topics = client.metadata(names).topics if names else {}
    return Seen(
        client.registered_brokers(most), {name: _replicas(topics[name]) for name in names if _there(topics, name)}
    )


def _there(topics: Mapping[str, TopicMeta], name: str) -> bool:
    topic = topics.get(name)
    return topic is not None and topic.error != UNKNOWN_TOPIC_OR_PARTITION


def _replicas(topic: TopicMeta) -> int:
    """Of one that we may not describe: many enough to be left alone."""
    return min((len(part.replicas) for part in topic.partitions.values()), default=1 << 15)


# ---- rules


def shortfalls(needed: Iterable[Needed], seen: Seen) -> list[Shortfall]:
    """Topics with fewer replicas than their factor, and those that will be created so since the factor is a default."""
    brokers = len(seen.brokers)
    found = []
    for one in different(needed):
        has = seen.replicas.get(one.topic, 0)
        lowered = not has and one.factor.lowerable and one.factor.replicas > brokers
        if lowered or 0 < has < one.factor.replicas:
            found.append(Shortfall(one.cluster.alias, one.topic, one.factor, has, brokers))
    return found


def refusals(needed: Iterable[Needed], seen: Seen) -> list[str]:
    """Factors that the file sets and the cluster cannot hold, of topics that would have to be created."""
    brokers, alias = len(seen.brokers), ""
    topics: dict[Factor, list[str]] = {}
    for one in different(needed):
        alias = one.cluster.alias
        if one.factor.fixed and one.factor.replicas > brokers and one.topic not in seen.replicas:
            topics.setdefault(one.factor, []).append(one.topic)
    return [
        f"{factor.key} = {factor.replicas}: {alias} has {_count(brokers, 'broker')}, so {_listed(names)} cannot be "
        f"created. Set it to {brokers} or less, or remove the line: then Heliograph takes what {alias} can hold"
        for factor, names in topics.items()
    ]


def words(short: Sequence[Shortfall]) -> list[str]:
    """One sentence for each cluster, with the keys, and what to do about it."""
    by_cluster: dict[str, list[Shortfall]] = {}
    for one in short:
        by_cluster.setdefault(one.cluster, []).append(one)
    return [_of_cluster(alias, some) for alias, some in by_cluster.items()]


def _of_cluster(alias: str, short: Sequence[Shortfall]) -> str:
    alike: dict[tuple[int, Factor], list[str]] = {}
    for one in short:
        alike.setdefault((one.has or one.possible, one.factor), []).append(one.topic)
    said = [
        f"{_listed(topics)}: {_count(count, 'replica')} instead of {factor.replicas} ({factor.key})"
        for (count, factor), topics in alike.items()
    ]
    can_now = any(one.possible > one.has > 0 for one in short)
    then = f"More are possible now: {RAISE}" if can_now else f"When {alias} has more brokers: {RAISE}"
    return f"{alias} has {_count(short[0].brokers, 'broker')}. Fewer replicas than wanted: {'; '.join(said)}. {then}"


def _listed(topics: Sequence[str]) -> str:
    names = [one or "new copies" for one in dict.fromkeys(topics)]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

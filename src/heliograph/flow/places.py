"""The topics that stages write to, made when they are needed: the shared one, and those that records are put back into.

Answers for their partitions and settings: a topic that records are put back into is made as the source's topic is, and
the source is asked. What cannot be made is told, with the reason; nothing waits for it that need not.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from heliograph.errors import BrokerError, HeliographError
from heliograph.sync.configs import Entries, creation_configs
from heliograph.types import Demux, Flow, Mux, TopicPartition
from heliograph.wire import Client, NewTopic, TopicMeta
from heliograph.wire.codes import TOPIC_ALREADY_EXISTS

log = structlog.get_logger()

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
LABELS_BYTES = 2048  # what labels may add to a record, generously: so much more a shared topic takes
MOST_PARTITIONS = 10_000  # of a topic whose source cannot be asked any more: more than this is no partition's number
APPEAR_S = 15.0  # a created topic is in every broker's metadata well before this
ASK_S = 5.0  # how long a source may take to say how its topics are


@dataclass(frozen=True, slots=True)
class Unplaced:
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class Placed:
    there: set[TopicPartition] = field(default_factory=set)  # origins whose place is there
    refused: set[TopicPartition] = field(default_factory=set)  # that cannot be: the source says so
    unplaced: list[Unplaced] = field(default_factory=list)


class Places:
    def __init__(self, flow: Flow, target: Client) -> None:
        self.flow = flow
        self._target = target
        self._limits: dict[str, int] = {}

    def learn_limits(self, topics: Iterable[str]) -> None:
        unknown = sorted(set(topics) - self._limits.keys())
        for topic, entries in (self._target.describe_topic_configs(unknown) if unknown else {}).items():
            entry = None if isinstance(entries, BrokerError) else entries.get("max.message.bytes")
            self._limits[topic] = int(entry.value) if entry and entry.value else DEFAULT_MAX_MESSAGE_BYTES

    def limit(self, topic: str) -> int:
        """Its max.message.bytes, once it was learnt."""
        return self._limits.get(topic, DEFAULT_MAX_MESSAGE_BYTES)

    def forget_limits(self, topics: Iterable[str] | None = None) -> None:
        for name in list(self._limits) if topics is None else topics:
            self._limits.pop(name, None)

    # ---------------------------------------------------------------- the shared topic

    def shared(self, mux: Mux, source: Client, wanted: Iterable[str]) -> int | Unplaced:
        """How many partitions it has. If it is not there it is made, for the largest records that these topics take."""
        there = self._target.metadata([mux.topic]).topics.get(mux.topic)
        if there is not None and there.partitions:
            return len(there.partitions)
        sizes = [
            int(entry.value)
            for entries in source.describe_topic_configs(wanted).values()
            if not isinstance(entries, BrokerError) and (entry := entries.get("max.message.bytes")) and entry.value
        ]
        largest = max(sizes, default=DEFAULT_MAX_MESSAGE_BYTES) + LABELS_BYTES
        configs = {"max.message.bytes": str(largest), "compression.type": "producer"}
        trouble = self._create(NewTopic(mux.topic, mux.partitions, self.flow.replication_factor, configs))
        return trouble or mux.partitions

    # ---------------------------------------------------------------- where records are put back

    def of_origins(self, rule: Demux, origins: Collection[TopicPartition]) -> Placed:
        """Topics for these are made and grown as their sources are."""
        placed = Placed()
        if not origins:
            return placed
        needed: dict[str, set[int]] = {}
        for topic, partition in origins:
            needed.setdefault(topic, set()).add(partition)
        there = self._target.metadata(sorted(rule.prefix + topic for topic in needed)).topics
        short = {
            topic: partitions
            for topic, partitions in needed.items()
            if max(partitions) >= _count(there.get(rule.prefix + topic))
        }
        counts = {topic: _count(there.get(rule.prefix + topic)) for topic in needed}
        if short:
            counts |= self._make_room(rule, short, counts, placed)
        for topic, partitions in needed.items():
            for partition in partitions:
                origin = TopicPartition(topic, partition)
                if partition < counts[topic] and origin not in placed.refused:
                    placed.there.add(origin)
        return placed

    def _make_room(
        self, rule: Demux, short: Mapping[str, set[int]], counts: Mapping[str, int], placed: Placed
    ) -> dict[str, int]:
        """How many partitions these have then."""
        try:
            theirs, settings = self._ask(rule, sorted(short))
        except HeliographError as error:
            alias = rule.spoke.alias
            words = f"records of {', '.join(sorted(short))} wait: {alias} cannot be asked how these topics are: {error}"
            placed.unplaced.append(Unplaced(words, f"make {alias} reachable, or make the topics by hand"))
            return {}
        made: dict[str, int] = {}
        for topic, partitions in short.items():
            count = theirs.get(topic, 0)
            possible = {one for one in partitions if one < (count or MOST_PARTITIONS)}
            placed.refused.update(TopicPartition(topic, one) for one in partitions - possible)
            wanted = max([count, *(one + 1 for one in possible)])
            if not wanted or wanted <= counts[topic]:
                continue
            name = rule.prefix + topic
            trouble = (
                self._grow(name, wanted) if counts[topic] else self._create(self._spec(rule, name, wanted, settings))
            )
            if trouble is None:
                made[topic] = wanted
            else:
                placed.unplaced.append(trouble)
        return made

    def _ask(self, rule: Demux, topics: list[str]) -> tuple[dict[str, int], dict[str, Entries]]:
        """The partitions and settings of the source's topics; of one that is gone, neither."""
        with Client(rule.spoke, timeout_s=ASK_S) as spoke:
            found = {name: len(topic.partitions) for name, topic in spoke.metadata(topics).topics.items()}
            there = [name for name, count in found.items() if count]
            settings = spoke.describe_topic_configs(there) if there else {}
        return found, {
            rule.prefix + name: entries for name, entries in settings.items() if not isinstance(entries, BrokerError)
        }

    def _spec(self, rule: Demux, name: str, partitions: int, settings: Mapping[str, Entries]) -> NewTopic:
        flow = replace(self.flow, source=rule.spoke)
        configs = creation_configs(flow, settings[name]) if name in settings else {}
        return NewTopic(name, partitions, rule.replication_factor, configs)

    # ---------------------------------------------------------------- doing

    def _create(self, spec: NewTopic) -> Unplaced | None:
        error = self._target.create_topics([spec])[spec.name]
        if error is not None and error.code != TOPIC_ALREADY_EXISTS:
            return Unplaced(f"{spec.name} cannot be created: {error.message}", error.fix)
        log.info("topic created", flow=self.flow.name, topic=spec.name, partitions=spec.partitions)
        return self._await(spec.name, spec.partitions)

    def _grow(self, name: str, partitions: int) -> Unplaced | None:
        error = self._target.create_partitions({name: partitions})[name]
        if error is not None:
            fix = f"add partitions: kafka-topics --alter --topic {name} --partitions {partitions}"
            return Unplaced(f"{name} cannot be given {partitions} partitions: {error.message}", fix)
        log.info("topic grown", flow=self.flow.name, topic=name, partitions=partitions)
        return self._await(name, partitions)

    def _await(self, name: str, partitions: int) -> Unplaced | None:
        deadline = time.monotonic() + APPEAR_S
        while True:
            topic = self._target.metadata([name]).topics.get(name)
            if topic and sum(part.leader >= 0 for part in topic.partitions.values()) >= partitions:
                return None
            if time.monotonic() > deadline:
                return Unplaced(f"{name} is not to be seen yet", "")
            time.sleep(0.05)


def _count(topic: TopicMeta | None) -> int:
    return len(topic.partitions) if topic else 0

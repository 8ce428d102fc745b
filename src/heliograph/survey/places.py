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
from heliograph.types import COPIES_FACTOR, Demux, Flow, Mux, TopicPartition
from heliograph.wire import Client, NewTopic, TopicMeta, broker_error
from heliograph.wire.codes import TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED

log = structlog.get_logger()

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
LABELS_BYTES = 2048  # what labels may add to a record, generously: so much more a shared topic takes
# Of topics that the source does not have any more. Records say how they were, and who writes these could say anything:
# so much harm is bounded, and what is beyond goes to quarantine.
MOST_PARTITIONS = 1_000
MOST_GONE = 100  # such topics, for each source
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
        self._gone: dict[str, set[str]] = {}  # by shared topic: those made that its source does not have

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

    def absent(self, topics: Collection[str]) -> set[str]:
        """Those that are not there, as far as one broker sees."""
        found = self._target.metadata(sorted(topics)).topics if topics else {}
        return {
            name
            for name in topics
            if not _count(topic := found.get(name)) and (not topic or topic.error != TOPIC_AUTHORIZATION_FAILED)
        }

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
        factor = self.flow.factor(COPIES_FACTOR)
        spec = NewTopic(mux.topic, mux.partitions, factor.replicas, configs, lowerable=factor.lowerable)
        refused = self._make([spec])
        return refused.get(mux.topic) or mux.partitions

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
            fix = f"make {alias} reachable, let us DESCRIBE its topics and their configs, or make them here by hand"
            placed.unplaced.append(Unplaced(words, fix))
            return {}
        wanted: dict[str, int] = {}
        for topic, partitions in sorted(short.items()):
            count = theirs.get(topic, 0)
            most = count or (MOST_PARTITIONS if counts[topic] or self._may_be_made(rule, topic) else 0)
            possible = {one for one in partitions if one < most}
            placed.refused.update(TopicPartition(topic, one) for one in partitions - possible)
            needs = max([count, *(one + 1 for one in possible)])
            if needs > counts[topic]:
                wanted[topic] = needs
        new = [self._spec(rule, rule.prefix + one, n, settings) for one, n in wanted.items() if not counts[one]]
        few = {rule.prefix + one: n for one, n in wanted.items() if counts[one]}
        refused = self._make(new) | self._grow(few)
        placed.unplaced.extend(refused.values())
        return {topic: count for topic, count in wanted.items() if rule.prefix + topic not in refused}

    def _may_be_made(self, rule: Demux, topic: str) -> bool:
        """Although its source does not have it."""
        gone = self._gone.setdefault(rule.topic, set())
        if len(gone) < MOST_GONE:
            gone.add(topic)
        return topic in gone

    def _ask(self, rule: Demux, topics: list[str]) -> tuple[dict[str, int], dict[str, Entries]]:
        """The partitions and settings of the source's topics; of one that is gone, neither. What may not be seen is an
        error: a topic made without its settings would keep other records than its source."""
        with Client(rule.spoke, timeout_s=ASK_S) as spoke:
            found = spoke.metadata(topics).topics
            for name, topic in found.items():
                if topic.error == TOPIC_AUTHORIZATION_FAILED:
                    raise broker_error(topic.error, topic=name)
            there = [name for name, topic in found.items() if topic.partitions]
            settings: dict[str, Entries] = {}
            for name, entries in (spoke.describe_topic_configs(there) if there else {}).items():
                if isinstance(entries, BrokerError):
                    raise entries
                settings[rule.prefix + name] = entries
        return {name: len(topic.partitions) for name, topic in found.items()}, settings

    def _spec(self, rule: Demux, name: str, partitions: int, settings: Mapping[str, Entries]) -> NewTopic:
        flow = replace(self.flow, source=rule.spoke)
        configs = creation_configs(flow, settings[name]) if name in settings else {}
        return NewTopic(name, partitions, rule.factor.replicas, configs, lowerable=rule.factor.lowerable)

    # ---------------------------------------------------------------- doing

    def _make(self, specs: Collection[NewTopic]) -> dict[str, Unplaced]:
        """Those that could not be made, or are not to be seen yet."""
        refused: dict[str, Unplaced] = {}
        for name, error in (self._target.create_topics(list(specs)) if specs else {}).items():
            if error is not None and error.code != TOPIC_ALREADY_EXISTS:
                refused[name] = Unplaced(f"{name} cannot be created: {error.message}", error.fix)
        made = {spec.name: spec.partitions for spec in specs if spec.name not in refused}
        for name, partitions in made.items():
            log.info("topic created", flow=self.flow.name, topic=name, partitions=partitions)
        return refused | self._await(made)

    def _grow(self, counts: Mapping[str, int]) -> dict[str, Unplaced]:
        refused: dict[str, Unplaced] = {}
        for name, error in (self._target.create_partitions(counts) if counts else {}).items():
            if error is not None:
                fix = f"add partitions: kafka-topics --alter --topic {name} --partitions {counts[name]}"
                why = f"{name} cannot be given {counts[name]} partitions: {error.message}"
                refused[name] = Unplaced(why, fix)
            else:
                log.info("topic grown", flow=self.flow.name, topic=name, partitions=counts[name])
        return refused | self._await({name: count for name, count in counts.items() if name not in refused})

    def _await(self, expected: Mapping[str, int]) -> dict[str, Unplaced]:
        """Until so many partitions of these have a leader; those that have not."""
        deadline = time.monotonic() + APPEAR_S
        while expected:
            topics = self._target.metadata(sorted(expected)).topics
            late = [name for name, count in expected.items() if _led(topics.get(name)) < count]
            if not late:
                break
            if time.monotonic() > deadline:
                return {name: Unplaced(f"{name} is not to be seen yet", "") for name in late}
            time.sleep(0.05)
        return {}


def _led(topic: TopicMeta | None) -> int:
    return sum(part.leader >= 0 for part in topic.partitions.values()) if topic else 0


def _count(topic: TopicMeta | None) -> int:
    return len(topic.partitions) if topic else 0

"""Flows that do something to records on their way: which partitions they read, and where the records go.

Mux: topics of a cluster go into one shared topic, there or on another cluster, each source partition into one of its
partitions. Demux: the records of shared topics go back to where their labels say they came from, on the same cluster.
Both are strands to the rest of the house: of one source partition, each with a producer id, a sequence and a position
of its own. Here is what a survey comes to for them; topics are made by `survey.places`.

Invariants:
  a. A source partition goes to one shared partition for good: where its position says, whatever the number is now. So
     the order of its records holds.
  b. Targets of a shared partition are added as records for them are found, behind those that are known, and stay.
  c. A target is in a route only when its partition is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from heliograph import policy
from heliograph.batch.labels import Stamp, chosen
from heliograph.health.status import ParkedPartition
from heliograph.mirror.assignment import PutBack, Stage
from heliograph.mirror.following import Following
from heliograph.mirror.positions import Position, murmur2
from heliograph.survey.places import Places, Unplaced
from heliograph.survey.topics import TOPIC_NAME, Route, Survey, Topics, Trouble, Withhold
from heliograph.types import Demux, Flow, Mux, TopicPartition
from heliograph.wire import Client, TopicMeta

log = structlog.get_logger()

Known = Callable[[], Mapping[TopicPartition, Position]]
WithholdTargets = Callable[[Collection[str]], Mapping[str, Trouble]]  # by target topic


class Surveyor(Protocol):
    """What a coordinator needs to know of topics."""

    def survey(self) -> Survey: ...

    def change(self, flow: Flow) -> None: ...

    def wish(self, tp: TopicPartition, origins: Iterable[TopicPartition]) -> bool: ...

    def forget_limits(self, remotes: Iterable[str] | None = None) -> None: ...


def survey_of(
    flow: Flow, source: Client, target: Client, *, withhold: Withhold, withhold_targets: WithholdTargets, known: Known
) -> Surveyor:
    if flow.mux is not None:
        return MuxSurvey(flow, source, target, known, withhold)
    if flow.demux:
        return DemuxSurvey(flow, source, target, known, withhold_targets)
    return Topics(flow, source, target, withhold=withhold, known=known)


def shared_partition(tp: TopicPartition, partitions: int) -> int:
    """Neighbours go to neighbours, so that a topic alone uses all of them."""
    return (murmur2(tp.topic.encode()) + tp.partition) % partitions


def put_back_as(flow: Flow, rule: Demux, topic: str) -> str | None:
    """What a topic of the rule's spoke is called where its records are put back; None: no label leads there."""
    origin, following = TopicPartition(topic, 0), Following.of(rule, flow.demux)
    return None if following.refuses(origin) else following.target(origin).topic


def put_back(routes: Iterable[Route]) -> dict[str, dict[str, str]]:
    """By shared topic: the topics that its records came from, and what they are called here."""
    found: dict[str, dict[str, str]] = {}
    for route in routes:
        for stage, remote in zip(route.stages, route.strands, strict=False):
            if isinstance(stage, PutBack) and stage.origin is not None:
                found.setdefault(route.tp.topic, {})[stage.origin.topic] = remote.topic
    return found


class MuxSurvey:
    def __init__(
        self,
        flow: Flow,
        source: Client,
        target: Client,
        known: Known,
        withhold: Withhold = lambda missing, remote_of: {},
    ) -> None:
        self.flow = flow
        self._source, self._known, self._withhold = source, known, withhold
        self._places = Places(flow, target)
        self._cluster_id = ""

    def change(self, flow: Flow) -> None:
        self.flow = flow
        self._places.flow = flow

    def wish(self, tp: TopicPartition, origins: Iterable[TopicPartition]) -> bool:
        return False

    def forget_limits(self, remotes: Iterable[str] | None = None) -> None:
        self._places.forget_limits(remotes)

    def survey(self) -> Survey:
        mux = self.flow.mux
        assert mux is not None
        wanted = self._wanted()
        awaited = sum(bool(TOPIC_NAME.fullmatch(name)) and name not in wanted for name in mux.topics)
        if not wanted:
            return Survey(awaited=awaited)
        missing = bool(self._places.absent([mux.topic]))
        withheld = self._withhold(wanted if missing else {}, dict.fromkeys(wanted, mux.topic))
        if withheld:  # one topic for all: it is made when none of them is in the way
            rest = Trouble(f"{mux.topic} is not made before it is clear what becomes of what others had in it", "")
            troubles = {name: withheld.get(name, rest) for name in wanted}
            parked = [ParkedPartition(name, None, one.reason, one.fix) for name, one in troubles.items()]
            return Survey((), tuple(parked), len(wanted))
        shared = self._places.shared(mux, self._source, wanted)
        if isinstance(shared, Unplaced):
            return Survey(
                (), tuple(ParkedPartition(name, None, shared.reason, shared.fix) for name in wanted), len(wanted)
            )
        self._cluster_id = self._cluster_id or self._source.cluster_id()
        self._places.learn_limits([mux.topic])
        routes: list[Route] = []
        parked = []
        known = self._known()
        for topic in wanted.values():
            for partition in sorted(topic.partitions):
                tp = TopicPartition(topic.name, partition)
                remote = self._remote(mux, tp, known.get(tp), shared)
                if isinstance(remote, Unplaced):
                    parked.append(ParkedPartition(*tp, remote.reason, remote.fix))
                else:
                    routes.append(self._route(mux, tp, topic, remote))
        return Survey(tuple(routes), tuple(parked), len(wanted), awaited)

    def _wanted(self) -> dict[str, TopicMeta]:
        return {
            name: topic
            for name, topic in sorted(self._source.metadata(None).topics.items())
            if topic.partitions and not topic.internal and policy.should_multiplex(self.flow, name)
        }

    def _remote(
        self, mux: Mux, tp: TopicPartition, position: Position | None, shared: int
    ) -> TopicPartition | Unplaced:
        """Invariant a."""
        if position is None or not position.targets:
            return TopicPartition(mux.topic, shared_partition(tp, shared))
        begun = position.targets[0]  # also of a new era, which nobody has claimed yet
        if begun.topic != mux.topic:
            return Unplaced(
                f"its records were begun into {begun.topic} and are now to go into {mux.topic}",
                f"put mux.topic = {begun.topic} back",
            )
        if begun.partition >= shared:
            return Unplaced(
                f"its records go into partition {begun.partition} of {mux.topic}, which has {shared} partitions now",
                f"add partitions: kafka-topics --alter --topic {mux.topic} --partitions {begun.partition + 1}",
            )
        return begun

    def _route(self, mux: Mux, tp: TopicPartition, topic: TopicMeta, remote: TopicPartition) -> Route:
        about = (self.flow.source.bootstrap, mux.topic, mux.identifier, self._cluster_id)
        limit = self._places.limit(mux.topic)
        stamp = Stamp(tp, *about, chosen(mux.headers))
        return Route(tp, topic.id, remote, limit, (remote,), (stamp,), (limit,))


@dataclass(slots=True)
class _Wishes:
    """What tasks found in the records of one shared partition."""

    origins: dict[TopicPartition, None] = field(default_factory=dict)


class DemuxSurvey:
    def __init__(
        self, flow: Flow, source: Client, target: Client, known: Known, withhold: WithholdTargets = lambda missing: {}
    ) -> None:
        self.flow = flow
        self._source, self._known, self._withhold = source, known, withhold
        self._places = Places(flow, target)
        self._wishes: dict[TopicPartition, _Wishes] = {}
        self._lock = threading.Lock()
        self._dropped: set[str] = set()  # shared topics that the file no longer names, until the next survey

    def change(self, flow: Flow) -> None:
        self._dropped = {rule.topic for rule in self.flow.demux} - {rule.topic for rule in flow.demux}
        self.flow = flow
        self._places.flow = flow

    def wish(self, tp: TopicPartition, origins: Iterable[TopicPartition]) -> bool:
        with self._lock:
            wishes = self._wishes.setdefault(tp, _Wishes()).origins
            before = len(wishes)
            wishes.update(dict.fromkeys(origins))
            return len(wishes) > before

    def forget_limits(self, remotes: Iterable[str] | None = None) -> None:
        self._places.forget_limits(remotes)

    def survey(self) -> Survey:
        dropped, self._dropped = self._dropped, set()
        if dropped:
            self._tell_left(dropped)
        rules = {rule.topic: rule for rule in self.flow.demux}
        topics = self._source.metadata(sorted(rules)).topics
        routes: list[Route] = []
        parked: list[ParkedPartition] = []
        begun = {one.topic for tp, at in self._known().items() if tp.topic in rules for one in at.targets[1:]}
        withheld = self._withhold(self._places.absent(begun))
        for name, rule in sorted(rules.items()):
            topic = topics.get(name)
            if topic is None or not topic.partitions:
                why = f"{self.flow.source.alias} has no topic {name} yet: nothing has come from {rule.spoke.alias}"
                parked.append(ParkedPartition(name, None, why, "start what multiplexes there, and the link"))
                continue
            self._routes(rule, topic, withheld, routes, parked)
        return Survey(tuple(routes), tuple(parked), len(rules))

    def _routes(
        self,
        rule: Demux,
        topic: TopicMeta,
        withheld: Mapping[str, Trouble],
        routes: list[Route],
        parked: list[ParkedPartition],
    ) -> None:
        tps = [TopicPartition(topic.name, partition) for partition in sorted(topic.partitions)]
        known, following = self._known(), Following.of(rule, self.flow.demux)
        otherwise = {tp: why for tp in tps if (why := self._begun_otherwise(known.get(tp), rule, following))}
        parked.extend(ParkedPartition(*tp, one.reason, one.fix) for tp, one in otherwise.items())
        tps = [tp for tp in tps if tp not in otherwise]
        found = {tp: self._origins(tp, known.get(tp), following) for tp in tps}
        origins = {origin for some in found.values() for origin in some}
        lost = {name: withheld[name] for one in origins if (name := following.target(one).topic) in withheld}
        parked.extend(ParkedPartition(topic.name, None, one.reason, one.fix) for _, one in sorted(lost.items()))
        placed = self._places.of_origins(rule, {one for one in origins if following.target(one).topic not in lost})
        parked.extend(ParkedPartition(topic.name, None, one.reason, one.fix) for one in placed.unplaced)
        self._places.learn_limits([topic.name, *{rule.prefix + origin.topic for origin in placed.there}])
        limit = self._places.limit(topic.name)
        for tp in tps:
            there = [origin for origin in found[tp] if origin in placed.there]
            refused = frozenset(found[tp]) & placed.refused
            strands = (tp, *map(following.target, there))
            stages: tuple[Stage, ...] = (
                PutBack(None, rule.keep_headers, refused, weight=rule.weight, following=following),
                *(PutBack(origin, rule.keep_headers, weight=rule.weight) for origin in there),
            )
            limits = (limit, *(self._places.limit(remote.topic) for remote in strands[1:]))
            routes.append(Route(tp, topic.id, tp, limit, strands, stages, limits))

    def _tell_left(self, topics: set[str]) -> None:
        """Records that nobody puts back any more."""
        stood = {tp: position.next_offset for tp, position in self._known().items() if tp.topic in topics}
        ends = self._source.list_offsets(list(stood), at="latest") if stood else {}
        for topic in sorted(topics):
            left = sum(
                max(end - stood[tp], 0) for tp, end in ends.items() if tp.topic == topic and isinstance(end, int)
            )
            if left:
                log.warning(
                    "records left in a shared topic that is no longer put back",
                    flow=self.flow.name,
                    topic=topic,
                    records=left,
                    fix="put the flow back into the file until they are, then remove it",
                )

    def _begun_otherwise(self, position: Position | None, rule: Demux, following: Following) -> Unplaced | None:
        """Records were put back under another prefix: under this one they would begin again, or each go elsewhere.
        (With none now it is told by names that labels may say only without the prefix that there would be.)"""
        before = f"{rule.spoke.alias}{self.flow.naming.separator}"
        for one in position.targets[1:] if position is not None else ():
            bare = TopicPartition(one.topic.removeprefix(before), one.partition)
            renamed = not rule.prefix and bare != one and following.refuses(one) and not following.refuses(bare)
            if renamed or not one.topic.startswith(rule.prefix):
                return Unplaced(
                    f"its records were begun into {one.topic}, and are now to be put back with "
                    + (f"the prefix {rule.prefix}" if rule.prefix else "no prefix"),
                    f"put demux = {'original' if rule.prefix else 'prefixed'} back for {rule.spoke.alias}, or let "
                    f"another shared topic (mux.topic) begin with the other",
                )
        return None

    def _origins(self, tp: TopicPartition, position: Position | None, following: Following) -> list[TopicPartition]:
        """Where records of a shared partition came from, as far as it is known: by its position, in that order, then by
        what was found since (invariant b)."""
        targets = position.targets[1:] if position is not None else ()
        known = dict.fromkeys(following.origin(one) for one in targets if not following.leads_inside(one.topic))
        with self._lock:
            found = list(self._wishes.get(tp, _Wishes()).origins)
        known.update(dict.fromkeys(one for one in found if not following.refuses(one)))
        return list(known)

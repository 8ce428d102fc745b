"""What a start would make, alter and copy: the flows of a file, rehearsed. Writes nothing.

Runs the code that really does it (`survey.topics`, `stages`, `amends`, `configs`, `acls`, `compacted`, `starts`) on
clients that only keep what they were asked to do (`review.rehearsal`). What one flow makes another may copy, heartbeats
among it, so all are gone through again until nothing new comes of it.

What would *change* is what is made, altered or begun. Records behind a position are to be copied, but change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from heliograph.errors import HeliographError
from heliograph.flow.factors import fewer_replicas
from heliograph.flow.reach import check_clusters, check_targets
from heliograph.health.status import ParkedPartition
from heliograph.mirror.incidents import Incident
from heliograph.mirror.offsetmap import Subject
from heliograph.mirror.positions import Position
from heliograph.review.rehearsal import Deed, Rehearsal, World
from heliograph.review.volume import Copy, copies
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.state.replicas import words
from heliograph.survey.amends import Amends
from heliograph.survey.stages import put_back, put_back_as, survey_of
from heliograph.survey.starts import Bounds, NoStart, Start, beginnings, bounds
from heliograph.survey.topics import Route, Survey
from heliograph.sync.acls import AclSync
from heliograph.sync.checkpoints import Checkpoints
from heliograph.sync.configs import ConfigSync
from heliograph.sync.heartbeats import Heartbeats
from heliograph.sync.putback import PutBackConfigs
from heliograph.sync.syncs import OffsetSyncs
from heliograph.types import Cluster, Flow, TopicPartition
from heliograph.wire import Client

ROUNDS = 10  # a topic comes over one hop a round; names grow with each, so chains this long are nobody's


@dataclass(frozen=True, slots=True)
class Begin:
    """A partition that has no claimed position: the start would claim one."""

    tp: TopicPartition
    offset: int
    why: str  # the rule, or whose position it goes on from


@dataclass(slots=True)
class FlowForecast:
    name: str
    deeds: list[Deed] = field(default_factory=list)
    begins: list[Begin] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    parked: list[ParkedPartition] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what somebody should know of it beforehand
    errors: list[HeliographError] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        return bool(self.deeds or self.begins)


class Worlds:
    """One for each cluster, however many aliases and flows meet there."""

    def __init__(self) -> None:
        self._by_id: dict[str, World] = {}

    def client(self, cluster: Cluster, deeds: list[Deed]) -> Rehearsal:
        with Client(cluster) as asking:
            world = self._by_id.setdefault(asking.cluster_id(), World())
        return Rehearsal(cluster, world, deeds)


def forecast(flows: Sequence[Flow], beating: Sequence[Flow] = ()) -> list[FlowForecast]:
    """Of each flow, in order; then of each pair that only sends heartbeats."""
    check_clusters(flows)
    check_targets(beating)
    fewer = {flow.name: words(fewer_replicas(flow)) for flow in (*flows, *beating)}
    worlds = Worlds()
    copying = [_Rehearsed(flow, worlds) for flow in flows]
    others = [_Beating(flow, worlds) for flow in beating]
    everybody: list[_Rehearsed | _Beating] = [*copying, *others]
    bound = structlog.contextvars.bind_contextvars(rehearsal=True)  # the code below logs as if it did it
    try:
        for _ in range(ROUNDS):
            before = sum(len(one.found.deeds) for one in everybody)
            for one in everybody:
                one.round()
            if sum(len(one.found.deeds) for one in everybody) == before:
                break
        for each in copying:
            each.measure()
        for one, flow in zip(everybody, (*flows, *beating), strict=True):
            one.found.notes += fewer[flow.name]
        return [one.found for one in everybody]
    finally:
        structlog.contextvars.reset_contextvars(**bound)
        for one in everybody:
            one.close()


class _Beating:
    """A pair that only sends heartbeats."""

    def __init__(self, flow: Flow, worlds: Worlds) -> None:
        self.found = FlowForecast(flow.name)
        self._target = worlds.client(flow.target, self.found.deeds)
        self._beats = Heartbeats(flow, self._target)

    def round(self) -> None:
        self.found.errors = _tried(self._beats.ensure)

    def close(self) -> None:
        self._target.close()


class _Rehearsed:
    """One flow, from its coordinator's opening to what its specialists do first."""

    def __init__(self, flow: Flow, worlds: Worlds) -> None:
        self.flow = flow
        self.found = FlowForecast(flow.name)
        deeds = self.found.deeds
        self._source, self._target = worlds.client(flow.source, deeds), worlds.client(flow.target, deeds)
        self._positions = _Positions(self._target, flow)
        self._offsets = OffsetMap(self._target, flow)
        self._amends = Amends(
            *(flow, self._source, self._target, self._positions, _Unwritten()),
            *(lambda tp: False, lambda: None, lambda tp: -1),  # nobody copies
        )
        self._topics = survey_of(
            *(flow, self._source, self._target),
            withhold=self._amends.withhold,
            withhold_targets=self._amends.withhold_targets,
            known=lambda: dict(self._positions.known),
        )
        spokes = {rule.spoke.alias: worlds.client(rule.spoke, deeds) for rule in flow.demux}
        self._spokes = spokes
        self._configs = ConfigSync(flow, self._source, self._target, altered=self._topics.forget_limits)
        self._back = PutBackConfigs(flow, self._target, lambda spoke: spokes[spoke.alias], self._put_back)
        self._acls = AclSync(flow, self._source, self._target)
        self._survey = Survey()  # by the last round

    def round(self) -> None:
        first = (self._positions.ensure, self._offsets.ensure, self._positions.catch_up, self._expect, self._look)
        self.found.errors = _tried(*first, *self._specialists())
        self.found.notes += self._refused()

    def _refused(self) -> list[str]:
        """What the syncs would leave undone, and why."""
        settings = self._configs.refusals | self._back.refusals
        return [
            f"{topic}: not carried over: {refusal.why}. {refusal.fix}"
            for topic, refusals in sorted(settings.items())
            for refusal in refusals
        ] + self._acls.withheld

    def _expect(self) -> None:
        """What a flow that puts back learns from records: the topics that its spokes have for it."""
        for rule in self.flow.demux:
            theirs = self._spokes[rule.spoke.alias].metadata(None).topics.values()
            origins = [
                TopicPartition(topic.name, partition)
                for topic in theirs
                if not topic.internal and put_back_as(self.flow, rule, topic.name) is not None
                for partition in topic.partitions
            ]
            self._topics.wish(TopicPartition(rule.topic, 0), origins)

    def _look(self) -> None:
        self._survey = self._amends.judge(self._topics.survey())
        self._amends.settle(self._survey.routes)
        self.found.parked = list(self._survey.parked)
        self.found.notes = _labelled(self.flow, self._survey) if self.flow.staged else _divided(self._survey)

    def _specialists(self) -> list[Callable[[], object]]:
        """In the order and under the conditions of `flow.specialists`."""
        flow, does = self.flow, list[Callable[[], object]]()
        if flow.emit_heartbeats_s is not None:
            does.append(Heartbeats(flow, self._target).ensure)
        if flow.emit_offset_syncs:
            does.append(OffsetSyncs(flow, self._source, self._target).ensure)
            if flow.emit_checkpoints_s is not None:
                checkpoints = Checkpoints(flow, self._source, self._target, self._offsets, self._positions)
                does.append(checkpoints.ensure)
        if flow.sync_topic_configs_s is not None:
            does.append(lambda: self._configs.sync(self._pairs()))
        if flow.sync_topic_acls_s is not None:
            does.append(lambda: self._acls.sync(self._pairs()))
        if flow.demux:
            does.append(self._back.sync)
        return does

    def _put_back(self) -> dict[str, dict[str, str]]:
        return put_back(self._survey.routes)

    def _pairs(self) -> dict[str, str]:
        return {route.tp.topic: route.remote.topic for route in self._survey.routes}

    # ---------------------------------------------------------------- what is to be copied

    def measure(self) -> None:
        self.found.errors += _tried(self._measure)

    def _measure(self) -> None:
        tps = [route.tp for route in self._survey.routes]
        known = self._positions.known
        places = beginnings(self.flow, self._source, tps, known)
        logs = bounds(self._source, tps)
        left: dict[TopicPartition, int] = {}
        for tp in tps:
            place, log = places[tp], logs[tp]
            if isinstance(place, NoStart):
                self.found.parked.append(ParkedPartition(*tp, place.reason, place.fix))
                continue
            if tp not in known or not known[tp].claimed:
                self.found.begins.append(Begin(tp, place.offset, _why(place, tp in self._positions.anew)))
            if isinstance(log, Bounds):
                left[tp] = max(log.end - max(place.offset, log.start), 0)
        remotes = {route.tp.topic: _remote(route) for route in self._survey.routes}
        self.found.copies = copies(self._source, left, logs, remotes)

    def close(self) -> None:
        for client in (self._source, self._target, *self._spokes.values()):
            client.close()


class _Positions(PositionsLog):
    """New eras are kept, not written."""

    def __init__(self, client: Client, flow: Flow) -> None:
        super().__init__(client, flow)
        self.anew: set[TopicPartition] = set()

    def catch_up(self) -> Mapping[TopicPartition, Position]:
        return super().catch_up() if self.find() else self.known

    def _restore(self, lost: Sequence[tuple[TopicPartition, Position]]) -> None:
        """A plan writes nothing."""

    def write(self, entries: Mapping[TopicPartition, Position | None]) -> None:
        self.anew |= entries.keys()
        self.known |= {tp: position for tp, position in entries.items() if position is not None}


class _Unwritten:
    """Incidents that would be."""

    def told(self, subject: Subject, at: int) -> frozenset[tuple[str, int, str]]:
        return frozenset()

    def write(self, incident: Incident) -> None:
        """Not by a rehearsal."""


def _divided(survey: Survey) -> list[str]:
    """What is not as in other topics where the numbers of partitions differ."""
    counts: dict[str, int] = {}
    copies: dict[str, int] = {}
    for route in survey.routes:
        if route.strands:
            counts[route.tp.topic] = counts.get(route.tp.topic, 0) + 1
            copies[route.tp.topic] = len(route.strands)
    return [
        f"{topic}: {count} partitions become {copies[topic]}, by Kafka's default partitioner; offsets translated at "
        f"least once, not exactly: partition counts differ"
        for topic, count in sorted(counts.items())
    ]


def _labelled(flow: Flow, survey: Survey) -> list[str]:
    """What is not as in other flows where records travel together."""
    if flow.mux is not None:
        return [f"{survey.topics} topics travel together in {flow.mux.topic}"] if survey.routes else []
    return ["a topic that records are put back into is made when the first of them comes"] if survey.routes else []


def _remote(route: Route) -> str:
    return "the topics that its records came from" if len(route.stages) > 1 else route.remote.topic


def _why(place: Start, anew: bool) -> str:
    if anew:
        return "begun anew: its topic, or its copy, is not the one that was there"
    if place.point is None:
        return "where MM2, or an operator, left it"
    return f"{place.point}" + (f" ({place.note})" if place.note else "")


def _tried(*does: Callable[[], object]) -> list[HeliographError]:
    """Each of these, whatever becomes of the others."""
    errors = []
    for do in does:
        try:
            do()
        except HeliographError as error:
            errors.append(error)
    return errors

"""What an epoch's tasks are told: which partitions, with which lanes, by which claims. The coordinator's right hand.

Answers for who copies what. Whether there is an epoch, and when it ends, is the coordinator's affair; that a partition
is in one assignment at most follows from `plan.deal`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import replace

from heliograph import policy
from heliograph.flow.caps import Caps
from heliograph.flow.observer import Observer
from heliograph.flow.plan import deal, task_count
from heliograph.flow.sizing import Sizing
from heliograph.flow.tally import Tally
from heliograph.mirror.assignment import Assignment, Coordinates, LaneSpec
from heliograph.mirror.offsetmap import Subject
from heliograph.state.incidents import Incidents
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.survey.staged import may_begin, staged_lanes
from heliograph.survey.topics import Route
from heliograph.types import STORAGE_FACTOR, Flow, TopicPartition

# An epoch's length, in parts of what was asked for. Flows that begin together would turn the page together every time:
# with twenty flows on two cores each turn cost all of them a second or two.
APART = (0.8, 1.2)


class Assignments:
    def __init__(
        self,
        flow: Flow,
        coordinates: Coordinates,
        epoch_seconds: float,
        positions: PositionsLog,
        offsets: OffsetMap,
        incidents: Incidents,
        *,
        observer: Observer,
        tally: Tally,
        caps: Caps,
        sizing: Sizing,
    ) -> None:
        self._flow, self._coordinates, self._epoch_seconds = flow, coordinates, epoch_seconds
        self._positions, self._offsets, self._incidents = positions, offsets, incidents
        self._observer, self._tally, self._caps, self._sizing = observer, tally, caps, sizing
        self._shares: list[list[TopicPartition]] = []  # as they were dealt last: who has a partition keeps it

    def change(self, flow: Flow) -> None:
        self._flow = flow

    def of(
        self, epoch: int, routes: Iterable[Route], *, halted: frozenset[TopicPartition], relay: bool
    ) -> list[Assignment]:
        """One for each task. `relay`: tasks of the last epoch go on until these are ready."""
        flow, annals = self._flow, policy.annals_of(self._flow)
        by_tp = {route.tp: route for route in routes if self._may_begin(route)}
        tasks = task_count(len(by_tp), flow.tasks_max, os.cpu_count() or 1)
        rates = self._tally.rates()
        self._shares = deal(sorted(by_tp), tasks, rates, self._shares)
        shares = self._caps.begin(epoch, self._shares, {tp: rates[tp] for tp in rates.keys() - halted})
        self._sizing.begin(epoch, len(self._shares), len(by_tp))
        seconds = self._epoch_seconds * random.uniform(*APART)
        return [
            Assignment(
                flow=flow.name,
                source=flow.source,
                target=flow.target,
                isolation=flow.isolation,
                positions_topic=self._positions.topic,
                positions_partitions=self._positions.partitions,
                map_topic=self._offsets.topic,
                map_partitions=self._offsets.partitions,
                epoch=epoch,
                task=task,
                seconds=seconds,
                lanes=tuple(spec for tp in share for spec in self._lanes(by_tp[tp])),
                coordinator=self._coordinates,
                incidents_topic=policy.incidents_topic(annals),
                quarantine_topic=policy.quarantine_topic(annals),
                storage_factor=flow.factor(STORAGE_FACTOR),
                on=flow.on,
                halted=halted,
                caps=self._caps.caps,
                shares=shares[task],
                positions_under=flow.positions_under[0],
                relay=relay,
            )
            for task, share in enumerate(self._shares)
        ]

    def _may_begin(self, route: Route) -> bool:
        """It has a claim, and of the shape that we would copy it in: another process may have been told otherwise."""
        position = self._positions.known.get(route.tp)
        if position is None or not position.claimed:
            return False
        if route.stages:
            return may_begin(route, position)
        return len(position.strands) == len(route.strands) and not position.targets

    def _lanes(self, route: Route) -> list[LaneSpec]:
        """One, or a strand for each remote partition."""
        position = self._positions.known[route.tp]
        told = self._incidents.told(Subject(route.tp, route.topic_id), position.next_offset)
        history = self._observer.is_history(route.tp)
        if route.stages:
            return staged_lanes(route, position, told, history=history)
        if route.strands:
            return [
                LaneSpec(
                    *(route.tp, route.topic_id, remote, own, route.max_batch_bytes),
                    last_run=self._offsets.last_point(route.tp, remote.partition, route.topic_id, own.producer_id),
                    told=told,
                    strands=len(route.strands),
                    history=history,
                )
                for remote, own in zip(route.strands, position.strands, strict=True)
            ]
        last_run = self._offsets.last_run(route.tp, replace(position, topic_id=route.topic_id))
        place = (route.tp, route.topic_id, route.remote, position, route.max_batch_bytes)
        return [LaneSpec(*place, last_run, told, history=history)]

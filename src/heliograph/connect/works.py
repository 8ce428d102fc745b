"""A connector's work on this node: a flow that copies, or what stands beside one. Begun, paused, ended, looked at.

Answers for one way to treat both. What is wrong at the beginning is raised; what goes wrong later is in the look.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import structlog

from heliograph import policy
from heliograph.flow import changes
from heliograph.flow.charge import Charge
from heliograph.flow.coordinator import Coordinator
from heliograph.flow.factors import check_factors
from heliograph.flow.hub import Hub
from heliograph.flow.reach import check_clusters, check_targets
from heliograph.flow.specialists import Specialists
from heliograph.health.status import FlowReport, PartitionStatus
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.types import Flow
from heliograph.wire import Client

if TYPE_CHECKING:
    from heliograph.flow.runner import EngineOnce

log = structlog.get_logger()

BY = "the connector's target state"
MORE_SHOWN = 5  # partitions that a task's trace names
STALLED_S = 10.0  # one that just began, or just moved, is not worth a word


@dataclass(frozen=True, slots=True)
class TaskLook:
    """One of the tasks that Connect's users expect to see: a share of the partitions, as MM2 would deal them."""

    trace: str = ""  # "": it runs
    settings: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""  # although it runs: partitions that do not follow their sources


@dataclass(frozen=True, slots=True)
class WorkLook:
    trace: str = ""  # "": it runs
    trouble: str = ""  # although it runs
    starting: bool = False  # nobody copies yet
    restarting: bool = False
    tasks: tuple[TaskLook, ...] = ()
    topics: Mapping[str, int] = field(default_factory=dict)  # written to so far, each with a count that grows


class Work(Protocol):
    def check(self) -> None:
        """Raises what is wrong with its clusters. Nothing is written, and little is started."""

    def begin(self, *, paused: bool) -> None: ...
    def pause(self, paused: bool) -> None: ...
    def take_up(self, flow: Flow) -> bool:
        """Another configuration, as it goes; False where it has to begin anew for it."""

    def end(self) -> None: ...
    def look(self) -> WorkLook: ...


class Copying:
    """A source connector's."""

    def __init__(self, flow: Flow, hub: Hub, engine: EngineOnce, *, epoch_seconds: float, file: str) -> None:
        self._flow, self._hub, self._engine = flow, hub, engine
        self._epoch_seconds, self._file = epoch_seconds, file
        self._coordinator: Coordinator | None = None
        self._charge: Charge | None = None

    def check(self) -> None:
        check_clusters([self._flow])
        check_factors([self._flow])

    def begin(self, *, paused: bool) -> None:
        engine = self._engine.get()
        coordinator = Coordinator(self._flow, self._hub.coordinates, epoch_seconds=self._epoch_seconds, file=self._file)
        coordinator.tenure.let_go = self._asked_to_let_go
        self._hub.add(self._flow.name, coordinator)
        self._coordinator = coordinator
        coordinator.open()
        self.pause(paused)
        self._charge = Charge(coordinator, engine, self._hub.coordinates, opened=True)
        self._charge.start()

    def pause(self, paused: bool) -> None:
        """An order of ours that a node before us left behind is taken back as well."""
        if self._coordinator is None:
            return
        standing = any(one.topic is None for one in self._coordinator.status().orders)
        if paused != standing:
            self._coordinator.steer((None, None), "paused" if paused else "running", BY)

    def take_up(self, flow: Flow) -> bool:
        if self._coordinator is None or changes.way(self._flow, flow) is not changes.Way.ALIVE:
            return False
        log.info("changed as it goes", flow=flow.name, did=self._coordinator.change(flow))
        self._flow = flow
        return True

    def end(self) -> None:
        if self._coordinator is None:
            return
        try:
            if self._charge is not None:
                self._charge.end()
            else:
                self._coordinator.stop()
                self._coordinator.close()
        finally:
            self._hub.remove(self._flow.name, self._coordinator)

    def look(self) -> WorkLook:
        if self._coordinator is None:
            return WorkLook("not begun")
        report = self._coordinator.report()
        status = report.status
        # Without seconds: each would be another status to write down.
        trouble = (report.because or status.state) if status.state in ("failed", "restarting") else ""
        topics: dict[str, int] = {}
        for one in report.partitions:
            if one.counters.get("records", 0):
                topics[one.remote_topic] = topics.get(one.remote_topic, 0) + one.counters["records"]
        parked = "\n".join(f"{one.topic}: {one.reason}. {one.fix}" for one in status.parked if one.partition is None)
        starting = _is_starting(report)
        return WorkLook(
            trace=trouble,
            trouble=parked or (report.because if starting else ""),
            starting=starting,
            restarting=status.state == "restarting",
            tasks=_shares(self._flow, report),
            topics=topics,
        )

    def _asked_to_let_go(self, state: str, why: str) -> None:
        """Who runs a connector is the group's decision, not the first come's."""
        log.warning("somebody else runs this connector's flow with other settings", flow=self._flow.name, why=why)


def _shares(flow: Flow, report: FlowReport) -> tuple[TaskLook, ...]:
    """Partitions dealt round, as MM2 deals them."""
    partitions = sorted(report.partitions, key=lambda one: (one.topic, one.partition))
    parked = {(one.topic, one.partition): one for one in report.status.parked}
    count = min(flow.tasks_max or 1, len(partitions))
    shares = [partitions[n::count] for n in range(count)]
    looks = []
    for index, share in enumerate(shares):
        ended = [one for one in share if (one.topic, one.partition) in parked or (one.topic, None) in parked]
        stalled = [one for one in share if one.state == "stalled" and one.stalled_s >= STALLED_S and one not in ended]
        named = ",".join(f"{one.topic}-{one.partition}" for one in share)
        settings = {"task.index": str(index), "task.assigned.partitions": named}
        looks.append(TaskLook(_named(ended), settings, _named(stalled)))
    return tuple(looks)


def _is_starting(report: FlowReport) -> bool:
    """Until a task has come: before that nobody copies, whatever the coordinator sees of the sources."""
    status = report.status
    first = bool(report.partitions) and not status.tasks and not status.records and report.epochs <= 1
    return status.state == "starting" or (first and status.state in ("running", "stalled"))


def _named(ill: Sequence[PartitionStatus]) -> str:
    """Without seconds, which would be another word each time."""
    words = [f"{one.topic}-{one.partition}: {one.state}: {one.because or one.reason}" for one in ill[:MORE_SHOWN]]
    if len(ill) > MORE_SHOWN:
        words.append(f"… and {len(ill) - MORE_SHOWN} more partitions")
    return "\n".join(words)


class Beside:
    """A checkpoint or a heartbeat connector's."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._clients: list[Client] = []
        self._specialists: Specialists | None = None
        self._paused = False

    def check(self) -> None:
        if self._flow.enabled:
            check_clusters([self._flow])
        else:
            check_targets([self._flow])
        check_factors([self._flow])

    def begin(self, *, paused: bool) -> None:
        self._paused = paused
        flow = self._flow
        if not flow.enabled:
            self._specialists = Specialists(flow)
        else:
            target = Client(flow.target, timeout_s=flow.admin_timeout_s)
            self._clients.append(target)
            offsets, positions = OffsetMap(target, flow), PositionsLog(target, flow)
            positions.ensure()
            offsets.ensure()
            self._specialists = Specialists(flow, offsets, positions)
        self._specialists.resting = lambda: self._paused
        self._specialists.start()

    def pause(self, paused: bool) -> None:
        self._paused = paused

    def take_up(self, flow: Flow) -> bool:
        return False  # to begin anew costs it nothing

    def end(self) -> None:
        if self._specialists is not None:
            self._specialists.stop()
            self._specialists.close()
        for client in self._clients:
            client.close()

    def look(self) -> WorkLook:
        if self._specialists is None:
            return WorkLook("not begun")
        trace = "\n".join(self._specialists.troubles)
        alias = self._flow.source.alias
        if not self._flow.enabled:
            settings = {"source.cluster.alias": alias, "target.cluster.alias": self._flow.target.alias}
            age_s = self._specialists.heartbeat_age_s
            topics = {"heartbeats": int(time.monotonic() - age_s)} if age_s is not None else {}
            return WorkLook(trouble=trace, tasks=(TaskLook(trace, settings),), topics=topics)
        latencies, checkpoints = self._specialists.checkpoint_latencies, self._specialists.checkpoints
        written = latencies is not None and bool(latencies.spreads())
        topics = {policy.of(self._flow).checkpoints_topic(alias): int(time.monotonic())} if written else {}
        groups = checkpoints.groups if checkpoints is not None else ()
        count = min(self._flow.tasks_max or 1, len(groups))
        shares = [groups[len(groups) * n // count : len(groups) * (n + 1) // count] for n in range(count)]
        settings_of = [{"task.index": str(n), "task.assigned.groups": ",".join(some)} for n, some in enumerate(shares)]
        return WorkLook(trouble=trace, tasks=tuple(TaskLook(trace, one) for one in settings_of), topics=topics)

"""One flow's coordinator: it decides what is copied by whom, and knows how it goes. No payload passes here.

It lives in the driver. Spark's planner asks it for epochs (`next_epoch`, `plan`) and tasks report to it, both through
the hub. Between epochs it re-reads positions, claims producer ids for new partitions (rule G) and deals partitions out;
a thread of its own looks for new topics and ends the epoch early when the plan must change.

Invariants:
  a. A partition is in at most one assignment of an epoch. (Were it in two, rules E and F would still keep one copy.)
  b. Every assigned partition has a claimed position and a remote partition that exists.
  c. `plan(n)` always answers the same for the same n: Spark may ask more than once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog

from heliograph.batch import Record
from heliograph.errors import HeliographError
from heliograph.flow import changes
from heliograph.flow import report as reports
from heliograph.flow.assignments import Assignments
from heliograph.flow.caps import Caps
from heliograph.flow.factors import LOOK_EVERY_S as REPLICAS_EVERY_S
from heliograph.flow.factors import ReplicaWatch
from heliograph.flow.handover import Handover
from heliograph.flow.helm import Helm, Steered
from heliograph.flow.leadership import Leadership
from heliograph.flow.lease import Lease
from heliograph.flow.observer import Observer
from heliograph.flow.orders import LOOK_EVERY_S as ORDERS_EVERY_S
from heliograph.flow.orders import Orders
from heliograph.flow.presence import BEAT_S, Presence
from heliograph.flow.reach import same_cluster
from heliograph.flow.relay import Channel, Relay, Released, TaskKey
from heliograph.flow.report import Course, Look
from heliograph.flow.sizing import Sizing
from heliograph.flow.specialists import Specialists
from heliograph.flow.tally import Tally
from heliograph.flow.tenure import Tenure
from heliograph.health.recovery import Recovery
from heliograph.health.status import FlowReport, FlowStatus, Scope, Word
from heliograph.mirror.assignment import Assignment, Coordinates, LaneSpec
from heliograph.mirror.protocol import (
    Finish,
    Go,
    LanePosition,
    PartitionReport,
    Positions,
    Report,
    SetPolicies,
    Shares,
    Turn,
)
from heliograph.state.incidents import LOOK_EVERY_S, Incidents
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.survey.amends import Amends
from heliograph.survey.claims import Claims
from heliograph.survey.stages import put_back, survey_of
from heliograph.survey.topics import Route, Survey
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client
from heliograph.wire.internal_errors import InternalErrors

log = structlog.get_logger()

ASK_AGAIN_S = 0.5  # how long Spark's question for an epoch is held when there is none
TROUBLE_BACKOFF_S = (1.0, 30.0)
FOLLOW_EVERY_S = 3.0  # how far another process has copied
SOONEST_LOOK_S = 0.05  # for topics again, however long the last look took
LOOKS_S = 86_400.0  # a flow that looks for topics less often than daily was told not to
ORDER_TIMEOUT_S = 5.0  # for writing an order down: somebody waits for the answer


class Coordinator:
    def __init__(self, flow: Flow, coordinates: Coordinates, *, epoch_seconds: float, file: str = "") -> None:
        self.flow = flow
        self._source, self._target = Client(flow.source), Client(flow.target)
        self._planner = Client(flow.target)  # planning must not wait behind the watcher's calls
        self._tally, self._relay = Tally(), Relay()
        self._caps = Caps(flow.caps, self._tally)
        self._sizing = Sizing(flow)
        self._positions = PositionsLog(self._planner, flow)
        self._incidents = Incidents(flow)
        self._amends = Amends(
            *(flow, self._source, self._target, self._positions, self._incidents),
            *(self._is_copied, self._relay.end_all, self._tally.reached),
        )
        self._topics = survey_of(
            *(flow, self._source, self._target),
            withhold=self._amends.withhold,
            withhold_targets=self._amends.withhold_targets,
            known=lambda: dict(self._positions.known),
        )
        self._offsets = OffsetMap(self._planner, flow)
        self._handover = Handover(self._positions, self._offsets)
        self._claims = Claims(flow, self._source, self._target, self._positions, self._offsets)
        self._survey = Survey()
        self._presence = Presence(flow, Client(flow.target, timeout_s=flow.admin_timeout_s), file)
        self.tenure = Tenure(self._presence)
        self.leadership = Leadership(self._presence)
        self.supersedes = False  # whether no process runs the flow otherwise: it was looked for (`tenure.settle`)
        self._lease = Lease(self._presence, self.tenure, look=self._look_for_orders, reread=self._reread)
        orders = Orders(flow, Client(flow.target, timeout_s=ORDER_TIMEOUT_S), others=self._hear)
        self._observer = Observer(self._tally, order_of=orders.of)
        self._helm = Helm(
            *(flow.name, orders, self._relay, self._observer),
            partitions=self._copied_partitions,
            planned=self._planned,
            replan=self._replan,
        )
        self._assignments = Assignments(
            *(flow, coordinates, epoch_seconds, self._positions, self._offsets, self._incidents),
            observer=self._observer,
            tally=self._tally,
            caps=self._caps,
            sizing=self._sizing,
        )
        self._recovery = Recovery()
        self._specialists = self._make_specialists()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stopping = False
        self._outdated = False  # the plan was made of a survey that is no longer the last
        self._plans: dict[int, list[Assignment]] = {}
        self._epoch = 0
        self._read_in_term = 0  # of the leadership: positions were read since it began
        self._trouble = ""
        self._course = Course()
        self._look_now = False  # for topics, whatever the interval says
        self._policies: SetPolicies | None = None  # since they changed; replaced, never changed
        self._dealing = threading.Lock()  # shares are numbered in the order in which they are dealt
        self._dealt = 1
        self.generation = 1  # of the file; whoever changes the flow says which
        self._unforeseen = InternalErrors(f"watch-{flow.name}")
        self._watcher = threading.Thread(target=self._watch, name=f"watch-{flow.name}", daemon=True)

    def _make_specialists(self) -> Specialists:
        made = Specialists(self.flow, self._offsets, self._positions, self._copied_topics, self._topics.forget_limits)
        if self.flow.demux:
            made.follow(self._put_back_topics, self._topics.forget_limits)
        made.watch(self._observer, self._copied_partitions, self._recover)
        made.also("incidents", self._incidents.look, LOOK_EVERY_S)
        made.also("orders", self._look_for_orders, ORDERS_EVERY_S)
        made.also("presence", self._lease.beat, BEAT_S, delay_s=0.0)
        made.also("standby", self._follow, FOLLOW_EVERY_S)
        self._replicas = ReplicaWatch(lambda: self.flow, self._source, self._target)
        made.also("replicas", self._replicas.look, REPLICAS_EVERY_S, delay_s=0.0)
        made.resting = lambda: self._helm.stopped
        made.leads = lambda: self.leadership.leads
        return made

    def _hear(self, record: Record) -> None:
        self.tenure.hear(record)
        self.leadership.hear(record)

    def _look_for_orders(self) -> None:
        self._helm.look()
        self.tenure.judge()
        self._judge_leadership()

    def _judge_leadership(self) -> None:
        led = self.leadership.leads
        changed = self.leadership.judge()
        self._tell_leadership(led)  # before the beat, which may fail: another process copies already
        if changed and not (self.tenure.lapsed or self.tenure.gone):
            self._presence.beat()  # at once: others wait for it, or would claim as well

    def _tell_leadership(self, led: bool) -> None:
        """To tasks and the planner, if it changed."""
        if led == self.leadership.leads:
            return
        if led:
            self._relay.send_all(Finish())
        with self._changed:
            self._changed.notify_all()

    # ---------------------------------------------------------------- the lease

    def _reread(self) -> None:
        """After this process was silent: an operator may have set positions, or another process copied meanwhile."""
        moved = self._moved()
        if moved:
            log.warning("positions were set meanwhile: tasks restart from them", flow=self.flow.name, partitions=moved)
            self._relay.send_all(Finish(abandon=True))
            self._replan()

    def _moved(self) -> list[str]:
        """Partitions of the plan whose position another process or an operator has started anew."""
        known = self._positions.catch_up()
        with self._lock:
            lanes = [lane for plan in self._plans.values() for a in plan for lane in a.lanes if lane.position.claimed]
        ids = {
            tp: {position.producer_id, *(one.producer_id for one in position.strands)} for tp, position in known.items()
        }
        return sorted({str(lane.tp) for lane in lanes if lane.position.producer_id not in ids.get(lane.tp, ())})

    # ---------------------------------------------------------------- life

    def open(self) -> None:
        """Reach both clusters and make ready. Raises what is wrong with them, before anything is written."""
        source_id, target_id = self._source.cluster_id(), self._target.cluster_id()
        if source_id == target_id and not self.flow.staged:
            raise same_cluster(self.flow, source_id)
        self._positions.ensure()
        self._offsets.ensure()
        self._helm.begin()
        self.tenure.claim(supersede=self.supersedes)
        self._lease.begin()
        self._presence.beat()  # before positions are read: whoever would set them by hand from here on sees it
        for _ in range(2):  # claim the leadership, and read the claim back
            self._look_for_orders()
        self._positions.catch_up()
        self._offsets.catch_up()
        try:
            self._incidents.look()
        except HeliographError as error:  # whoever may not read them may still copy
            self._troubled("reading incidents", error)
        self._survey = self._amends.judge(self._topics.survey())
        self._observe(self._survey)
        self._helm.obey()
        self._watcher.start()
        self._specialists.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._specialists.stop()
        self._relay.send_all(Finish())

    @property
    def working(self) -> bool:
        """Whether tasks are still connected."""
        return self._relay.busy

    def close(self) -> None:
        self._specialists.close()
        if self._specialists.has_ended("presence"):  # a beat that hangs has the connection
            self._presence.leave()
        self._presence.close()
        for client in (self._source, self._target, self._planner, self._incidents, self._helm.orders):
            client.close()

    # ---------------------------------------------------------------- what Spark asks

    def last_epoch(self) -> int:
        """Where a query begins to count: behind what any query before it planned, so that no two epochs are called the
        same."""
        with self._lock:
            return self._epoch

    def has_work(self, timeout_s: float) -> bool:
        """Whether there is something to copy, now or within this time."""
        with self._changed:
            return bool(self._changed.wait_for(self._plannable, timeout_s))

    def next_epoch(self, after: int) -> int:
        """The next epoch if there is work for one; otherwise `after` again, after a short wait."""
        with self._changed:
            routes = self._changed.wait_for(self._plannable, ASK_AGAIN_S)
            if not routes:
                return after
            self._outdated = False
        try:
            assignments = self._assign_held(after + 1, routes)
        except HeliographError as error:
            self._troubled("planning", error)
            time.sleep(ASK_AGAIN_S)
            return after
        if not assignments:
            time.sleep(ASK_AGAIN_S)  # none may begin: an epoch without tasks would end at once, and so on
            return after
        with self._lock:
            self._trouble = ""
            self._course.epochs += 1
            self._epoch = after + 1
            self._plans = {after + 1: assignments}
        self._relay.turn_to(after + 1, len(assignments))
        return after + 1

    def _assign_held(self, epoch: int, routes: tuple[Route, ...]) -> list[Assignment]:
        """None while the flow is not held. A plan in the making of which the lease lapsed is not followed."""
        if not self._may_plan():
            return []
        lapses = self._lease.lapses
        assignments = self._assign(epoch, routes)
        return assignments if self._may_plan() and lapses == self._lease.lapses else []

    def _may_plan(self) -> bool:
        """A process that was frozen looks first. One whose beats fail, since a leader is away, copies on: whoever wants
        to change the flow cannot reach that leader either."""
        try:
            held = self._lease.holds()
        except HeliographError:
            if self._lease.frozen:
                raise
            held = not self.tenure.gone
        return held and self.leadership.leads  # it may have yielded just now, when it looked

    def _plannable(self) -> tuple[Route, ...]:
        if self._stopping or not self.leadership.leads:
            return ()
        return self._helm.plannable(self._survey.routes)

    def plan(self, epoch: int) -> list[Assignment]:
        with self._lock:
            return self._plans.get(epoch, [])

    def _assign(self, epoch: int, routes: tuple[Route, ...]) -> list[Assignment]:
        with self._lock:
            self._handover.expect({(a.epoch, a.task) for plan in self._plans.values() for a in plan})
        terms = self.leadership.terms
        if terms != self._read_in_term or not self._handover.all_told:  # another process may have copied meanwhile
            self._positions.catch_up()
            self._read_in_term = terms
        self._positions.repair()
        self._amends.settle(routes)
        relay = self._relay.busy  # tasks of the last epoch go on until these are ready
        if self._claims.claim(routes):
            self._observe(self._survey)
        self._offsets.catch_up()  # after the positions: the map is never behind them (its invariant a)
        return self._assignments.of(epoch, routes, halted=self._helm.halted, relay=relay)

    # ---------------------------------------------------------------- what tasks say

    def joined(self, task: TaskKey, channel: Channel) -> None:
        self._observer.joined(task)
        self._relay.joined(task, channel)
        if task[2] > 0:
            _beside(lambda: channel.send(Positions(self._standing(task))), "positions")
        with self._dealing:
            if share := self._caps.share(task):
                channel.send(Shares(self._dealt, share))
        with self._lock:
            ending, outdated = self._stopping or not self.leadership.leads, self._outdated
        if ending or outdated:
            channel.send(Finish() if ending else Turn())
        if (policies := self._policies) is not None:  # it may have been planned before
            channel.send(policies)
        self._helm.joined(channel)

    def _standing(self, task: TaskKey) -> list[LanePosition]:
        """For a repeated attempt, or one that takes over: where its partitions stand now. Reads topics, maybe."""
        with self._lock:
            plan = self._plans.get(task[0], ())
            assigned = list(dict.fromkeys(lane.tp for a in plan if a.task == task[1] for lane in a.lanes))
        try:
            return self._handover.standing(assigned, attempt=task[2])
        except HeliographError as error:
            self._troubled("reading positions for a task", error)
            return []

    def reported(self, task: TaskKey, report: Report) -> None:
        self._tally.add(task, report)
        self._observer.reported(task, report)
        self._sizing.reported(task, report)
        self._share(task, report)
        for lane in report.lanes:
            self._specialists.copied(lane.tp, lane.run)
        for lane in report.lanes:
            if lane.unknown and self._topics.wish(lane.tp, [TopicPartition(*one) for one in lane.unknown]):
                self._look_again()
        wished = [self._wished(lane) for lane in report.lanes if lane.wish]
        if any(wished):
            self._replan()
        if report.final:
            self._handover.heard(task[:2], report.lanes)

    def _share(self, task: TaskKey, report: Report) -> None:
        with self._dealing:
            dealt = self._caps.reported(task, report)
            self._dealt += bool(dealt)
            revision = self._dealt
        for other, shares in dealt.items():
            self._relay.send(task[0], other, Shares(revision, shares))

    def _wished(self, lane: PartitionReport) -> bool:
        whose = {TopicPartition(topic, partition): producer for topic, partition, producer in lane.wished}
        return self._amends.wished(lane.tp, lane.wish, lane.producer_id, whose)

    def ready(self, task: TaskKey, request: int, channel: Channel) -> None:
        self._release(self._relay.ready(task, request, channel))

    def gave_up(self, task: TaskKey, request: int, channel: Channel) -> None:
        log.info("task begins without its predecessor's last positions", flow=self.flow.name, task=task)
        self._release(self._relay.gave_up(task, request, channel))

    def left(self, task: TaskKey, channel: Channel) -> None:
        current, free = self._relay.left(task, channel)
        if current:
            self._observer.left(task)
        self._release(free)

    def _release(self, free: list[Released]) -> None:
        """Beside the thread that reads a task's messages: positions may have to be read first (invariant b of hub)."""
        if free:
            _beside(lambda: self._let_go(free), "release")

    def _let_go(self, free: list[Released]) -> None:
        for one in free:
            lanes = self._standing(one.key)
            if self._relay.may_go(one):
                one.channel.send(Go(one.request, lanes))
            else:
                log.info("task no longer waits to begin", flow=self.flow.name, task=one.key, request=one.request)

    # ---------------------------------------------------------------- new topics

    def _replan(self) -> None:
        """Some partition is to begin anew, which only a plan can do."""
        with self._changed:
            self._outdated = True
            self._changed.notify_all()
        self._relay.send_all(Turn())

    def _is_copied(self, tp: TopicPartition) -> bool:
        """Also where this process stands by: it cannot know of the other's tasks."""
        if not self.leadership.leads:
            return True
        with self._lock:
            planned = any(_reaches(lane, tp) for plan in self._plans.values() for a in plan for lane in a.lanes)
        return self._relay.turning or (planned and self._relay.busy)

    def _copied_topics(self) -> dict[str, str]:
        with self._lock:
            return {r.tp.topic: r.remote.topic for r in self._survey.routes if not r.stages}

    def _put_back_topics(self) -> dict[str, dict[str, str]]:
        with self._lock:
            return put_back(self._survey.routes)

    def _planned(self) -> set[TopicPartition]:
        with self._lock:
            return {lane.tp for plan in self._plans.values() for a in plan for lane in a.lanes}

    def _copied_partitions(self) -> list[TopicPartition]:
        with self._lock:
            return [r.tp for r in self._survey.routes]

    def _recover(self) -> None:
        """Partitions that stall while nothing is in their way get new tasks. Calls no cluster."""
        led = self.leadership.leads
        self.leadership.stop_if_cut_off(self._lease.silent_s)
        self._tell_leadership(led)
        if not self.leadership.leads:
            self._observer.freed(self._copied_partitions())  # they are not this process's to move
            return
        ill = self._recovery.due(self._observer.verdicts(self._look().because), time.monotonic())
        if ill:
            log.warning("stalled for no reason: tasks begin anew", flow=self.flow.name, partitions=list(map(str, ill)))
            self._relay.send_all(Finish())  # not to hand over: what they hold is what stalls

    def _follow(self) -> None:
        """Where the process stands that copies: shown here too, and what `run --until-current` waits for."""
        if not self.leadership.leads:
            known = self._positions.catch_up()
            self._observer.followed({tp: position.next_offset for tp, position in known.items()})

    def _watch(self) -> None:
        wait = self._interval()
        while not self._wait_stopping(wait):
            if self._helm.stopped:
                continue
            began = time.monotonic()
            try:
                self._take(self._amends.judge(self._topics.survey()))
            except Exception as error:  # noqa: BLE001 - top of a loop: a thread that dies finds no topic any more
                known = error if isinstance(error, HeliographError) else self._unforeseen.answer(error)
                self._troubled("looking for topics", known)
                wait = min(max(wait, TROUBLE_BACKOFF_S[0]) * 2, TROUBLE_BACKOFF_S[1])
                continue
            # From the beginning of one look to that of the next, as MM2 counts: a look takes a second where many wait.
            wait = max(self._interval() - (time.monotonic() - began), SOONEST_LOOK_S)

    def _interval(self) -> float:
        # A partition that waits for its remote topic, a flow that has none yet, and one whose topics are about to be
        # made are looked at more often; the last only if it is to look at all.
        interval = self.flow.refresh_topics_interval_seconds
        awaits = self._survey.awaited and interval <= LOOKS_S
        soon = bool(self._survey.parked) or not self._survey.routes or awaits
        return min(interval, 5.0) if soon else interval

    def _take(self, survey: Survey) -> None:
        with self._changed:
            changed = _plan_of(survey) != _plan_of(self._survey)
            gone = {r.tp for r in self._survey.routes} - {r.tp for r in survey.routes}
            self._survey = survey
            self._outdated = self._outdated or changed
            self._changed.notify_all()
        self._tally.forget(gone)
        self._observe(survey)
        if self._helm.orders.standing:
            self._helm.obey()  # partitions that are new may be covered by an order
        if changed:
            log.info("the plan changes", flow=self.flow.name, partitions=len(survey.routes))
            self._relay.send_all(Turn() if survey.routes else Finish())  # there may be nobody to hand over to

    def _observe(self, survey: Survey) -> None:
        self._observer.copy({r.tp: r.remote for r in self._claims.started(survey).routes})

    def _wait_stopping(self, seconds: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._look_now, seconds)
            self._look_now = False
            return self._stopping

    def _troubled(self, doing: str, error: HeliographError) -> None:
        log.warning(f"trouble while {doing}", flow=self.flow.name, condition=error.condition, why=str(error))
        with self._lock:
            self._trouble = str(error)

    # ---------------------------------------------------------------- what operators say

    def steer(self, scope: Scope, word: Word, by: str) -> Steered:
        """Pause, stop or let go on: the flow, a topic, a partition."""
        return self._helm.steer(scope, word, by)

    def change(self, flow: Flow) -> str:
        """Take up what an edited file says, alive (`changes.Way.ALIVE`). What that did, in words."""
        found = changes.changed(self.flow, flow)
        new = changes.digest(self.flow) != changes.digest(flow)
        self.flow = self._presence.flow = flow
        if new:
            self.tenure.claim(supersede=True)
        for part in (self._topics, self._claims, self._amends, self._caps, self._sizing, self._assignments):
            part.change(flow)
        did = []
        if found & changes.TOLD:
            self._policies = SetPolicies(self._policies.revision + 1 if self._policies else 1, flow.on)
            self._relay.send_all(self._policies)
            did.append("tasks go by the new policies")
        if changes.concerns_specialists(found):
            self._renew_specialists()
            did.append("the work beside the copying goes by it")
        if found & changes.PLANNED:
            self._replan()
            did.append("the next epoch begins now, by it")
        if found & changes.SURVEYED:
            self._look_again()
            did.append("topics are looked at again now")
        return "; ".join(did) or "it counts from the next time it is needed"

    def _look_again(self) -> None:
        """For topics, whatever the interval says."""
        with self._changed:
            self._look_now = True
            self._changed.notify_all()

    def _renew_specialists(self) -> None:
        old, self._specialists = self._specialists, self._make_specialists()
        old.stop()
        self._specialists.start()
        old.close()

    # ---------------------------------------------------------------- what people see

    def query(self, state: str, reason: str = "", again_at: float | None = None) -> None:
        """The supervisor's word on the flow's streaming query, and when it will be started again."""
        with self._lock:
            self._course.say(state, reason, again_at)
        if state == "restarting":
            led = self.leadership.leads
            self.leadership.resign()
            self._tell_leadership(led)

    def status(self) -> FlowStatus:
        return reports.status(self._look())

    def report(self) -> FlowReport:
        found = reports.report(self._look(), self._observer)
        return replace(found, sizes=self._sizing.decided(), fewer_replicas=self._replicas.words)

    def _look(self) -> Look:
        with self._lock:
            survey, tasks = self._claims.started(self._survey), self._relay.tasks
            course, epoch = replace(self._course, trouble=self._trouble), self._epoch
        if course.state == "running" and not self.leadership.leads:
            course = replace(course, state="standby", reason=self.leadership.words)
        figures = (self._tally, self._observer, self._specialists, self._incidents.counts)
        standing = self._helm.orders.standing
        return Look(self.flow, survey, tasks, epoch, course, *figures, standing, self.generation, self._caps.status())


def _plan_of(survey: Survey) -> dict[TopicPartition, tuple[Any, ...]]:
    """What a plan is made of."""
    return {route.tp: (route.topic_id, route.strands, route.stages) for route in survey.routes}


def _beside(action: Callable[[], None], name: str) -> None:
    """By a thread of its own: it may wait for a cluster."""
    threading.Thread(target=action, name=name, daemon=True).start()


def _reaches(lane: LaneSpec, tp: TopicPartition) -> bool:
    """Whether it is one of this source partition's, or sends records to this target of several."""
    return lane.tp == tp or (lane.stage is not None and lane.remote == tp and not lane.absent)

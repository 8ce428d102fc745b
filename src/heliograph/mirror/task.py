"""The mirror task: one epoch of some partitions, inside a Spark task's Python process.

    wire -> mirror.fetch -> batch -> stage -> mirror.append -> wire

One thread, one selector. Everything that could wait (dialling, metadata, the producer-state probe) is a blocking call
beside it. The parts of a task report events (`mirror.events`), and the loop hands each to the part that it concerns.

Invariants:
  a. An answer counts only for the generation of the lane that it was asked under (invariant h of `mirror.lane`). A
     stale one is dropped; the lane's new state leads to the question again.
  b. A probe is asked only when no answer to a batch of its lane is due (invariant e of `mirror.lane`), and at most one
     at a time for a generation.
  c. After a pause of the process nothing is sent before every lane was probed again (`mirror.freeze`).

Killing the process at any line is safe: what was not acknowledged is not in a position, and what was acknowledged after
the last position is found again by rule D. So the end of an epoch is only a tidier crash: nothing new is sent, answers
still due are waited for, positions are written.
"""

from __future__ import annotations

import selectors
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import structlog

from heliograph import batch
from heliograph.errors import BrokerError, HeliographError
from heliograph.mirror import compiler, offsetmap, positions
from heliograph.mirror import events as happened
from heliograph.mirror.append import Target
from heliograph.mirror.assignment import Assignment, LaneSpec
from heliograph.mirror.budget import Budget
from heliograph.mirror.events import Event, Events
from heliograph.mirror.fetch import Source
from heliograph.mirror.freeze import FreezeDetector
from heliograph.mirror.halts import Halts
from heliograph.mirror.incident_handler import IncidentHandler
from heliograph.mirror.journal import Journal
from heliograph.mirror.lane import Lane, Refusal, State
from heliograph.mirror.ledger import advance, distance
from heliograph.mirror.link import Link
from heliograph.mirror.pace import backoff_s
from heliograph.mirror.positions import Position
from heliograph.mirror.producer_state import ProbeResult, ProducerStateProbe, Question
from heliograph.mirror.protocol import (
    Finish,
    Go,
    Halt,
    LanePosition,
    Positions,
    SetPolicies,
    Shares,
    TaskHello,
    Turn,
)
from heliograph.mirror.strands import share_of
from heliograph.mirror.telling import Telling
from heliograph.types import TopicPartition
from heliograph.wire import name_of, versions
from heliograph.wire.codes import KAFKA_STORAGE_ERROR

log = structlog.get_logger()

REPORT_EVERY_S = 1.0
LISTEN_EVERY_S = 0.1  # for the coordinator's word; looking at every turn of a busy loop would cost more than it tells
POSITIONS_EVERY_S = 1.0
PARKED_RETRY_S = 10.0  # a parked lane is tried again this often: permissions come back, limits are raised
LEDGER_EVERY_S = 5.0  # rows go to Spark this often, so that a long epoch does not pile them up
FINISH_S = 2.0  # how long the end of an epoch waits for answers still due

Standing = tuple[Position, offsetmap.Span | None]  # where a lane stands, and the run that its offset map ends with
Row = tuple[str, str, int, str, int, int, int, int]  # flow, topic, partition, remote topic, offsets, length, bytes

ASK_AGAIN_S = 0.5  # between two probes of a lane that could not be answered
# Records of this age may be forgotten by a broker: nobody sets `producer.id.expiration.ms` (a day by default) lower.
OLD_RECORDS_MS = 600_000
LINGER_S = 10.0  # how long a task goes on behind its epoch, if nobody takes over
TAKE_OVER_S = LINGER_S + FINISH_S + 1.0
TAKE_OVER_EVERY_S = 0.005  # how often the word is looked for: this is a pause, while it lasts

# What tasks copied behind their epoch, for the ledger of the next task that runs in this process.
LEFT_OVER: deque[Row] = deque()


def warm() -> None:
    """Load now what the first batches would otherwise wait for: kernels, unless they have to be compiled, and
    schemas."""
    if batch.compiled():
        batch.warm()
    versions.warm()


class Task:
    def __init__(self, assignment: Assignment, *, attempt: int = 0) -> None:
        self.assignment = assignment
        self._attempt = attempt
        self._selector = selectors.DefaultSelector()
        self._finishing = False
        self._handed_over = False
        self._lingering = False
        self._seconds, self._deadline = assignment.seconds, 0.0
        self._link = Link(assignment.coordinator, self._hello())
        self._lanes = [Lane.of(spec) for spec in self._specs()]
        self._events: Events = deque()
        self._freeze = FreezeDetector()
        self._incidents = IncidentHandler(assignment, self._selector, self._events)
        self._target = Target(
            assignment.target,
            self._lanes,
            {assignment.positions_topic, assignment.map_topic} - {""},
            self._selector,
            events=self._events,
            awake=lambda: self._freeze.awake() and self._link.may_send,
        )
        self._source = Source(
            assignment.source,
            self._lanes,
            self._selector,
            isolation=assignment.isolation,
            limits=self._target.pace.limits,
            events=self._events,
            budget=Budget(assignment.caps, assignment.shares),
        )
        self._probe = ProducerStateProbe(assignment, self._target.brokers.client)
        self._journal = Journal(assignment, self._lanes, self._target)
        self._telling = Telling(self._link, self._lanes, self._source, self._target)
        self._halts = Halts(self._lanes, assignment.halted, leave=self._source.leave, ask=self._resynchronise)
        self._due: dict[Lane, float] = {}  # lanes to be probed, or tried again, and when
        self._named: dict[Lane, tuple[int, str]] = {}  # lanes that were logged as parked: where they stood, and why
        self._probed: dict[Lane, int] = {}  # lanes whose probe is under way -> the generation it was asked under
        self._listen_at = 0.0

    def _specs(self) -> list[LaneSpec]:
        """The lanes as assigned; for a repeated attempt with positions as they are now, since the plan's are as old as
        the epoch and rule D would read all that again only to skip it."""
        newer: Mapping[TopicPartition, Standing] = {}
        if self._attempt > 0 and (now := self._link.await_message(Positions)) is not None:
            newer = _told(now.lanes)
        specs = []
        for spec in self.assignment.lanes:
            position, run = newer.get(spec.tp, (None, None))
            own = share_of(position, spec) if position is not None else None
            specs.append(spec if own is None else replace(spec, position=own, last_run=run))
        return specs

    # ---------------------------------------------------------------- the loop

    def run(self) -> Iterator[Row]:
        """Pump until the epoch ends. Yields the ledger: what went where."""
        lingers = False
        try:
            if self.assignment.relay:
                self._take_over()
            self._halts.active = True
            compiler.of_process().ensure()
            self._freeze.passed()
            self._ask(self._lanes, at_first=True)
            self._deadline = time.monotonic() + self._seconds
            yield from self._pump()
            if self._finishing:
                self._finish()
            yield from self._ledger()
            if not self._finishing:
                lingers = True
                threading.Thread(target=self._linger, name="linger", daemon=True).start()
        finally:
            if not lingers:
                self._close()

    def _pump(self) -> Iterator[Row]:
        report_at = positions_at = time.monotonic()
        ledger_at = report_at + LEDGER_EVERY_S
        while not self._finishing and (now := time.monotonic()) < self._deadline:
            self._turn(now, until=min(self._deadline, report_at, positions_at))
            if now >= positions_at:
                self._write_positions()
                positions_at = now + POSITIONS_EVERY_S
            if now >= report_at:
                self._telling.tell()
                self._schedule_parked(now)
                compiler.of_process().ensure()
                report_at = now + REPORT_EVERY_S
            if now >= ledger_at:
                yield from self._ledger()
                ledger_at = now + LEDGER_EVERY_S

    def _linger(self) -> None:
        """The epoch is over for Spark, and this task goes on beside it until the next one is ready to take over: nobody
        waits while Spark turns the page. Dying here is like dying anywhere."""
        self._lingering = True
        self._deadline = time.monotonic() + LINGER_S
        try:
            LEFT_OVER.extend(self._pump())
            self._finish()
            LEFT_OVER.extend(self._ledger())
        except Exception as error:
            known = isinstance(error, HeliographError | OSError)
            log.warning(
                "ended before it had handed over", flow=self.assignment.flow, why=str(error), exc_info=not known
            )
        finally:
            self._close()

    def _take_over(self) -> None:
        """Reach every broker, say so, and wait until the epoch before has handed over: where its lanes stood comes with
        the word. Without it (a predecessor that died) rule D finds out."""
        deadline = time.monotonic() + TAKE_OVER_S
        source, target = self._source.brokers, self._target.brokers
        remotes = list(dict.fromkeys(lane.spec.remote for lane in self._lanes if not lane.spec.absent))
        opened: list[bool] = []
        asked = said = False
        while not (self._finishing or self._handed_over) and (now := time.monotonic()) < deadline:
            self._turn(now, until=now + TAKE_OVER_EVERY_S)
            self._listen()
            if not asked:
                reached = [source.reach((lane.spec.tp for lane in self._lanes), now), target.reach(remotes, now)]
                if all(reached):
                    asked = True
                    near = [tp for tp in remotes if not target.out_of_reach(tp, now)]
                    target.errands.submit(partial(self._probe.prepare, near), lambda _, __: opened.append(True))
            elif opened and not said:
                said = True
                self._link.ready()
        self._link.give_up()  # a "go" that comes later is dropped: from here on the lanes copy

    def _turn(self, now: float, until: float) -> None:
        self._target.push(now)
        self._dispatch()
        again = min(self._source.due, min(self._due.values(), default=float("inf")))
        timeout = max(min(until, again) - now, 0.0)
        ready = self._selector.select(min(timeout, LISTEN_EVERY_S))
        if not self._freeze.awake():
            self._woke_up()
        elif time.monotonic() >= self._listen_at:
            self._listen()
        self._freeze.passed()
        for key, mask in ready:
            key.data(mask)
            self._dispatch()
            if not self._freeze.awake():
                break  # the pause is noticed in the next turn, before anything is sent; it finds the others ready again
            self._freeze.passed()
        now = time.monotonic()
        self._source.tick(now)
        self._target.tick(now)
        self._dispatch()
        self._ask_due(now)

    def _woke_up(self) -> None:
        """Invariant c. Control messages first: these partitions may be another task's by now."""
        log.warning("this process stood still: every partition asks the target again", flow=self.assignment.flow)
        self._listen()
        self._target.drop_unsent()
        if self._halts.active:
            for lane in self._lanes:
                if lane.state in (State.FLOWING, State.LOST):
                    lane.lose_track()
                    self._events.append(happened.LostTrack(lane, lane.generation))
        self._dispatch()

    def _listen(self) -> None:
        self._listen_at = time.monotonic() + LISTEN_EVERY_S
        for message in self._link.heard():
            match message:
                case Finish():
                    self._finishing = True
                case Turn() if not self._lingering:
                    self._seconds = self._deadline = 0.0
                case Shares():
                    self._source.budget.deal(message.shares, time.monotonic())
                case Go():  # comes only while the task waits for it (`mirror.inbox`)
                    self._handed_over = True
                    self._stand_at(_told(message.lanes))
                case Halt():
                    self._halts.set(TopicPartition(*one) for one in message.partitions)
                case SetPolicies():
                    self._incidents.on = message.on
        if self._link.gone:
            log.warning("driver silent, task ends", flow=self.assignment.flow, task=self.assignment.task)
            self._finishing = True

    def _stand_at(self, told: Mapping[TopicPartition, Standing]) -> None:
        for lane in self._lanes:
            position, run = told.get(lane.spec.tp, (None, None))
            own = share_of(position, lane.spec) if position is not None else None
            if own is not None and own.producer_id == lane.acked.producer_id:
                lane.stand_at(own, run)

    def _finish(self) -> None:
        """Invariant: after this, positions say all that was acknowledged."""
        self._finishing = True
        self._source.stop()
        for lane in self._lanes:
            lane.discard()
        deadline = time.monotonic() + FINISH_S
        while self._target.outstanding and (now := time.monotonic()) < deadline:
            self._turn(now, until=deadline)
        for _ in range(2):  # twice: a lane may have waited for the map's word on what it acknowledged before
            self._write_positions()
            while self._journal.unanswered and (now := time.monotonic()) < deadline + 1.0:
                self._turn(now, until=deadline + 1.0)
        self._telling.tell(last=True)

    def _write_positions(self) -> None:
        if self._link.may_write_positions:  # invariant b of `mirror.link`
            self._journal.write()

    def _close(self) -> None:
        self._link.close()  # first: somebody may wait for it to take over
        self._incidents.close()
        self._source.close()
        self._target.close()
        self._selector.close()

    # ---------------------------------------------------------------- events

    def _dispatch(self) -> None:
        while self._events:
            self._handle(self._events.popleft())

    def _handle(self, event: Event) -> None:
        match event:
            case happened.Arrived(lanes, pull_after):
                for lane in lanes:
                    self._target.wake(lane)
                if pull_after is not None:
                    self._target.push(time.monotonic())
                    self._source.pull(pull_after)
            case happened.Appended(lanes):
                for lane in lanes:
                    self._source.drained(lane)
            case happened.LostTrack(lane, generation):
                if lane.generation == generation:
                    self._source.leave(lane)
                    self._resynchronise([lane])
            case happened.AllAnswered(lane):
                if lane.state is State.LOST and lane in self._due:
                    self._due[lane] = time.monotonic() + _backoff_s(lane)
            case happened.Parked(lane, generation):
                if lane.generation == generation:
                    self._source.leave(lane)
                    self._retry_later(lane)
            case happened.Denied(lane, code, why):
                self._incidents.denied(lane, code, why)
            case happened.DiskFailed(lane):
                self._incidents.storage(lane)
            case happened.OverLimit(lane, generation):
                if lane.generation == generation:
                    self._source.leave(lane)
                    self._incidents.over_limit(event)
            case happened.Gap():
                self._incidents.gap(event)
            case happened.Truncated(lane, generation):
                if lane.generation == generation:
                    self._incidents.truncated(event)
            case happened.StrangeRecords(anchor):
                if not self._incidents.is_writing(anchor):  # what is being written lets the anchor pass them
                    self._incidents.strange(event)
            case happened.IncidentWritten():
                self._incident_written(event)

    def _incident_written(self, event: happened.IncidentWritten) -> None:
        lane, action = event.lane, event.action
        match action:
            case happened.Jump():  # each of its lanes by its own generation
                self._source.jump(action, lane)
            case happened.SetAside(offsets):  # whatever became of the lane, these are written down
                self._source.set_aside(lane, offsets)
            case happened.NoAction():
                pass
            case _ if lane.generation != event.generation:
                if lane.state is State.FLOWING:
                    self._source.reopen(lane)  # it meets the same again
            case happened.Park(why, fix, wish):
                self._source.leave(lane)
                lane.park(why, fix, wish)
                self._retry_later(lane)
            case happened.Probe():
                self._resynchronise([lane], at_once=True)
        self._source.place_others(lane)

    # ---------------------------------------------------------------- the producer-state probe (rule D)

    def _retry_later(self, lane: Lane) -> None:
        self._due[lane] = time.monotonic() + PARKED_RETRY_S
        trouble = lane.acked.next_offset, lane.reason
        if self._named.get(lane) != trouble:  # it is tried again every few seconds, and said once
            self._named[lane] = trouble
            name = str(lane.spec.tp)
            log.warning("parked", flow=self.assignment.flow, partition=name, reason=lane.reason, fix=lane.fix)

    def _schedule_parked(self, now: float) -> None:
        for lane in self._lanes:
            if lane.state is State.PARKED and lane not in self._due and not lane.spec.absent:
                self._retry_later(lane)

    def _resynchronise(self, lanes: list[Lane], *, at_once: bool = False) -> None:
        now = time.monotonic()
        for lane in lanes:
            self._due[lane] = now if at_once else now + _backoff_s(lane)
        self._ask_due(now)

    def _ask_due(self, now: float) -> None:
        due = [lane for lane, at in self._due.items() if now >= at]
        if not due:
            return
        for lane in due:
            del self._due[lane]
            if lane.state is State.PARKED and lane in self._halts:
                self._due[lane] = now + PARKED_RETRY_S
            elif lane.state is State.PARKED:
                lane.unpark()
        self._ask(due)

    def _ask(self, lanes: list[Lane], *, at_first: bool = False) -> None:
        """What does the target hold of these lanes' producer ids? Asked for all at once, but for those whose leader
        lets nobody connect: the others would wait for that, and the loop tries anyway."""
        now, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        asked: dict[tuple[Lane, int], Question] = {}
        for lane in lanes:
            if lane.state is not State.LOST or lane.spec.absent or self._probed.get(lane) == lane.generation:
                continue
            if lane.unheard:  # invariant b
                self._due[lane] = float("inf")  # until `AllAnswered`
                continue
            if self._target.brokers.out_of_reach(lane.spec.remote, now):
                self._due[lane] = now + ASK_AGAIN_S
                continue
            self._probed[lane] = lane.generation
            old = lane.unanswered and lane.unanswered_ms < now_ms - OLD_RECORDS_MS
            asked[lane, lane.generation] = Question(lane.spec, lane.acked, lane.unanswered, old)
        if not asked:
            return

        def answered(
            found: dict[tuple[Lane, int], ProbeResult | HeliographError] | None, error: HeliographError | None
        ) -> None:
            for (lane, generation), question in asked.items():
                if self._probed.get(lane) == generation:
                    del self._probed[lane]
                answer = found[lane, generation] if found is not None else error
                if lane.generation == generation and answer is not None:  # invariant a
                    self._answered(lane, question, answer)

        self._target.brokers.errands.submit(lambda: self._probe.ask(asked, at_first=at_first), answered)

    def _answered(self, lane: Lane, question: Question, answer: ProbeResult | HeliographError) -> None:
        if lane in self._halts:
            lane.halt()
        elif isinstance(answer, HeliographError):
            self._not_answered(lane, answer)
        elif answer.there < 0 or 0 <= answer.end < question.acked.target or answer.missing:
            if self._incidents.doubts(lane):
                self._due[lane] = time.monotonic() + ASK_AGAIN_S
            else:
                self._incidents.target_lost(lane, answer.end, -answer.there, answer.missing)
        elif (refusal := lane.take_refusal()) is not None and not _is_stored(refusal, question, answer):
            self._incidents.refused(lane, refusal)
        else:
            lane.found(answer.there, answer.placed, answer.held)
            self._source.reopen(lane)

    def _not_answered(self, lane: Lane, error: HeliographError) -> None:
        if error.retriable:
            if name_of(KAFKA_STORAGE_ERROR) not in lane.write_trouble:  # what a broker said of its disk stays
                lane.write_trouble = f"the target cannot say what it holds: {error.message}"
            self._target.brokers.refresh()
            log.info("asking the target again", partition=str(lane.spec.remote), why=str(error))
            self._due[lane] = time.monotonic() + ASK_AGAIN_S
            return
        fix = error.fix
        if isinstance(error, BrokerError) and error.name == "TOPIC_AUTHORIZATION_FAILED":
            topic = error.context.get("topic", lane.spec.remote.topic)
            fix = f"allow this principal READ on {topic} too: DescribeProducers needs it"
        lane.park(why := f"the target cannot be asked about {lane.spec.remote}: {error.message}", fix)
        self._retry_later(lane)
        self._incidents.denied(lane, error.code if isinstance(error, BrokerError) else 0, why)

    # ---------------------------------------------------------------- telling

    def _hello(self) -> TaskHello:
        a = self.assignment
        return TaskHello(a.flow, a.epoch, a.task, self._attempt)

    def _ledger(self) -> Iterator[Row]:
        """The runs closed so far. The last of each lane may still grow, so it stays, unless this is the end."""
        while LEFT_OVER and not self._lingering:
            yield LEFT_OVER.popleft()
        for lane in self._lanes:
            keep = [] if self._finishing else lane.runs[-1:]
            closed = lane.runs if self._finishing else lane.runs[:-1]
            lane.runs = keep
            tp, remote = lane.spec.tp, lane.spec.remote
            for run in closed:
                yield (
                    self.assignment.flow,
                    tp.topic,
                    tp.partition,
                    remote.topic,
                    run.source_offset,
                    run.target_offset,
                    run.length,
                    run.bytes,
                )


def _told(lanes: Iterable[LanePosition]) -> dict[TopicPartition, Standing]:
    """What the coordinator says of lanes, with `Positions` and with `Go`."""
    decoded = ((lane, positions.decode(lane.position.encode())) for lane in lanes)
    return {lane.tp: (position, lane.run) for lane, position in decoded if position is not None}


def _is_stored(refusal: Refusal, question: Question, answer: ProbeResult) -> bool:
    """Whether the target holds at least the first record of the batch that it refused: then it refused a repeat."""
    return distance(refusal.sent.sequence, advance(question.acked.sequence, answer.there)) > 0


def _backoff_s(lane: Lane) -> float:
    """Nothing before the first failure since the last acknowledgement."""
    return backoff_s(lane.failures) if lane.failures else 0.0

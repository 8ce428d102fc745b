"""The mirror task: one epoch of some partitions, inside a Spark task's Python process.

    wire -> mirror.fetch -> batch -> stage -> mirror.append -> wire

One thread, one selector. Everything that could wait (dialling, metadata, rule D's question) is an errand beside it.
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
from heliograph.mirror import offsetmap, positions
from heliograph.mirror.append import Target
from heliograph.mirror.assignment import Assignment, LaneSpec
from heliograph.mirror.budget import Budget
from heliograph.mirror.fetch import Source
from heliograph.mirror.halts import Halts
from heliograph.mirror.inquiry import Held, Inquiry
from heliograph.mirror.journal import Journal
from heliograph.mirror.lane import Lane, Sent, State
from heliograph.mirror.link import Link
from heliograph.mirror.positions import Position
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
from heliograph.mirror.warden import Hands, Warden
from heliograph.types import TopicPartition
from heliograph.wire import Produced, versions

log = structlog.get_logger()

REPORT_EVERY_S = 1.0
LISTEN_EVERY_S = 0.1  # for the coordinator's word; looking at every turn of a busy loop would cost more than it tells
POSITIONS_EVERY_S = 1.0
PARKED_RETRY_S = 10.0  # a parked lane is tried again this often: permissions come back, limits are raised
LEDGER_EVERY_S = 5.0  # rows go to Spark this often, so that a long epoch does not pile them up
FINISH_S = 2.0  # how long the end of an epoch waits for answers still due

Standing = tuple[Position, offsetmap.Span | None]  # where a lane stands, and the run that its offset map ends with
Row = tuple[str, str, int, str, int, int, int, int]  # flow, topic, partition, remote topic, offsets, length, bytes

ASK_AGAIN_S = 0.5  # between two questions about a lane that could not be answered
LINGER_S = 10.0  # how long a task goes on behind its epoch, if nobody takes over
TAKE_OVER_S = LINGER_S + FINISH_S + 1.0
TAKE_OVER_EVERY_S = 0.005  # how often the word is looked for: this is a pause, while it lasts

# What tasks copied behind their epoch, for the ledger of the next task that runs in this process.
LEFT_OVER: deque[Row] = deque()


def warm() -> None:
    """Load now what the first batches would otherwise wait for: kernels and schemas."""
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
        self._warden = Warden(assignment, self._selector, lambda: Hands(self._source.leave, self._ask, self._park))
        self._target = Target(
            assignment.target,
            self._lanes,
            {assignment.positions_topic, assignment.map_topic} - {""},
            self._selector,
            drained=lambda lane: self._source.drained(lane),
            lost_track=self._lost_track,
            too_large=self._ask_limit,
            warden=self._warden,
        )
        self._source = Source(
            assignment.source,
            self._lanes,
            self._selector,
            isolation=assignment.isolation,
            arrived=self._target.wake,
            pass_on=lambda: self._target.push(time.monotonic()),
            limits=self._target.pace.limits,
            warden=self._warden,
            budget=Budget(assignment.caps, assignment.shares),
        )
        self._inquiry = Inquiry(assignment, self._target.brokers.client)
        self._journal = Journal(assignment, self._lanes, self._target)
        self._telling = Telling(self._link, self._lanes, self._source, self._target)
        self._halts = Halts(self._lanes, assignment.halted, leave=self._source.leave, ask=self._ask)
        self._parked_until: dict[Lane, float] = {}
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
                self._retry_parked(now)
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
        except (HeliographError, OSError) as error:
            log.warning("ended before it had handed over", flow=self.assignment.flow, why=str(error))
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
                    target.errands.submit(partial(self._inquiry.prepare, near), lambda _, __: opened.append(True))
            elif opened and not said:
                said = True
                self._link.ready()
        self._link.give_up()  # a "go" that comes later is dropped: from here on the lanes copy

    def _turn(self, now: float, until: float) -> None:
        again = min(self._target.push(now), self._source.due)
        timeout = max(min(until, again) - now, 0.0)
        ready = self._selector.select(min(timeout, LISTEN_EVERY_S))
        if (now := time.monotonic()) >= self._listen_at:  # first: who slept may have been told to leave what came
            self._listen_at = now + LISTEN_EVERY_S
            self._listen()
        for key, events in ready:
            key.data(events)
        now = time.monotonic()
        self._source.tick(now)
        self._target.tick(now)

    def _listen(self) -> None:
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
                    self._warden.on = message.on
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
        self._warden.close()
        self._source.close()
        self._target.close()
        self._selector.close()

    # ---------------------------------------------------------------- rule D

    def _lost_track(self, lane: Lane) -> None:
        """From the appender: the lane was parked or must be synchronised again."""
        self._source.leave(lane)
        if lane.state is State.PARKED:
            self._park(lane)
        else:
            self._ask([lane])

    def _park(self, lane: Lane) -> None:
        self._parked_until[lane] = time.monotonic() + PARKED_RETRY_S
        log.warning("parked", flow=self.assignment.flow, partition=str(lane.spec.tp), reason=lane.reason, fix=lane.fix)

    def _retry_parked(self, now: float) -> None:
        for lane in self._lanes:
            if lane.state is State.PARKED and lane not in self._parked_until and not lane.spec.absent:
                self._park(lane)
        due = [lane for lane, at in self._parked_until.items() if now >= at and lane not in self._halts]
        for lane in due:
            del self._parked_until[lane]
        due = [lane for lane in due if lane.state is not State.FLOWING]  # one that was halted meanwhile may be back
        for lane in due:
            lane.unpark()
        if due:
            self._ask(due)

    def _ask(self, lanes: list[Lane], *, at_first: bool = False) -> None:
        """What does the target hold of these lanes' producer ids? Asked for all at once, but for those whose leader
        lets nobody connect: the others would wait for that, and the loop tries anyway."""
        now = time.monotonic()
        asked: dict[Lane, tuple[LaneSpec, Position]] = {}
        for lane in lanes:
            if lane.asking or lane.spec.absent:
                continue
            if self._target.brokers.out_of_reach(lane.spec.remote, now):
                self._parked_until[lane] = now + ASK_AGAIN_S
                continue
            lane.asking = True
            asked[lane] = lane.spec, lane.acked
        if not asked:
            return

        def answered(held: dict[Lane, Held | HeliographError] | None, error: HeliographError | None) -> None:
            for lane in asked:
                lane.asking = False
                self._answered(lane, error if held is None else held[lane])

        self._target.brokers.errands.submit(lambda: self._inquiry.ask(asked, at_first=at_first), answered)

    def _answered(self, lane: Lane, answer: Held | HeliographError | None) -> None:
        if lane.state is not State.LOST or answer is None:
            return
        if lane in self._halts:
            lane.halt()
            return
        if isinstance(answer, HeliographError):
            if answer.retriable:
                lane.write_trouble = f"the target cannot say what it holds: {answer.message}"
                log.info("asking the target again", partition=str(lane.spec.remote), why=str(answer))
                self._parked_until[lane] = time.monotonic() + ASK_AGAIN_S
            else:
                fix = answer.fix
                if isinstance(answer, BrokerError) and answer.name == "TOPIC_AUTHORIZATION_FAILED":
                    topic = answer.context.get("topic", lane.spec.remote.topic)
                    fix = f"allow this principal READ on {topic} too: DescribeProducers needs it"
                lane.park(why := f"the target cannot be asked about {lane.spec.remote}: {answer.message}", fix)
                self._park(lane)
                self._warden.denied(lane, answer.code if isinstance(answer, BrokerError) else 0, why)
            return
        if answer.there < 0 or 0 <= answer.end < lane.acked.target:
            if self._warden.doubts(lane):
                self._parked_until[lane] = time.monotonic() + ASK_AGAIN_S
            else:
                self._warden.target_lost(lane, answer.end, -answer.there)
            return
        lane.found(answer.there, answer.placed, answer.held)
        self._source.reopen(lane)

    def _ask_limit(self, lane: Lane, sent: Sent, result: Produced) -> None:
        """The target found a batch too large: its limit is smaller than it was, or it packs records otherwise."""
        self._source.leave(lane)
        client, topic = self._target.brokers.client, lane.spec.remote.topic

        def ask() -> int:
            configs = client.describe_topic_configs([topic])[topic]
            if isinstance(configs, BrokerError):
                raise configs
            return int(configs["max.message.bytes"].value or lane.max_batch_bytes)

        def answered(limit: int | None, error: HeliographError | None) -> None:
            if limit is not None and limit < lane.max_batch_bytes:
                lane.max_batch_bytes = limit
                self._ask([lane])
            elif error is not None and error.retriable:
                self._parked_until[lane] = time.monotonic() + ASK_AGAIN_S  # sent again, refused again, asked again
            else:
                self._warden.refused(lane, sent.piece, result)

        self._target.brokers.errands.submit(ask, answered)

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

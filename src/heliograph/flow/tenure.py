"""Which process keeps a flow when processes were told to do different things to it.

Processes with the same configuration may run a flow together: exactly once holds (rules D to G), and whichever copies a
record, it is the same copy. With different ones the topics, policies and settings would go back and forth between them.
So the second is refused, with the process that runs it; or it takes over, which is a record in the positions topic that
the others obey within a second or two.

A configuration has a term, a number in the process's lease. Whoever brings another configuration on purpose (a start
that found no process running the flow, a take-over, an applied file) gives it a term above all that it knows; so terms
follow what operators did, whatever the clocks say.

Invariants:
  a. Before a process writes anything, it has looked which processes run its flows (`settle`).
  b. Of two processes that beat with different configurations one lets go: that of the lower term, APPLY_S after it saw
     the other (an operator applies a file to one process after the other); of the same term the later one, at once.
     Both see the same two records, so both agree on which.
  c. A process that was silent for LAPSE_S itself (`flow.presence`, invariant b) lets go at once if another one beats
     with another configuration, whatever the terms: an operator replaced it meanwhile. Until it has watched the others
     for long enough to know, it neither beats nor plans.
  d. A process that was killed is not waited for longer than GONE_S, and not at all where its machine knows it is dead.
  e. A record counts as a process that beats only after it changed while this process watched: what is read at the
     start is history.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
import structlog

from heliograph import policy
from heliograph.batch import Record
from heliograph.errors import Held
from heliograph.flow.changes import digest
from heliograph.flow.orders import home, whose
from heliograph.flow.presence import (
    BEAT_S,
    GONE_S,
    LOOK_AGAIN_S,
    Holder,
    Presence,
    Watch,
    holder_of,
    holders,
    living,
    process_of,
    remove,
)
from heliograph.state.compacted import CompactedLog
from heliograph.types import Flow
from heliograph.wire import Client

log = structlog.get_logger()

NAME = "HeliographLetGo"
ASK_S = 10.0  # a target that is up answers in milliseconds
APPLY_S = 60.0  # in which an operator applies a changed file to all processes that run a flow


@dataclass(frozen=True, slots=True)
class Other:
    """A process beside this one, by its last record."""

    holder: Holder
    changed_at: float  # by our clock, when the record was seen to change
    beats: bool  # it changed while we watched (invariant e)


class Tenure:
    """One running flow's side: which other processes run it, and whether this one is to let go."""

    def __init__(self, presence: Presence, clock: Callable[[], float] = time.monotonic) -> None:
        self._presence, self._clock = presence, clock
        self._lock = threading.Lock()
        self._heard: dict[str, Holder | None] = {}  # since the last `judge`; None: taken back
        self._others: dict[str, Other] = {}
        self._outranked_at: float | None = None  # since when a process with another configuration has a higher term
        self.lapsed = False  # invariant c
        self.removed = False  # another process found us silent (invariant e of presence)
        self._ended = False
        self.gone = False  # the flow ends in this process
        # Given the state and why, once; whether it does let go. (Of connectors the group decides that.)
        self.let_go: Callable[[str, str], object] = lambda state, why: False

    def hear(self, record: Record) -> None:
        """A record of the partition where leases stand."""
        flow = self._presence.flow
        told = _told_to_let_go(record, flow, self._presence.process)
        if told:
            self._end("stopped", f"taken over by {told}")
        process = process_of(record.key, flow)
        if process is None:
            return
        holder = holder_of(process, record.value)
        if process != self._presence.process:
            with self._lock:
                self._heard[process] = holder
        elif holder is None:
            self.removed = True

    def claim(self, *, supersede: bool) -> None:
        """Give our configuration its term. `supersede`: an operator brings it, and those there are go."""
        does = digest(self._presence.flow)
        with self._lock:
            known = [one for one in self._heard.values() if one is not None]
            known += [one.holder for process, one in self._others.items() if process not in self._heard]
        highest = max((one.term for one in known), default=0)
        shared = any(one.term == highest and one.digest == does for one in known)
        self._presence.term = max(highest + (supersede and not shared), self._presence.term, 1)

    def lapse(self) -> None:
        """This process has been silent: what others did meanwhile they did at unknown times. Watch from now on."""
        now = self._clock()
        with self._lock:
            self.lapsed, self.removed = True, False
            self._others = {key: Other(one.holder, now, beats=False) for key, one in self._others.items()}

    def judge(self) -> None:
        """Invariants b and c. After every look at the partition."""
        now = self._clock()
        self._fold(now)
        does = digest(self._presence.flow)
        with self._lock:
            rivals = [one for one in self._others.values() if one.holder.digest != does]
        rivals = [one for one in rivals if now - one.changed_at < GONE_S and not _is_nobody(one.holder)]
        beating = [one.holder for one in rivals if one.beats or one.holder.lives]
        if self.lapsed:
            if beating:
                self._end("failed", f"silent for too long, and meanwhile {_rivals(self._presence.flow, beating[:1])}")
            self.lapsed = bool(rivals) and (self.gone or not beating)
            return
        higher = [one for one in beating if self._yields_to(one)]
        if not higher:
            self._outranked_at = None
        elif any(one.term == self._presence.term for one in higher):
            self._end("failed", _rivals(self._presence.flow, higher[:1]))
        else:
            self._outranked(higher, now)

    def _outranked(self, higher: Sequence[Holder], now: float) -> None:
        if self._outranked_at is None:
            self._outranked_at = now
            log.warning(
                "another process runs the flow with a newer configuration",
                flow=self._presence.flow.name,
                process=higher[0].details,
                fix=f"apply the same file here, or this process lets go of the flow in {APPLY_S:g} s",
            )
        elif now - self._outranked_at >= APPLY_S:
            self._end("failed", _rivals(self._presence.flow, higher[:1]))

    def _yields_to(self, other: Holder) -> bool:
        mine = self._presence
        if other.term != mine.term:
            return other.term > mine.term
        return (other.since_ms, other.process) < (mine.since_ms, mine.process)

    def _fold(self, now: float) -> None:
        with self._lock:
            heard, self._heard = self._heard, {}
            for process, holder in heard.items():
                before = self._others.get(process)
                if holder is None:
                    self._others.pop(process, None)
                elif before is None or before.holder != holder:
                    self._others[process] = Other(holder, now, beats=before is not None)

    def _end(self, state: str, why: str) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self.gone = self.let_go(state, why) is True


def settle(flows: Sequence[Flow], *, take_over: bool) -> None:
    """Before anything is written. Raises Held where others do different things to a flow and are not to let go."""

    def one(flow: Flow) -> None:
        with Client(flow.target, timeout_s=ASK_S) as target:
            _settle(flow, target, take_over=take_over)

    with ThreadPoolExecutor(max(len(flows), 1), thread_name_prefix="settle") as pool:
        for _ in pool.map(one, flows):
            pass  # raises the first that is wrong


def _settle(flow: Flow, target: Client, *, take_over: bool) -> None:
    does = digest(flow)

    def rivals() -> list[Holder]:
        others = (one for one in holders(flow, target) if not _is_nobody(one))
        return [one for one in others if take_over or one.digest != does]

    if take_over:
        _take_over(flow, target, rivals)
        return
    found, gone = living(flow, rivals)
    if found:
        raise Held(
            _rivals(flow, found),
            fix="run it with the same settings, stop that process, or say --take-over: then it lets go of the flow",
            flow=flow.name,
        )
    remove(flow, target, gone)


def _take_over(flow: Flow, target: Client, rivals: Callable[[], list[Holder]]) -> None:
    told = rivals()
    if told:
        _tell(flow, target, told)
    for one in told:
        log.warning("told to let go, waited for", flow=flow.name, process=one.details)
    asked = {one.process for one in told}
    watch, at = Watch(), time.monotonic()
    deadline = at + GONE_S + BEAT_S
    watch.saw(told, at)
    # A process that is silent for GONE_S obeys when it wakes up: what it was told stands in the topic.
    while told := [one for one in told if not watch.gone(one, at)]:
        if at > deadline:
            raise Held(
                f"{flow.name}: {', '.join(one.details for one in told)} was told to let go and has not",
                fix="see its log, or stop it",
                flow=flow.name,
            )
        time.sleep(LOOK_AGAIN_S)
        at = time.monotonic()
        told = [one for one in rivals() if one.process in asked]
        watch.saw(told, at)


def _is_nobody(holder: Holder) -> bool:
    """Dead for certain, or what is left of ourselves. Its tasks may outlive it, and copy nothing twice (rules E, F)."""
    return holder.is_dead or holder.is_this_process


def _rivals(flow: Flow, found: Sequence[Holder]) -> str:
    return f"{flow.name} is run with other settings by {' and by '.join(one.details for one in found)}"


def _tell(flow: Flow, target: Client, rivals: Sequence[Holder]) -> None:
    topic = CompactedLog(target, flow.positions_topic or policy.positions_topic(flow.source.alias))
    topic.count()
    said = msgspec.json.encode({"by": f"process {os.getpid()} on {socket.gethostname()}"})
    topic.append(home(flow, topic.partitions), [(_key(flow, one.process), said) for one in rivals])


def _key(flow: Flow, process: str) -> bytes:
    about = {"cluster": flow.source.alias, "process": process, "target": flow.target.alias}
    return msgspec.json.encode([NAME, {**about, **whose(flow)}])


def _told_to_let_go(record: Record, flow: Flow, process: str) -> str:
    """By whom; "": it is nothing of the kind."""
    if record.key != _key(flow, process):
        return ""
    try:
        return str(msgspec.json.decode(record.value or b"")["by"])
    except (TypeError, ValueError, KeyError, RecursionError):
        return ""

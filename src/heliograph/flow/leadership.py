"""Which of the processes that run a flow copies it. The others stand by, whatever their configuration is: which of two
configurations stays is `flow.tenure`'s to decide.

A target that remembers our producer ids refuses a second copy by itself. One that has forgotten them, since the records
are old, accepts it (`mirror.producer_state`): two processes that copy at the same time would store old records twice.
So one leads, and the others take over when it is gone.

A process claims the leadership by a number in its lease (`flow.presence`), above all numbers that it has seen, and
leads when it has read its own claim back.

Invariants:
  a. Of the claims of processes that are there the highest counts: it was made when the ones before were gone. Of equal
     ones the first in the log counts; both have read it before their own.
  b. A process claims only when no process with a claim is there. It yields as soon as it reads a claim that counts
     before its own.
     Processes with different configurations are no exception: `flow.tenure` lets them be there together for a while.
  c. Tasks whose driver is dead stop sending MUTE_S after its last sign (`mirror.link`). A process that takes over from
     one that was killed leads MUTED_S after it noticed that, so that no two write; from one that fell silent, MUTED_S
     after its own claim is in the log: a process that runs and cannot beat reads the claim meanwhile, and yields. (One
     that took back its lease has waited for its tasks.)
  d. A process that can neither beat nor read the claims of others stops before they lead (`stop_if_cut_off`), unless it
     knows of no other: then a partition of the positions topic that is away stops no copying.
  e. A process whose query failed lets one that stands by lead (`resign`): it keeps its claim until its tasks have
     ended, then takes it back, and claims again if no other has in ABSTAIN_S.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from heliograph.batch import Record
from heliograph.flow.presence import GONE_S, LAPSE_S, Holder, Presence, holder_of, process_of
from heliograph.mirror.link import MUTE_S

log = structlog.get_logger()

MUTED_S = MUTE_S + 1.0
ABSTAIN_S = 30.0  # in which a process that stands by has claimed


@dataclass(frozen=True, slots=True)
class Claim:
    holder: Holder
    seen_at: float  # by our clock, when its record was last seen to change
    order: int  # in the log, of the first record with this number

    def counts_before(self, other: Claim) -> bool:
        """Invariant a."""
        return (self.holder.claim, -self.order) > (other.holder.claim, -other.order)


class Leadership:
    def __init__(self, presence: Presence, clock: Callable[[], float] = time.monotonic) -> None:
        self._presence, self._clock = presence, clock
        self._lock = threading.Lock()
        self._known: dict[str, Claim] = {}  # by process, ours too
        self._standbys: dict[str, float] = {}  # others without a claim -> when their record was last seen to change
        self._judged_at = clock()
        self._heard = 0
        self._highest = 0
        self._quiet_until = 0.0  # invariant c
        self._after_silence = False  # our claim is made over that of a process that is silent, and not read back yet
        self._cut_off = False  # invariant d
        self._resigned_at: float | None = None  # invariant e
        self.leads = False
        self.terms = 0  # how often this process began to lead
        self.leader: Holder | None = None  # another process that copies the flow

    def hear(self, record: Record) -> None:
        """A record of the partition where leases stand."""
        process = process_of(record.key, self._presence.flow)
        if process is None:
            return
        holder = holder_of(process, record.value)
        with self._lock:
            self._heard += 1
            before = self._known.get(process)
            self._standbys.pop(process, None)
            if holder is None or not holder.claim:
                self._known.pop(process, None)
                mine = process == self._presence.process or (holder is not None and holder.is_this_process)
                if holder is not None and holder.term and not mine:  # without a term it is of 0.1, which copies
                    self._standbys[process] = self._clock() - (holder.silent_s or 0.0)
                return
            self._highest = max(self._highest, holder.claim)
            order = before.order if before is not None and before.holder.claim == holder.claim else self._heard
            silent_s = (holder.silent_s or 0.0) if before is None else 0.0  # what is read first may be long ago
            self._known[process] = Claim(holder, self._clock() - silent_s, order)

    def judge(self) -> bool:
        """After every look at the partition. Whether the lease has to be beaten at once: its claim has changed."""
        with self._lock:
            self._judged_at = now = self._clock()
            rivals = self._rivals(now)
            first = max(rivals, key=lambda one: (one.holder.claim, -one.order), default=None)
            mine = self._known.get(self._presence.process)
            if mine is not None and mine.holder.claim != self._presence.claim:
                mine = None  # an older beat
            if self._presence.claim:
                if first is not None and (mine is None or first.counts_before(mine)):
                    if mine is None and not self._yields_unheard(first):
                        return False  # ours is on its way
                    return self._yield(first.holder)
                return self._take_back(now) if self._resigned_at is not None else self._lead(mine)
            self.leader = first.holder if first is not None else None
            if first is None and not self._abstains(now):
                self._after_silence = any(process != self._presence.process for process in self._known)
                self._presence.claim = self._highest + 1
                return True
            return False

    def _yields_unheard(self, first: Claim) -> bool:
        """Before our own claim was read back: a higher one counts before it whatever the order."""
        return first.holder.claim > self._presence.claim

    def _yield(self, leader: Holder) -> bool:
        if self.leads:
            log.warning("another process copies the flow, this one stands by", flow=self._name, process=leader.details)
        self.leads, self.leader, self._cut_off = False, leader, False
        self._presence.claim = 0
        return True

    def _take_back(self, now: float) -> bool:
        """Our claim, when tasks have ended. Whether it was."""
        if self._resigned_at is None or now < self._resigned_at + MUTED_S:
            return False
        self._presence.claim = 0
        return True

    def _abstains(self, now: float) -> bool:
        if self._resigned_at is not None and now >= self._resigned_at + MUTED_S + ABSTAIN_S:
            self._resigned_at = None
        return self._resigned_at is not None

    def _lead(self, mine: Claim | None) -> bool:
        """False: the claim is the same."""
        if mine is None:
            return False
        if self._after_silence:  # our claim is in the log from now on
            self._after_silence, self._quiet_until = False, max(self._quiet_until, self._clock() + MUTED_S)
        if self._clock() < self._quiet_until:
            return False
        if not self.leads:
            self.terms += 1
            log.info("this process copies the flow", flow=self._name, claim=self._presence.claim)
        self.leads, self.leader, self._cut_off = True, None, False
        return False

    def _rivals(self, now: float) -> list[Claim]:
        """Claims of other processes that are there. One that is found dead leaves its tasks behind for a moment."""
        found = []
        for process, one in list(self._known.items()):
            if process == self._presence.process:
                continue
            if one.holder.is_this_process:  # what is left of a run of the flow before this one
                del self._known[process]
            elif one.holder.is_dead:
                del self._known[process]
                self._quiet_until = max(self._quiet_until, now + MUTED_S)
            elif now - one.seen_at < GONE_S:  # also one that this machine knows to exist: it may run other flows only
                found.append(one)
        return found

    def stop_if_cut_off(self, silent_s: float) -> None:
        """Invariant d. `silent_s`: since the last beat that the target acknowledged. It leads again once it has read
        that none was claimed after it."""
        with self._lock:
            cut_off = silent_s > LAPSE_S and self._clock() - self._judged_at > MUTE_S
            if self.leads and cut_off and self._has_standby():
                log.warning("this process cannot reach its lease, and another may take over: it stops", flow=self._name)
                self.leads, self._cut_off = False, True

    def resign(self) -> None:
        """Invariant e. Nothing, if no other process stands by."""
        with self._lock:
            if self.leads and self._has_standby():
                log.warning("the query failed here: a process that stands by is to copy the flow", flow=self._name)
                self.leads, self._resigned_at = False, self._clock()

    def _has_standby(self) -> bool:
        now = self._clock()
        return any(now - seen_at < GONE_S + LAPSE_S for seen_at in self._standbys.values())

    @property
    def words(self) -> str:
        """Why this process does not copy."""
        if self.leader is not None:
            return f"{self.leader.details} copies this flow; this process takes over when that one is gone"
        if self._resigned_at is not None:
            return "its query failed here: this process waits for one that stands by to take over"
        if self._cut_off:
            return "this process cannot reach its lease in the positions topic, and another one may copy the flow"
        return "waiting until the tasks of the process before have ended"

    @property
    def _name(self) -> str:
        return self._presence.flow.name

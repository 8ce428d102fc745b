"""One connector on this node, brought from what it is to what it shall be, by a thread of its own.

So that a cluster that does not answer holds up its own connector and no other. What failed is tried again with backoff,
and shown as FAILED with the reason meanwhile: Connect would leave it so until somebody restarts it.

Invariants:
  a. A connector's old work has ended before its new one begins: two would write positions of two eras.
  b. `look` never waits.
  c. So many begin at the same time as the machine has room for (`Room`): a flow that begins starts several processes,
     and a hundred of them would hold up each other, the API and those that run. Nobody waits for one whose cluster does
     not answer: it is asked before there is room for it. Whoever waits for room can be paused, stopped and deleted.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from heliograph.connect.records import Target
from heliograph.connect.works import Work, WorkLook
from heliograph.errors import HeliographError
from heliograph.types import Flow

log = structlog.get_logger()

AGAIN_FIRST_S, AGAIN_MOST_S = 2.0, 60.0
LOOK_EVERY_S = 1.0
WAITS = "it waits until others that begin on this worker have begun"
BEGIN_S = 30.0  # who has not begun by then no longer counts as one that begins


@dataclass(frozen=True, slots=True)
class Wanted:
    flow: Flow | None  # None: its configuration makes none
    problem: str = ""  # why
    target: Target = "STARTED"
    restarts: int = -1  # another number: begin anew


@dataclass(frozen=True, slots=True)
class PostLook:
    """What is said of a connector in the status topic."""

    state: str
    trace: str = ""
    work: WorkLook = field(default_factory=WorkLook)


class Room:
    """For connectors that begin, on one node. Thread-safe."""

    def __init__(self, places: int = 2 * (os.cpu_count() or 1)) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._taken: dict[str, float] = {}  # connector -> until when

    def enter(self, name: str) -> bool:
        now = time.monotonic()
        with self._lock:
            self._taken = {one: until for one, until in self._taken.items() if until > now}
            if len(self._taken) >= self._places:
                return False
            self._taken[name] = now + BEGIN_S
            return True

    def leave(self, name: str) -> None:
        with self._lock:
            self._taken.pop(name, None)


class Post:
    def __init__(self, name: str, make: Callable[[Flow], Work], wanted: Wanted, room: Room) -> None:
        self.name, self._make, self._room = name, make, room
        self._wanted = wanted
        self._checked: Wanted | None = None  # its clusters answered, and it waits for room
        self._work: Work | None = None
        self._of: Wanted | None = None  # what the work was begun for
        self._look = PostLook("UNASSIGNED")
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._tend, name=f"post-{name}", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- what others say and see

    def want(self, wanted: Wanted) -> None:
        with self._changed:
            if wanted != self._wanted:
                self._wanted = wanted
                self._changed.notify_all()

    def leave(self) -> None:
        """It is to end; `gone` says when it has."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    @property
    def wanted(self) -> Wanted:
        return self._wanted

    @property
    def gone(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def look(self) -> PostLook:
        return self._look

    # ---------------------------------------------------------------- its thread

    def _tend(self) -> None:
        backoff = AGAIN_FIRST_S
        again_at = 0.0
        while not self._ending:
            wanted = self._wanted
            try:
                if self._of is None or _is_other(self._of, wanted) or (self._work is None and _runs(wanted)):
                    if self._takes_up(wanted):
                        self._of = wanted
                    elif (wanted != self._of or time.monotonic() >= again_at) and self._renew(wanted):
                        backoff = AGAIN_FIRST_S
                elif wanted.target != self._of.target:
                    self._turn(wanted)
                self._see()
            except HeliographError as error:
                self._fail(wanted, error.condition, str(error))
                again_at, backoff = time.monotonic() + backoff, min(backoff * 2, AGAIN_MOST_S)
            except Exception as error:  # the top of a loop: said, shown, tried again
                log.exception("a connector failed", connector=self.name)
                self._fail(wanted, "INTERNAL", f"{type(error).__name__}: {error}")
                again_at, backoff = time.monotonic() + backoff, min(backoff * 2, AGAIN_MOST_S)
            self._await(wanted)
        self._end()

    def _await(self, seen: Wanted) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ending or self._wanted != seen, LOOK_EVERY_S)

    def _renew(self, wanted: Wanted) -> bool:
        """False: there is no room for it yet."""
        self._end()  # invariant a
        again = self._of == wanted and self._look.state == "FAILED"
        self._of = wanted
        if wanted.target == "STOPPED":
            self._look = PostLook("STOPPED")
            return True
        if wanted.flow is None:
            self._look = PostLook("FAILED", wanted.problem)
            return True
        if not again:  # what failed has failed until it runs
            self._look = PostLook("UNASSIGNED")
        work = self._make(wanted.flow)
        if self._checked != wanted:
            work.check()
            self._checked = wanted
        if not self._room.enter(self.name):  # invariant c
            if not again:
                self._look = PostLook("PAUSED" if wanted.target == "PAUSED" else "UNASSIGNED", WAITS)
            return False
        self._work, self._checked = work, None
        work.begin(paused=wanted.target == "PAUSED")
        return True

    def _takes_up(self, wanted: Wanted) -> bool:
        """Only the configuration is another, and whoever copies can go by it from now on."""
        if self._work is None or self._of is None or wanted.flow is None:
            return False
        return replace(self._of, flow=wanted.flow) == wanted and self._work.take_up(wanted.flow)

    def _turn(self, wanted: Wanted) -> None:
        """Paused or resumed: no more than a word to whoever copies. Where nobody does, why is shown as before."""
        if self._work is not None:
            self._work.pause(wanted.target == "PAUSED")
        self._of = wanted

    def _see(self) -> None:
        if self._work is None or self._of is None:
            return
        found = self._work.look()
        if self._of.target == "PAUSED":
            state = "PAUSED"
        elif found.starting:
            state = "UNASSIGNED"
        elif found.restarting:
            state = "RESTARTING"
        else:
            state = "FAILED" if found.trace else "RUNNING"
        self._look = PostLook(state, found.trace or found.trouble, found)
        if state != "UNASSIGNED":
            self._room.leave(self.name)

    def _fail(self, wanted: Wanted, condition: str, why: str) -> None:
        log.warning("the connector cannot run", connector=self.name, condition=condition, why=why)
        self._end()
        self._of = wanted
        self._look = PostLook("FAILED", f"{condition}: {why}")

    def _end(self) -> None:
        self._room.leave(self.name)
        work, self._work = self._work, None
        if work is None:
            return
        try:
            work.end()
        except HeliographError as error:
            log.warning("the connector did not end in order", connector=self.name, why=str(error))
        except Exception:  # the loop's last resort calls this: it must not end the loop
            log.exception("the connector did not end in order", connector=self.name)


def _runs(wanted: Wanted) -> bool:
    return wanted.target != "STOPPED" and wanted.flow is not None


def _is_other(of: Wanted, wanted: Wanted) -> bool:
    """Whether it has to begin anew, or to end."""
    stopped = "STOPPED" in (of.target, wanted.target) and of.target != wanted.target
    return stopped or (of.flow, of.problem, of.restarts) != (wanted.flow, wanted.problem, wanted.restarts)

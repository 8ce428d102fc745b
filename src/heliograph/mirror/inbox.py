"""A task's side of the control protocol, without I/O: which messages of the driver count, and which are stale.

Invariants:
  a. A message for another task attempt is dropped.
  b. A state (halted partitions, shares, policies) is never replaced by an older revision of it.
  c. `Go` counts once, only between `ready` and `give_up`, and only with the number of the latest `ready`: a partition
     that copies is never moved back. `Positions` count only while the task waits for them, before it copies.
  d. After `Finish(abandon)` nothing makes the task write positions again.
Whatever is dropped is logged with the flow and the task; nothing else changes.
"""

from __future__ import annotations

import structlog

from heliograph.mirror.protocol import (
    DriverMessage,
    Finish,
    GaveUp,
    Go,
    Halt,
    Positions,
    Ready,
    SetPolicies,
    Shares,
    TaskHello,
    ToTask,
)

log = structlog.get_logger()

NAMED = 32  # different complaints that are logged of one connection's other side; the rest would flood the log


class Complaints:
    """Logs each thing that is wrong with the other side's messages once."""

    def __init__(self) -> None:
        self._named: set[tuple[object, ...]] = set()

    def name(self, event: str, flow: str, task: object, what: str) -> None:
        key = (event, flow, task, what)
        if key not in self._named and len(self._named) < NAMED:
            self._named.add(key)
            log.warning(
                event, flow=flow, task=task, what=what, fix="run one Heliograph version on driver and executors"
            )


class Inbox:
    def __init__(self, hello: TaskHello) -> None:
        self._hello = hello
        self._revisions: dict[type[Shares | Halt | SetPolicies], int] = {}
        self._requests = 0  # numbers given to `Ready` so far
        self._waiting = False
        self.wants_positions = False
        self.abandoned = False

    @property
    def waiting(self) -> bool:
        """For `Go`."""
        return self._waiting

    def ready(self) -> Ready:
        """Wait for `Go` from now on. Again after a reconnect: the answer to the old number may have been lost."""
        self._waiting = True
        self._requests += 1
        return Ready(self._requests)

    def give_up(self) -> GaveUp | None:
        """Stop waiting; None if the task does not wait."""
        if not self._waiting:
            return None
        self._waiting = False
        return GaveUp(self._requests)

    def accept(self, envelope: ToTask) -> DriverMessage | None:
        """The message, if it counts now."""
        stale = self._stale(envelope)
        if stale:
            what = type(envelope.message).__name__
            log.info(
                "stale control message dropped", flow=self._hello.flow, task=self._hello.id, message=what, why=stale
            )
            return None
        message = envelope.message
        if isinstance(message, Shares | Halt | SetPolicies):
            self._revisions[type(message)] = message.revision
        elif isinstance(message, Go):
            self._waiting = False
        elif isinstance(message, Finish):
            self.abandoned = self.abandoned or message.abandon
        return message

    def _stale(self, envelope: ToTask) -> str:
        """Why the message does not count; "": it does."""
        message = envelope.message
        if envelope.to != self._hello.id:
            return f"it is for task attempt {envelope.to}"
        if isinstance(message, Shares | Halt | SetPolicies):
            newest = self._revisions.get(type(message), 0)
            return f"revision {newest} was applied before {message.revision}" if message.revision < newest else ""
        if isinstance(message, Go) and (not self._waiting or message.request != self._requests):
            return f"the task does not wait for the answer to request {message.request}"
        if isinstance(message, Positions) and not self.wants_positions:
            return "the task does not wait for positions"
        return ""

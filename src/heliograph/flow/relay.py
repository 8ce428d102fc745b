"""How one epoch follows another without a pause: which tasks are connected, which are ready, and which may begin.

A task whose epoch is over goes on copying behind Spark's back while the next epoch is planned and started. The next
epoch's tasks connect to their brokers, say that they are ready, and wait. When all of them are (or no task copies any
more), the tasks before them are told to finish; when the last of those has left, the waiting ones are told to go.

This only keeps the books of that: it holds the tasks' channels and says which task is to be told what. If it errs, or a
task dies at any line of it, two tasks copy the same partition for a while, which rules E and F make harmless.

Invariants:
  a. A `Ready` is answered with `Go` at most once, and not while a task of an earlier epoch is connected.
  b. No task waits for a task that is not there: without earlier tasks, each goes as it gets ready.
  c. A task is known by its latest connection. The end of an older one, and what came by it, changes nothing.
  d. A task that gave up waiting copies: it is not told to go, and the others do not wait for it to get ready.
  e. A task that was told to finish is told again when it reconnects: the first message may have been lost.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple, Protocol

from heliograph.mirror.protocol import DriverMessage, Finish

TaskKey = tuple[int, int, int]  # epoch, task, attempt
LET_END_S = 5.0  # for tasks that were told to finish: longer than they take with a target that does not answer


class Channel(Protocol):
    """One connection of one task attempt."""

    def send(self, message: DriverMessage) -> None:
        """Never raises: a connection that fails ends, which is noticed where it is read."""


class Released(NamedTuple):
    """A task that may go."""

    key: TaskKey
    request: int
    channel: Channel


class Relay:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[TaskKey, Channel] = {}
        self._requests: dict[TaskKey, int] = {}  # the latest `Ready` of each
        self._waiting: set[TaskKey] = set()
        self._released: set[TaskKey] = set()
        self._begun: set[TaskKey] = set()  # without having been told to go
        self._finishing: dict[TaskKey, Finish] = {}
        self._epoch = 0
        self._tasks = 0

    @property
    def busy(self) -> bool:
        """Whether tasks are connected."""
        with self._lock:
            return bool(self._channels)

    @property
    def tasks(self) -> int:
        """How many copy; one that takes over from another counts once."""
        with self._lock:
            return len({task for _, task, _ in self._channels})

    @property
    def turning(self) -> bool:
        """Whether tasks of an epoch that is over go on."""
        with self._lock:
            return any(key[0] < self._epoch for key in self._channels)

    def turn_to(self, epoch: int, tasks: int) -> None:
        """The next epoch, of so many tasks, is about to begin. Those that still wait to begin the last one need not."""
        with self._lock:
            overtaken = [self._channels[key] for key in self._waiting if key in self._channels and key[0] < epoch]
            self._epoch, self._tasks = epoch, tasks
            self._waiting, self._released, self._begun, self._requests = set(), set(), set(), {}
            self._finishing = {key: one for key, one in self._finishing.items() if key[0] >= epoch}
        for channel in overtaken:
            channel.send(Finish())

    def joined(self, key: TaskKey, channel: Channel) -> None:
        """By this connection; one that it had before counts no more."""
        with self._lock:
            self._channels[key] = channel
            self._stop_waiting(key)  # a task that waits says so again by the new connection
            finish = self._finishing.get(key, Finish() if key[0] < self._epoch else None)
        if finish is not None:
            channel.send(finish)

    def ready(self, key: TaskKey, request: int, channel: Channel) -> list[Released]:
        """A task that could go on from here. Returns which tasks may, now."""
        with self._lock:
            current = self._channels.get(key) is channel and request > self._requests.get(key, 0)
            if current and key[0] == self._epoch:
                self._requests[key] = request
                self._released.discard(key)
                self._waiting.add(key)
        return self._advance()

    def gave_up(self, key: TaskKey, request: int, channel: Channel) -> list[Released]:
        """It no longer waits for the answer to this request, and copies. Returns which tasks may go now."""
        with self._lock:
            if self._channels.get(key) is channel and request >= self._requests.get(key, 0) and key[0] == self._epoch:
                self._stop_waiting(key)
                self._begun.add(key)
        return self._advance()

    def left(self, key: TaskKey, channel: Channel) -> tuple[bool, list[Released]]:
        """A connection ended. Whether it was the task's latest, and which tasks may go now."""
        with self._lock:
            if self._channels.get(key) is not channel:
                return False, []
            del self._channels[key]
            self._stop_waiting(key)
        return True, self._free()

    def may_go(self, one: Released) -> bool:
        """Whether it still waits to be told so: what it is told took a while to read."""
        with self._lock:
            return (
                one.key in self._released
                and self._requests.get(one.key) == one.request
                and self._channels.get(one.key) is one.channel
            )

    def send_all(self, message: DriverMessage) -> None:
        with self._lock:
            channels = list(self._channels.values())
            if isinstance(message, Finish):
                self._finishing.update(dict.fromkeys(self._channels, message))
        for channel in channels:
            channel.send(message)

    def send(self, epoch: int, task: int, message: DriverMessage) -> None:
        """To one task, whichever attempt at it there is."""
        with self._lock:
            channels = [channel for key, channel in self._channels.items() if key[:2] == (epoch, task)]
        for channel in channels:
            channel.send(message)

    def end_all(self) -> None:
        """No task copies any more when this returns, unless one does not hear."""
        deadline = time.monotonic() + LET_END_S
        self.send_all(Finish())
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.02)

    def _stop_waiting(self, key: TaskKey) -> None:
        self._waiting.discard(key)
        self._released.discard(key)

    def _advance(self) -> list[Released]:
        """Tell the earlier tasks to finish once all after them are ready."""
        with self._lock:
            there = {task for _, task, _ in self._waiting | self._released | self._begun}
            everybody = len(there) >= self._tasks
            before = [key for key in self._channels if key[0] < self._epoch] if everybody else []
            channels = [self._channels[key] for key in before]
            self._finishing.update({key: Finish() for key in before if key not in self._finishing})
        for channel in channels:
            channel.send(Finish())
        return self._free()

    def _free(self) -> list[Released]:
        with self._lock:
            if any(key[0] < self._epoch for key in self._channels):
                return []
            free = [Released(key, self._requests[key], self._channels[key]) for key in sorted(self._waiting)]
            self._released |= self._waiting
            self._waiting = set()
            return free

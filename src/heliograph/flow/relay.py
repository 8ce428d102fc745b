"""How one epoch follows another without a pause: who is connected, who is ready, and who may begin.

A task whose epoch is over goes on copying behind Spark's back while the next epoch is planned and started. The next
epoch's tasks connect to their brokers, say that they are ready, and wait. When all of them are (or nobody copies any
more), those before them are told to finish; when the last of those has left, the waiting ones are told to go.

This only keeps the books of that: it holds the tasks' voices and says whom to tell what. If it errs, or a task dies at
any line of it, two tasks copy the same partition for a while, which rules E and F make harmless.

Invariants:
  a. A waiting task is told to go once, and not while a task of an earlier epoch is connected.
  b. Nobody waits for a task that is not there: without earlier tasks, each goes as it gets ready.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

TaskKey = tuple[int, int, int]  # epoch, task, attempt
LET_END_S = 5.0  # for tasks that were told to finish: longer than they take with a target that does not answer


class Voice(Protocol):
    """The way to say something to a task."""

    def say(self, word: str, **more: Any) -> None: ...


class Relay:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._voices: dict[TaskKey, Voice] = {}
        self._waiting: set[TaskKey] = set()
        self._epoch = 0
        self._tasks = 0

    @property
    def busy(self) -> bool:
        """Whether tasks are connected."""
        with self._lock:
            return bool(self._voices)

    @property
    def tasks(self) -> int:
        """How many copy; one that takes over from another counts once."""
        with self._lock:
            return len({task for _, task, _ in self._voices})

    @property
    def turning(self) -> bool:
        """Whether tasks of an epoch that is over go on."""
        with self._lock:
            return any(key[0] < self._epoch for key in self._voices)

    def turn_to(self, epoch: int, tasks: int) -> None:
        """The next epoch, of so many tasks, is about to begin."""
        with self._lock:
            self._epoch, self._tasks = epoch, tasks
            self._waiting = set()

    def joined(self, key: TaskKey, voice: Voice) -> None:
        with self._lock:
            self._voices[key] = voice
            late = key[0] < self._epoch
        if late:
            voice.say("finish")

    def ready(self, key: TaskKey) -> list[tuple[TaskKey, Voice]]:
        """A task that could go on from here. Returns who may, now."""
        with self._lock:
            if key[0] == self._epoch:
                self._waiting.add(key)
            everybody = len({task for _, task, _ in self._waiting}) >= self._tasks
            before = [voice for other, voice in self._voices.items() if other[0] < self._epoch] if everybody else []
        for voice in before:
            voice.say("finish")
        return self._free()

    def left(self, key: TaskKey) -> list[tuple[TaskKey, Voice]]:
        """Its connection ended. Returns who may go now."""
        with self._lock:
            self._voices.pop(key, None)
            self._waiting.discard(key)
        return self._free()

    def say(self, word: str, **more: Any) -> None:
        """To every task."""
        with self._lock:
            voices = list(self._voices.values())
        for voice in voices:
            voice.say(word, **more)

    def tell(self, epoch: int, task: int, word: str, **more: Any) -> None:
        """To one task, whichever attempt at it there is."""
        with self._lock:
            voices = [voice for key, voice in self._voices.items() if key[:2] == (epoch, task)]
        for voice in voices:
            voice.say(word, **more)

    def end_all(self) -> None:
        """Nobody copies any more when this returns, unless somebody does not hear."""
        deadline = time.monotonic() + LET_END_S
        self.say("finish")
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.02)

    def _free(self) -> list[tuple[TaskKey, Voice]]:
        with self._lock:
            if any(key[0] < self._epoch for key in self._voices):
                return []
            free = [(key, self._voices[key]) for key in sorted(self._waiting) if key in self._voices]
            self._waiting = set()
            return free

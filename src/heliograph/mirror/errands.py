"""Blocking calls run beside the event loop, so that the loop never waits for anything but its selector.

One thread a cluster: an unreachable source must not hold up a question to the target. Results come back as callbacks
run by the loop itself, so everything the loop owns is touched by one thread only.

Invariant: every call that was submitted is answered, with a result or an error, whatever it raised: the loop waits for
the answer (metadata, a probe), and the calls behind it would otherwise never run.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from heliograph.errors import HeliographError
from heliograph.wire.internal_errors import InternalErrors

T = TypeVar("T")
Done = Callable[[Any, HeliographError | None], None]


class Errands:
    """Submit from the loop; `fileno` becomes readable when something is done; `settle` runs the callbacks."""

    def __init__(self, name: str) -> None:
        self._todo: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waker, self._wakened = socket.socketpair()
        self._wakened.setblocking(False)
        self._waker.setblocking(False)
        self._internal_errors = InternalErrors(f"blocking calls of {name}")
        self._thread = threading.Thread(target=self._work, name=f"errands-{name}", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._wakened.fileno()

    def submit(self, errand: Callable[[], T], done: Callable[[T | None, HeliographError | None], None]) -> None:
        self._todo.put((errand, done))

    def settle(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakened.recv(4096):
                pass
        while True:
            try:
                self._done.get_nowait()()
            except queue.Empty:
                return

    def close(self) -> None:
        self._todo.put(None)
        # Not joined: an errand may be waiting for a dead broker. The thread ends with it and holds nothing of ours.

    def _work(self) -> None:
        while (item := self._todo.get()) is not None:
            errand, done = item
            result: Any = None
            failure: HeliographError | None = None
            try:
                result = errand()
            except HeliographError as error:
                failure = error
            except BaseException as error:  # noqa: BLE001 - the top of the thread
                failure = self._internal_errors.answer(error)
            self._done.put(lambda done=done, result=result, failure=failure: done(result, failure))  # type: ignore[misc]
            with contextlib.suppress(OSError):
                self._waker.send(b"\0")
        self._waker.close()
        self._wakened.close()

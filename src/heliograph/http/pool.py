"""Threads for calls that block, shared out fairly: clients take turns, and no client can queue more than its share.

Handlers wait for Kafka, and passwords are slow to verify by design. Both run here and never on the event loop.

Invariants:
  a. At most `threads` calls run at a time; further ones wait, `waiting_each` of one client and `waiting` in all.
     One more is refused (`Full`), so that memory is bounded.
  b. Of the waiting calls the next one is that of the client whose last turn was longest ago: a thousand calls of one
     client delay the call of another by one call.
  c. The threads are daemons: a handler that waits for a dead cluster does not keep the process from ending.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Full(Exception):
    """No room for another call; `mine`: because of the same client's calls."""

    def __init__(self, *, mine: bool) -> None:
        super().__init__("too many calls of this client wait" if mine else "too many calls wait")
        self.mine = mine


class Pool:
    def __init__(self, name: str, threads: int, *, waiting_each: int, waiting: int) -> None:
        self._name, self._threads = name, threads
        self._waiting_each, self._waiting = waiting_each, waiting
        self._changed = threading.Condition()
        self._queues: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()  # of each client, next turn first
        self._queued = self._started = self._idle = 0
        self._open = True

    def submit(self, client: str, call: Callable[[], T]) -> Future[T]:
        """Raises Full. A future that is cancelled before its turn is passed over."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  (whoever waits for the future gets it)
                future.set_exception(error)

        with self._changed:
            queue = self._queues.get(client)
            if queue is not None and len(queue) >= self._waiting_each:
                raise Full(mine=True)
            if self._queued >= self._waiting or not self._open:
                raise Full(mine=False)
            if queue is None:
                queue = self._queues[client] = deque()
            queue.append(run)
            self._queued += 1
            if self._idle < self._queued and self._started < self._threads:
                self._start()
            self._changed.notify()
        return future

    def close(self) -> None:
        """Calls that wait are dropped; those that run come to their end by themselves."""
        with self._changed:
            self._open = False
            self._queues.clear()
            self._queued = 0
            self._changed.notify_all()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the machine has no thread left: those that run go on, and it is tried again
            if not self._started:
                self._queues.clear()
                self._queued = 0
                raise Full(mine=False) from None
        else:
            self._started += 1

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while self._open and not self._queues:
                    self._changed.wait()
                self._idle -= 1
                if not self._open:
                    return
                client, queue = self._queues.popitem(last=False)
                run = queue.popleft()
                self._queued -= 1
                if queue:
                    self._queues[client] = queue  # at the end: the others first
            run()

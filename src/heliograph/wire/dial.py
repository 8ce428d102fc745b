"""Connections opened off to the side, so that an event loop never waits for TCP, TLS or a login.

Answers for one dial at a time per broker, the pause before the next try, and waking the loop. The loop owns a
connection once ready() handed it over.

Invariant: a dial that was accepted ends in ready(), as a connection or an error, whatever was raised: otherwise the
broker would count as being dialled for ever, and would never be dialled again.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field

from heliograph.errors import HeliographError, InternalError
from heliograph.types import Cluster
from heliograph.wire.backoff import Backoff
from heliograph.wire.connection import Connection
from heliograph.wire.internal_errors import InternalErrors
from heliograph.wire.link import Address

# A connection that lived this long was a good one: the next dial starts without a pause.
_STEADY_S = 2.0


@dataclass(slots=True)
class _Line:
    backoff: Backoff = field(default_factory=Backoff)
    opened_at: float | None = None
    dialling: bool = False
    trying_since: float | None = None  # the pause is over, and the broker has not answered yet


class Dialer:
    """dial() asks, ready() tells; fileno() becomes readable when there is something to tell. One owner."""

    def __init__(self, *, client_id: str = "heliograph", connect_timeout_s: float = 10.0) -> None:
        self._client_id = client_id
        self._timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._lines: dict[tuple[str, Address], _Line] = {}
        self._done: list[tuple[Address, Connection | HeliographError]] = []
        self._closed = threading.Event()
        self._internal_errors = InternalErrors("connecting")
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)

    def fileno(self) -> int:
        return self._wake_in.fileno()

    def dial(self, address: Address, cluster: Cluster) -> bool:
        """Open a connection in the background. False if that is under way already."""
        with self._lock:
            line = self._lines.setdefault((cluster.alias, address), _Line())
            if line.dialling or self._closed.is_set():
                return False
            line.dialling = True
            if line.opened_at is not None and time.monotonic() - line.opened_at >= _STEADY_S:
                line.backoff.reset()
            # The first try goes at once; after that also a connection that opens and dies at once has to wait.
            fresh = line.backoff.failures == 0
            wait_s = line.backoff.next_s()
        thread = threading.Thread(
            target=self._open,
            args=(address, cluster, line, 0.0 if fresh else wait_s),
            name=f"dial {address}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:  # no more threads: tried again after the pause, like a broker that refuses
            self._finish(address, line, self._unforeseen(error, address, cluster))
        return True

    def is_dialling(self, address: Address, alias: str) -> bool:
        with self._lock:
            line = self._lines.get((alias, address))
            return line is not None and line.dialling

    def trying_since(self, address: Address, alias: str) -> float | None:
        """When (monotonic) the try under way began; None: there is none, or it waits for its turn."""
        with self._lock:
            line = self._lines.get((alias, address))
            return line.trying_since if line is not None else None

    def _open(self, address: Address, cluster: Cluster, line: _Line, wait_s: float) -> None:
        if self._closed.wait(wait_s):
            return
        with self._lock:
            line.trying_since = time.monotonic()
        result: Connection | HeliographError
        try:
            result = Connection.open(address, cluster, timeout_s=self._timeout_s, client_id=self._client_id)
        except HeliographError as error:
            result = error
        except BaseException as error:  # noqa: BLE001 - the top of the thread
            result = self._unforeseen(error, address, cluster)
        self._finish(address, line, result)

    def _unforeseen(self, error: BaseException, address: Address, cluster: Cluster) -> InternalError:
        return self._internal_errors.answer(error, cluster=cluster.alias, broker=str(address))

    def _finish(self, address: Address, line: _Line, result: Connection | HeliographError) -> None:
        with self._lock:
            line.dialling, line.trying_since = False, None
            line.opened_at = time.monotonic() if isinstance(result, Connection) else None
            if not self._closed.is_set():
                self._done.append((address, result))
                with contextlib.suppress(BlockingIOError):  # full of wake-ups: awake enough
                    self._wake_out.send(b"\0")
                return
        if isinstance(result, Connection):
            result.close()

    def ready(self) -> list[tuple[Address, Connection | HeliographError]]:
        """What came of the dials since the last time. A failure has waited its pause when dialled again."""
        with contextlib.suppress(BlockingIOError):
            while self._wake_in.recv(4096):
                pass
        with self._lock:
            done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Connections still being opened are closed as they come."""
        with self._lock:
            self._closed.set()
            done, self._done = self._done, []
            self._wake_in.close()
            self._wake_out.close()
        for _, result in done:
            if isinstance(result, Connection):
                result.close()

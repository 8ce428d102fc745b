"""The driver's control port until the other side has proved the key: strangers get no further than this.

One thread accepts and holds all half-open connections. Who has proved the key (`mirror.handshake`) is handed on and
gets a thread there; whoever has not is a descriptor and some bytes here, for HANDSHAKE_S at most.

Invariants:
  a. A half-open connection has HANDSHAKE_S from accepting to the proof, however its bytes are spread, and no thread.
  b. There are at most HALF_OPEN of them, PER_ADDRESS from one address. One more, and the oldest (of the address that
     has most) is ended: a task proves the key within milliseconds, so the oldest is a stranger's.
  c. Without descriptors, memory or threads connections wait in the kernel's queue and are accepted again
     ACCEPT_AGAIN_S later; the oldest half-open ones are ended to make room. No exception ends the thread.
  d. After `close` nothing is accepted, and nothing half-open is answered.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import selectors
import socket
import threading
import time
from multiprocessing import AuthenticationError
from typing import Protocol

import structlog

from heliograph.mirror.handshake import PROOF_BYTES, Challenge

log = structlog.get_logger()

HANDSHAKE_S = 5.0
HALF_OPEN, PER_ADDRESS = 256, 64
ACCEPT_AGAIN_S = 0.1
ACCEPTED_AT_ONCE = 64  # between looks at the half-open ones
NAMED = 32  # addresses whose failed handshakes are logged, once each
_AWAY = (errno.ECONNABORTED, errno.EPROTO, errno.EINTR)  # the one to be accepted left: the next may be there


class Admission(Protocol):
    """Where those go who have proved the key."""

    def admit(self, raw: socket.socket) -> None:
        """A blocking socket, which it answers for from now on. Raises RuntimeError without a thread for it."""


class _HalfOpen:
    def __init__(self, raw: socket.socket, address: str, key: bytes) -> None:
        self.raw, self.address = raw, address
        self.challenge = Challenge(key)
        self.proof = b""
        self.deadline = time.monotonic() + HANDSHAKE_S


class Door:
    def __init__(self, host: str, port: int, key: bytes, inside: Admission) -> None:
        self._key, self._inside = key, inside
        self._listener = socket.create_server((host, port), backlog=256)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._half: dict[socket.socket, _HalfOpen] = {}  # oldest first
        self._listen_again_at: float | None = None
        self._named: set[str] = set()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="control-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._open = False
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")
        self._thread.join(1.0)  # it ends at once; a process that stops has 4 s for everything

    @property
    def half_open(self) -> int:
        return len(self._half)

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        while self._open:
            try:
                self._turn()
            except Exception:  # top of the thread: logged, and the port goes on (invariant c)
                log.exception("the control port had an unexpected error, and goes on")
                time.sleep(ACCEPT_AGAIN_S)
        for half in list(self._half.values()):
            self._drop(half)
        for one in (self._listener, self._waker, self._woken):
            one.close()
        self._selector.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            if not self._open:
                return
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.fileobj, socket.socket) and (half := self._half.get(key.fileobj)) is not None:
                self._read(half)
        now = time.monotonic()
        for half in [one for one in self._half.values() if one.deadline <= now]:
            self._refuse(half, f"proved nothing within {HANDSHAKE_S:g} s")
        if self._listen_again_at is not None and self._listen_again_at <= now:
            self._listen_again_at = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _patience(self) -> float:
        ends = [half.deadline for half in self._half.values()][:1]  # the oldest's
        ends += [] if self._listen_again_at is None else [self._listen_again_at]
        return max(min(ends, default=time.monotonic() + 60.0) - time.monotonic(), 0.0)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                raw, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _AWAY:
                    self._rest(error)
                    return
                continue
            self._greet(_HalfOpen(raw, str(address[0]), self._key))

    def _rest(self, error: OSError) -> None:
        """The listener stays readable: without a pause this would be a busy loop."""
        log.warning("control connections cannot be accepted for now", why=error.strerror or str(error))
        for half in list(self._half.values())[: max(len(self._half) // 2, 1)]:
            self._drop(half)
        self._selector.unregister(self._listener)
        self._listen_again_at = time.monotonic() + ACCEPT_AGAIN_S

    def _greet(self, half: _HalfOpen) -> None:
        self._make_room(half.address)
        half.raw.setblocking(False)
        try:
            half.raw.send(half.challenge.greeting)  # a new connection's buffer takes these few bytes whole
        except OSError:  # it has left
            half.raw.close()
            return
        self._half[half.raw] = half
        self._selector.register(half.raw, selectors.EVENT_READ)

    def _make_room(self, address: str) -> None:
        counts = collections.Counter(half.address for half in self._half.values())
        if counts[address] >= PER_ADDRESS:
            self._refuse(self._oldest(address), f"{PER_ADDRESS} connections of its address were half-open")
        elif len(self._half) >= HALF_OPEN:
            most, _ = counts.most_common(1)[0]
            self._refuse(self._oldest(most), f"{HALF_OPEN} connections were half-open")

    def _oldest(self, address: str) -> _HalfOpen:
        return next(half for half in self._half.values() if half.address == address)

    def _read(self, half: _HalfOpen) -> None:
        try:
            part = half.raw.recv(PROOF_BYTES - len(half.proof))
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._drop(half)
            return
        half.proof += part
        if len(half.proof) < PROOF_BYTES:
            return
        try:
            half.raw.send(half.challenge.answer(half.proof))
        except AuthenticationError:
            self._refuse(half, "does not know the key")
        except OSError:
            self._drop(half)
        else:
            self._admit(half)

    def _admit(self, half: _HalfOpen) -> None:
        self._forget(half)
        half.raw.setblocking(True)
        try:
            self._inside.admit(half.raw)
        except RuntimeError as error:  # no threads left: the task dials again
            log.warning("a control connection cannot be served", why=str(error))
            half.raw.close()

    def _refuse(self, half: _HalfOpen, why: str) -> None:
        self._drop(half)
        if half.address not in self._named and len(self._named) < NAMED:
            self._named.add(half.address)
            log.warning(
                "a control connection was refused",
                address=half.address,
                why=why,
                fix="see what connects from there; it is named once",
            )

    def _drop(self, half: _HalfOpen) -> None:
        self._forget(half)
        half.raw.close()

    def _forget(self, half: _HalfOpen) -> None:
        if self._half.pop(half.raw, None) is not None:
            self._selector.unregister(half.raw)

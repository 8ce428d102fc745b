"""A running process's ear: a Unix socket on which one request is taken a connection, a line of JSON, and answered so.

Answers for who may speak (the same user, or root), for limits and time-outs, and for logging who changed what, by what
the kernel says of the other side and not by what it says of itself; what a request means is the caller's business.
Nobody can hold it: another user is refused before a thread or a seat is given away, a line must be whole within
REQUEST_S, there are SEATS connections at a time, and a request that makes no sense is answered with what is wrong with
it. No exception ends the thread that accepts, and after `close` nothing is answered.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from heliograph import audit
from heliograph.control.places import place_of, places, secured
from heliograph.errors import ControlError, HeliographError

log = structlog.get_logger()

LINE_BYTES = 64 << 10
REQUEST_S = 5.0
SEATS = 32
ACCEPT_AGAIN_S = 0.1  # without descriptors, memory or threads: it passes

_STRANGER = ControlError("another user may not steer this process", fix="be who started it, or root")

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Server:
    """Listens from `start` to `close`. A process that cannot listen runs all the same, and says that it is deaf."""

    def __init__(self, file: Path, answer: Answer, *, audited: Collection[str] = ()) -> None:
        """`audited`: the words to do that change something."""
        self._answer, self._audited = answer, frozenset(audited)
        self._place = place_of(file, os.getpid())
        self._listener: socket.socket | None = None
        self._seats = threading.Semaphore(SEATS)

    def start(self) -> None:
        """Raises ControlError."""
        secured()
        places()  # removes what killed processes left
        self._place.path.unlink(missing_ok=True)  # of one that had this process id before us
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self._place.path))
            self._place.path.chmod(0o600)
            listener.listen(4 * SEATS)  # a full queue refuses at once
        except OSError as error:
            listener.close()
            raise ControlError(f"{self._place.path}: cannot listen there: {error.strerror or error}") from error
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="control", daemon=True).start()

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._place.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is not None:
            try:
                self._take(listener.accept()[0])
            except OSError:
                if self._listener is None:
                    return
                time.sleep(ACCEPT_AGAIN_S)
            except Exception:  # top of the thread: logged, and the next one is served
                log.exception("the control socket had an unexpected error, and goes on")
                time.sleep(ACCEPT_AGAIN_S)

    def _take(self, connection: socket.socket) -> None:
        """Gives it a seat and a thread, or refuses it without either."""
        with contextlib.ExitStack() as refused:
            refused.callback(connection.close)  # the other side reads an end and says so
            if not _peer(connection).may:
                connection.settimeout(0.0)  # a new connection's buffer takes the few bytes
                connection.send(msgspec.json.encode(refusal(_STRANGER)) + b"\n")
                return
            if not self._seats.acquire(blocking=False):
                return
            refused.callback(self._seats.release)
            threading.Thread(target=self._serve, args=(connection,), name="control-one", daemon=True).start()
            refused.pop_all()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError):  # the other side left, or was too slow
                reply = self._exchange(connection)
                if self._listener is None:
                    return
                connection.settimeout(REQUEST_S)
                connection.sendall(msgspec.json.encode(reply) + b"\n")
        finally:
            self._seats.release()

    def _exchange(self, connection: socket.socket) -> Mapping[str, Any]:
        peer = _peer(connection)
        try:
            request = _request(connection)
            return self._answer(request) if request["do"] not in self._audited else self._change(request, peer)
        except HeliographError as error:
            return refusal(error)
        except Exception as error:  # the top of a connection's loop: said, logged, and the next one is served
            log.exception("a request to this process failed")
            return refusal(
                HeliographError(f"{type(error).__name__}: a fault of Heliograph, the process's log says more")
            )

    def _change(self, request: Mapping[str, Any], peer: Peer) -> Mapping[str, Any]:
        outcome = "failed"
        try:
            answer = self._answer(request)
            outcome = "done"
            return answer
        except HeliographError as error:
            outcome = f"refused: {error.condition}"
            raise
        finally:
            audit.record(peer.words, "control socket", _what(request), outcome)


@dataclass(frozen=True, slots=True)
class Peer:
    """The process on the other side, as the kernel knows it; None where it does not say."""

    uid: int | None = None
    pid: int | None = None

    @property
    def may(self) -> bool:
        """The folder lets nobody else in already; this is for folders that let go of their mode later."""
        return self.uid in (None, 0, os.getuid())

    @property
    def words(self) -> str:
        if self.uid is None:
            return f"somebody who may open the socket of uid {os.getuid()}"
        try:
            name = pwd.getpwuid(self.uid).pw_name
        except KeyError:  # a user of a container, say
            name = "no name"
        return f"{name} (uid {self.uid}, pid {self.pid})"


def refusal(error: HeliographError) -> dict[str, Any]:
    return {"error": {"condition": error.condition, "message": error.message, "fix": error.fix}}


def _request(connection: socket.socket) -> Mapping[str, Any]:
    line = read_line(connection, REQUEST_S)
    try:
        request = msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        raise ControlError(f"a request is a line of JSON, and this is none: {line[:80]!r}") from error
    if not isinstance(request, dict) or not isinstance(request.get("do"), str):
        raise ControlError('a request is an object with a word to "do"')
    return request


def read_line(connection: socket.socket, seconds: float) -> bytes:
    """One line, without its end. Raises ControlError for one that is too long, not whole, or late."""
    deadline = time.monotonic() + seconds
    data = b""
    while b"\n" not in data:
        if len(data) > LINE_BYTES:
            raise ControlError(f"a line of at most {LINE_BYTES:,} bytes is taken")
        left = deadline - time.monotonic()
        try:
            connection.settimeout(max(left, 0.001))
            more = connection.recv(1 << 16)
        except TimeoutError:
            raise ControlError(f"the line was not whole within {seconds:g} s") from None
        if not more:
            raise ControlError("the line ended before its end" if data else "nothing was said")
        data += more
    return data.partition(b"\n")[0]


def _what(request: Mapping[str, Any]) -> str:
    place = [str(request[key]) for key in ("topic", "partition") if request.get(key) is not None]
    words = [str(request["do"]), str(request.get("flow") or ""), ":".join(place)]
    return " ".join(word for word in words if word)[:500]


def _peer(connection: socket.socket) -> Peer:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return Peer()
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return Peer(uid, pid)

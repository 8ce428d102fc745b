"""A small HTTP server on the standard library: a thread a connection, everything bounded.

Answers for sockets, limits and time-outs; what is answered is the router's business. Nobody outside can hold it: a
request must be whole within REQUEST_S however slowly its bytes come, an answer must be taken within ANSWER_S, a
connection that idles is closed, and when all seats are taken the next one is told so and sent away. A handler that
fails is an error 500 without a traceback; the log has it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from dataclasses import replace
from http import HTTPStatus

import structlog

from heliograph.errors import ConfigError
from heliograph.http.chunks import Chunks
from heliograph.http.message import HEAD_LIMIT_BYTES, Refused, Request, Response, parse_head
from heliograph.http.routing import Router

log = structlog.get_logger()

SEATS = 32  # connections at a time: a few scrapers and probes, and people who look
REQUEST_S = 5.0
ANSWER_S = 10.0
HANG_UP_S = 1.0
IDLE_S = 30.0  # scrapers come every 15 s and keep their connection
END = b"\r\n\r\n"
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


class Server:
    """Listens from its making on; serves from `start` to `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        router: Router,
        *,
        seats: int = SEATS,
        tls: ssl.SSLContext | None = None,
        named: str = "--http",
    ) -> None:
        """`named`: what the address is called where it was written."""
        self._router, self._tls = router, tls
        self._seats = seats
        self._taken: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._open = True
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=64)
        except OSError as error:
            raise ConfigError(
                f"{named} {host}:{port}: cannot listen there: {error.strerror or error}; choose another port (0: any)"
            ) from error
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name="http", daemon=True)

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._open = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread; closing alone does not
        self._listener.close()
        with self._lock:
            taken = list(self._taken)
        for connection in taken:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # ---------------------------------------------------------------- connections

    def _accept(self) -> None:
        while self._open:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if not self._open:
                    return
                time.sleep(0.1)  # out of descriptors, say: it passes
                continue
            with self._lock:
                room = len(self._taken) < self._seats
                if room:
                    self._taken.add(connection)
            if room:
                threading.Thread(target=self._serve, args=(connection,), name="http-connection", daemon=True).start()
            else:
                self._send_away(connection)

    def _send_away(self, connection: socket.socket) -> None:
        refused = Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"all {self._seats} connections are taken", close=True)
        with connection, contextlib.suppress(OSError):
            connection.settimeout(0.1)
            connection.sendall(Response.refusal(refused).encode(keep_alive=False))

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection = self._shake_hands(connection)
            with connection:
                rest = b""
                while (exchange := self._exchange(connection, rest)) is not None:
                    rest = exchange
                _hang_up(connection)
        except OSError:
            pass  # the other side left, or was too slow
        finally:
            with self._lock:
                self._taken.discard(connection)

    def _shake_hands(self, connection: socket.socket) -> socket.socket:
        """TLS, by the connection's own thread: who is slow at it holds up nobody."""
        if self._tls is None:
            return connection
        connection.settimeout(REQUEST_S)
        wrapped = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self._taken.discard(connection)
            self._taken.add(wrapped)
        try:
            wrapped.do_handshake()
        except OSError:
            wrapped.close()
            with self._lock:
                self._taken.discard(wrapped)
            raise
        return wrapped

    def _exchange(self, connection: socket.socket, rest: bytes) -> bytes | None:
        """One request and its answer. What came behind it, or None when the connection is to end."""
        head_only = keep_alive = False
        try:
            read = self._read(connection, rest)
            if read is None:
                return None
            request = replace(read[0], tls=self._tls is not None, client=_address_of(connection))
            rest = read[1]
            head_only = request.method == "HEAD"
            keep_alive = request.keep_alive and not self._crowded()
            response = self._answer(request)
        except Refused as refused:
            keep_alive = keep_alive and not refused.close
            response = Response.refusal(refused)
        connection.settimeout(ANSWER_S)
        connection.sendall(response.encode(head_only=head_only, keep_alive=keep_alive))
        return rest if keep_alive else None

    def _crowded(self) -> bool:
        with self._lock:
            return len(self._taken) > self._seats // 2

    def _answer(self, request: Request) -> Response:
        try:
            return self._router.answer(request)
        except Refused:
            raise
        except Exception as error:  # the top of a connection's loop: said, logged, and the next one is served
            log.exception("a request failed", path=request.path)
            why = f"{type(error).__name__}: this is a fault of Heliograph, its log says more"
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, why) from error

    # ---------------------------------------------------------------- reading

    def _read(self, connection: socket.socket, rest: bytes) -> tuple[Request, bytes] | None:
        """A whole request and what came behind it; None when the other side has nothing to say any more."""
        data = rest.lstrip(b"\r\n")  # RFC 9112 2.2: empty lines before a request are passed over
        deadline = time.monotonic() + (REQUEST_S if data else IDLE_S)
        began = bool(data)
        while END not in data[: HEAD_LIMIT_BYTES + len(END)]:
            if len(data) > HEAD_LIMIT_BYTES:
                why = f"a head of at most {HEAD_LIMIT_BYTES:,} bytes is taken"
                raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why, close=True)
            more = self._more(connection, deadline, began)
            if not more:
                return None
            data = (data + more).lstrip(b"\r\n")
            if data and not began:
                began, deadline = True, time.monotonic() + REQUEST_S
        head, _, data = data.partition(END)
        request, length = parse_head(head)
        if length != 0 and not data and "expect" in request.headers:
            connection.settimeout(ANSWER_S)
            connection.sendall(GO_ON)  # curl would wait a second for it
        if length is None:
            return self._read_chunks(connection, request, data, deadline)
        while len(data) < length:
            more = self._more(connection, deadline, began)
            if not more:
                return None
            data += more
        body, rest = data[:length], data[length:]
        return (replace(request, body=body) if length else request), rest

    def _read_chunks(
        self, connection: socket.socket, request: Request, data: bytes, deadline: float
    ) -> tuple[Request, bytes] | None:
        chunks = Chunks()
        while not chunks.feed(data):
            data = self._more(connection, deadline, True)
            if not data:
                return None
        return replace(request, body=bytes(chunks.body)), chunks.rest

    def _more(self, connection: socket.socket, deadline: float, began: bool) -> bytes:
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
            return connection.recv(1 << 16)
        except TimeoutError:
            if not began:
                return b""  # idle for long: nothing was asked, so nothing is answered
            why = f"the request was not whole within {REQUEST_S:.0f} s"
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, why, close=True) from None


def _hang_up(connection: socket.socket) -> None:
    """So that our last answer arrives: closing a socket that holds unread bytes would make the other side lose it."""
    deadline = time.monotonic() + HANG_UP_S
    connection.shutdown(socket.SHUT_WR)
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        if not connection.recv(1 << 16):
            return


def parse_address(text: str, *, insecure: bool = False) -> tuple[str, int]:
    """HOST:PORT, or PORT alone for 127.0.0.1. Beyond this machine only when told so: nobody is asked for a password."""
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ConfigError(f"--http {text}: not HOST:PORT or PORT, e.g. --http 8083 or --http 127.0.0.1:8083")
    if not insecure and not is_loopback(host):
        raise ConfigError(
            f"--http {text}: whoever reaches {host} could read topic names and figures, for nobody is asked for a "
            "password; keep to loopback (--http PORT), or say --insecure"
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address_of(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError:
        return ""  # it has left already

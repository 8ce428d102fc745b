"""The HTTP server: starlette's application on uvicorn's protocol, on an event loop and a thread of its own.

Answers for the listener and its connections: how many there may be, TLS and its deadline, running out of descriptors,
and an end after which the port no longer answers. Connections are accepted here and not by uvicorn, which counts them
only after the TLS handshake, so that clients that never begin it would not be counted; and because each connection
gets the certificate that is in force when it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
import threading
import time
from http import HTTPStatus
from typing import Any

import structlog
import uvicorn
from uvicorn.server import ServerState

from heliograph.errors import ConfigError
from heliograph.http import application as app
from heliograph.http import connections, deadlines
from heliograph.http.certificates import Certificates
from heliograph.http.connections import Connections, network
from heliograph.http.hosts import Hosts
from heliograph.http.message import Refused, Response
from heliograph.http.pool import Pool
from heliograph.http.protocol import HttpProtocol
from heliograph.http.routing import Router

log = structlog.get_logger()

BACKLOG = 1024  # connections that the kernel holds until we accept them
ACCEPTED_AT_ONCE = 64  # between two looks at those that are open
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
EXHAUSTED_PAUSE_S = 0.1
EXHAUSTED_LOGGED_S = 60.0
CLOSE_S = 5.0


class Server:
    """Listens from its making on; serves from `start` to `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        router: Router,
        *,
        hosts: Hosts | None = None,
        limit: int = connections.LIMIT,
        limit_each: int = connections.LIMIT_EACH,
        tls: Certificates | ssl.SSLContext | None = None,
        named: str = "--http",
    ) -> None:
        """`named`: what the address is called where it was written. Raises ConfigError."""
        self._tls = tls
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"{named} {host}:{port}: cannot listen there: {error.strerror or error}; choose another port (0: any)"
            ) from error
        self._listener.setblocking(False)
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self.connections = Connections(_affordable(limit), limit_each)
        self._handlers = Pool(
            "http", app.HANDLERS, waiting_each=app.HANDLERS_WAITING_EACH, waiting=app.HANDLERS_WAITING
        )
        self._prompt = Pool("http-health", app.PROMPT, waiting_each=limit, waiting=limit)
        served = app.application(router, hosts or Hosts(host), self._handlers, self._prompt)
        self._config = uvicorn.Config(
            served, lifespan="off", ws="none", interface="asgi3", log_config=None, access_log=False, proxy_headers=False
        )
        self._config.load()
        self._state = ServerState()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_unforeseen)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._closed = False
        self._exhausted_at = 0.0

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Open connections are cut; the port no longer answers, also if a forked child still holds the listener."""
        if self._closed:
            return
        self._closed = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_S)
        else:
            self._close_listener()
            self._loop.close()
        self._handlers.close()
        self._prompt.close()

    # ---------------------------------------------------------------- the loop's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.add_reader(self._listener, self._accept)
        try:
            self._loop.run_forever()
        finally:
            self._loop.remove_reader(self._listener)
            self._close_listener()
            for one in self.connections.all():
                one.evict()
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(self._end_tasks())
            self._loop.close()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # connections that were aborted get their last event

    def _close_listener(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            accepted.setblocking(False)
            one = _Connection(self, accepted, network(str(peer[0])))
            if self.connections.admit(one):
                one.begin()
            else:
                self._send_away(accepted)

    def _pause(self, error: OSError) -> None:
        """Out of descriptors or memory, say. It passes; until then those who wait make room."""
        self._loop.remove_reader(self._listener)
        self._loop.call_later(EXHAUSTED_PAUSE_S, self._loop.add_reader, self._listener, self._accept)
        if error.errno in EXHAUSTED:
            self.connections.evict_one()
        if time.monotonic() - self._exhausted_at > EXHAUSTED_LOGGED_S:
            self._exhausted_at = time.monotonic()
            log.error(
                "HTTP connections cannot be accepted, trying again",
                why=error.strerror or str(error),
                fix="raise the limit of open files (ulimit -n, LimitNOFILE=)" if error.errno == errno.EMFILE else "",
            )

    def _send_away(self, accepted: socket.socket) -> None:
        refused = Refused(HTTPStatus.SERVICE_UNAVAILABLE, "all connections are taken: come again", close=True)
        with accepted, contextlib.suppress(OSError):
            if self._tls is None:
                accepted.send(Response.refusal(refused).encode())

    # ---------------------------------------------------------------- what a connection needs

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def context(self) -> ssl.SSLContext | None:
        return self._tls.context if isinstance(self._tls, Certificates) else self._tls

    def protocol(self, one: _Connection) -> HttpProtocol:
        return HttpProtocol(self._config, self._state, one)


class _Connection:
    """An accepted socket, from the handshake to its end, where it is counted."""

    def __init__(self, server: Server, accepted: socket.socket, client: str) -> None:
        self._server, self._socket, self.client = server, accepted, client
        self._opening: asyncio.Task[None] | None = None
        self._begun = False  # from then on the socket is the transport's to close
        self._protocol: HttpProtocol | None = None

    def begin(self) -> None:
        self._opening = self._server.loop.create_task(self._open())

    def evict(self) -> None:
        if self._protocol is not None and self._protocol.transport is not None:
            self._protocol.abort()
        else:
            self._cut()
            if self._opening is not None:
                self._opening.cancel()

    # what the protocol tells

    def waits(self) -> None:
        self._server.connections.waits(self)

    def is_answered(self) -> None:
        self._server.connections.is_answered(self)

    def gone(self) -> None:
        self._server.connections.gone(self)

    async def _open(self) -> None:
        self._begun = True
        context = self._server.context()
        deadline = deadlines.REQUEST_S if context is not None else None
        try:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._server.loop.connect_accepted_socket(
                self._made, self._socket, ssl=context, ssl_handshake_timeout=deadline
            )
        except (OSError, asyncio.CancelledError):  # no TLS, too slow, gone, or not wanted any more
            self._cut()
            self.gone()

    def _made(self) -> HttpProtocol:
        self._protocol = self._server.protocol(self)
        return self._protocol

    def _cut(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if not self._begun:
            self._socket.close()


def _affordable(limit: int) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit if soft == resource.RLIM_INFINITY else min(limit, max(8, soft // connections.DESCRIPTORS_SHARE))


def _log_unforeseen(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, OSError):  # the other side left
        log.error("the HTTP server's loop met an unforeseen exception", why=context.get("message"), exc_info=error)

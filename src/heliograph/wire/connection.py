"""One socket to one broker: opened, logged in, versions agreed; then requests out, responses in, never blocking.

Answers for the order of requests and responses, partial reads and writes, and naming what went wrong with the peer.
Does not retry, does not reconnect, knows no topics.

Invariants:
A. Responses come in the order of the requests (Kafka's promise per connection); a stray correlation id ends it.
B. Buffers given to send() go to the socket uncopied: they must not change before their response.
C. After an error the connection is closed; what was in flight may or may not have been done by the broker.
D. One owner: no two threads at a time.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from heliograph.errors import ConnectionLost, HeliographError, ProtocolError, TimedOut, VersionUnsupported
from heliograph.types import Cluster
from heliograph.wire import link, sasl, versions
from heliograph.wire.frames import WOULD_BLOCK, FrameReader
from heliograph.wire.link import Address
from heliograph.wire.messages import Decoder, Message, build, decoder, encode
from heliograph.wire.security import security_of

# A fetch answer is at most its max_bytes plus one batch; nothing honest comes near this.
FRAME_LIMIT_BYTES = 256 << 20
# Linux takes up to 1024 buffers in one call; a request is rarely more than a few.
_GATHER = 64
_PRODUCE = 0
# Kafka's own clients log in again after 85–95 % of a session (KIP-368): the broker cuts it off at 100 %.
_SESSION_SHARE = 0.85


class _Pending(NamedTuple):
    correlation_id: int
    decoder: Decoder
    tag: object
    sent_at: float


class Connection:
    """One authenticated, version-negotiated socket to one broker. Non-blocking after it is open. Not thread-safe."""

    def __init__(
        self,
        sock: socket.socket,
        address: Address,
        *,
        alias: str = "",
        client_id: str = "heliograph",
        frame_limit_bytes: int = FRAME_LIMIT_BYTES,
    ) -> None:
        sock.setblocking(False)
        self.address = address
        self.alias = alias
        self.expires_at: float | None = None  # monotonic; by then a new connection should have taken over
        self.round_trip_s = 0.0  # of the first answer, when nothing else was on its way: the path's own
        self._sock = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._client_id = client_id
        self._reader = FrameReader(sock.recv_into, limit_bytes=frame_limit_bytes, drain=self._tls)
        self._out: deque[memoryview] = deque()
        self._pending: deque[_Pending] = deque()
        self._kept: list[tuple[object, Message]] = []
        self._correlation = 0
        self._answers = 0
        self._answered_in_s = 0.0
        self._ranges: Mapping[int, tuple[int, int]] = {}
        self._picked: dict[tuple[str, int | None], int] = {}
        self._closed = False

    @classmethod
    def open(
        cls, address: Address, cluster: Cluster, *, timeout_s: float = 10.0, client_id: str = "heliograph"
    ) -> Connection:
        """Blocks until TCP, TLS, ApiVersions and SASL are done, at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        security = security_of(cluster)
        sock = link.connect(address, cluster.alias, security.tls, deadline)
        connection = cls(sock, address, alias=cluster.alias, client_id=client_id)
        try:
            connection._negotiate(deadline)
            if security.login is not None:
                lifetime_s = sasl.log_in(connection, security.login, deadline)
                if lifetime_s:
                    connection.expires_at = time.monotonic() + lifetime_s * _SESSION_SHARE
            connection._answers = 0
        except ConnectionLost as error:
            connection.close()
            raise link.closed_while_opening(address, cluster.alias, security.protocol, error) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _negotiate(self, deadline: float) -> None:
        from heliograph import __version__

        _, newest = versions.spoken("api_versions")
        for version in (newest, 0):
            request = build(
                "api_versions", version, client_software_name="heliograph", client_software_version=__version__
            )
            answer = self.call(request, timeout_s=deadline - time.monotonic())
            self.round_trip_s = self._answered_in_s
            if answer.error_code == 0:
                self._ranges = versions.ranges_of(answer)
                return
        raise VersionUnsupported(
            f"{self._where} refuses ApiVersions: {answer.error_code.name}",
            fix="Is this a Kafka broker?",
            api="api_versions",
        )

    # -- what the owner asks -----------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._sock.fileno()

    def version(self, api: str, *, at_most: int | None = None) -> int:
        """The version agreed for `api`; VersionUnsupported if there is none."""
        key = (api, at_most)
        picked = self._picked.get(key)
        if picked is None:
            try:
                picked = self._picked[key] = versions.pick(api, self._ranges, at_most=at_most)
            except VersionUnsupported as error:
                raise VersionUnsupported(f"{self._where}: {error.message}", fix=error.fix, api=api) from None
        return picked

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def wants_write(self) -> bool:
        return bool(self._out)

    @property
    def queued_bytes(self) -> int:
        """What send() took and the socket has not."""
        return sum(map(len, self._out))

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    @property
    def oldest_sent_at(self) -> float | None:
        """When (monotonic) the request that is waited for longest was sent; None if none is."""
        return self._pending[0].sent_at if self._pending else None

    @property
    def is_expiring(self) -> bool:
        return self.expires_at is not None and time.monotonic() >= self.expires_at

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, request: Message, tag: object = None) -> int:
        """Queue a request and write what the socket takes; the rest goes with flush(). Returns the correlation id."""
        if self._closed:
            raise ConnectionLost(f"{self._where} is closed", **self._context)
        self._correlation = correlation_id = (self._correlation + 1) & 0x7FFFFFFF
        self._out.extend(encode(request, correlation_id, self._client_id))
        if request.__api_key__ != _PRODUCE or request.acks != 0:  # acks=0 is never answered
            read = decoder(request.__api_key__, request.__version__)
            self._pending.append(_Pending(correlation_id, read, tag, time.monotonic()))
        self.flush()
        return correlation_id

    def flush(self) -> None:
        """Go on writing what is queued, until the socket takes no more."""
        out, sock = self._out, self._sock
        while out:
            try:
                sent = sock.send(out[0]) if self._tls else sock.sendmsg(list(islice(out, _GATHER)))
            except WOULD_BLOCK:
                return
            except OSError as error:
                raise self._fail(self._lost(error)) from error
            while sent:
                size = len(out[0])
                if sent < size:
                    out[0] = out[0][sent:]
                    break
                out.popleft()
                sent -= size

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self) -> list[tuple[object, Message]]:
        """(tag, response) for every response that is wholly there; never waits."""
        if self._closed:
            raise ConnectionLost(f"{self._where} is closed", **self._context)
        done, self._kept = self._kept, []
        try:
            for frame in self._reader.frames():
                done.append(self._match(frame))
        except ProtocolError as error:
            raise self._fail(
                ProtocolError(f"{self._where}: {error.message}", fix=error.fix, **self._context)
            ) from error
        except OSError as error:
            raise self._fail(self._lost(error)) from error
        if self._reader.ended and not done:
            raise self._fail(self._lost(None))
        return done

    def _match(self, frame: memoryview) -> tuple[object, Message]:
        if not self._pending:
            raise ProtocolError("a response to nothing that was asked")
        expected = self._pending.popleft()
        self._answered_in_s = time.monotonic() - expected.sent_at
        correlation_id, response = expected.decoder.read(frame)
        if correlation_id != expected.correlation_id:
            raise ProtocolError(f"response {correlation_id} where {expected.correlation_id} was expected")
        self._answers += 1
        return expected.tag, response

    def call(self, request: Message, timeout_s: float = 30.0) -> Message:
        """Send and wait for the answer. Other responses that arrive meanwhile are kept for receive()."""
        return self.call_many([request], timeout_s)[0]

    def call_many(self, requests: Sequence[Message], timeout_s: float = 30.0) -> list[Message]:
        """Send all, then wait for all: one round trip for many. Responses in the order of the requests."""
        deadline = time.monotonic() + timeout_s
        waiting: dict[object, int] = {}
        for position, request in enumerate(requests):
            mark = object()
            waiting[mark] = position
            self.send(request, mark)
        answers: dict[int, Message] = {}
        kept: list[tuple[object, Message]] = []
        try:
            while True:
                for tag, response in self.receive():
                    if tag in waiting:
                        answers[waiting[tag]] = response
                    else:
                        kept.append((tag, response))
                if len(answers) == len(requests):
                    return [answers[position] for position in range(len(requests))]
                self._wait(deadline, type(requests[0]).__name__, timeout_s)
        finally:
            self._kept = kept

    def _wait(self, deadline: float, what: str, timeout_s: float) -> None:
        events = select.POLLIN | (select.POLLOUT if self._out else 0)
        poll = select.poll()  # not select(): it fails on descriptors from 1024 on
        poll.register(self._sock, events)
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise self._fail(
                TimedOut(f"{self._where} did not answer {what} within {max(timeout_s, 0):.3g} s", **self._context)
            )
        if self._out:
            self.flush()

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._sock.close()
            self._out.clear()

    def __repr__(self) -> str:
        return f"<Connection {self._where}{' closed' if self._closed else ''}, {len(self._pending)} in flight>"

    @property
    def _where(self) -> str:
        return f"{self.alias + ' ' if self.alias else ''}broker {self.address}"

    @property
    def _context(self) -> dict[str, str]:
        return {"cluster": self.alias, "broker": str(self.address)}

    def _fail(self, error: HeliographError) -> HeliographError:
        self.close()
        return error

    def _lost(self, cause: OSError | None) -> ConnectionLost:
        why = "closed by the broker" if cause is None else link.reason(cause)
        fix = ""
        if not self._answers and self._pending:
            # Listeners that want SASL answer ApiVersions to anybody and hang up at the first real request.
            fix = "If it ends at the first request, the listener may want SASL: see security.protocol"
        return ConnectionLost(f"the connection to {self._where} was lost: {why}", fix=fix, **self._context)

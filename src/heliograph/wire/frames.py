"""Frames out of a non-blocking socket: four bytes of size, then that many bytes.

Answers for cutting the stream at any byte it happens to arrive, with one copy at most and bounded memory. Does not know
what is in a frame, nor whom the socket leads to.

Invariants:
A. A frame handed out is read-only. One of at most SHARED_BYTES is valid until the next one is asked for: its buffer is
   used again. A larger one lies in a buffer of its own, which is not used again while there is a view of it.
B. A frame larger than the limit is refused before anything is allocated for it.
C. With TLS the socket is read until it would block: bytes that OpenSSL already holds do not wake a selector.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator

from heliograph.errors import ProtocolError
from heliograph.wire.buffers import Buffers

# Most answers (acknowledgements, metadata) fit, so one system call brings the whole frame, often several.
SHARED_BYTES = 64 * 1024

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class FrameReader:
    """Cuts what `recv_into` brings into frames. `drain` says to read until it would block (TLS)."""

    def __init__(self, recv_into: Callable[[memoryview], int], *, limit_bytes: int, drain: bool = False) -> None:
        self._recv_into = recv_into
        self._limit = limit_bytes
        self._drain = drain
        self._head = memoryview(bytearray(SHARED_BYTES))
        self._held = 0  # bytes in _head
        self._body: memoryview | None = None  # the large frame under way
        self._filled = 0
        self._buffers = Buffers()
        self.ended = False  # the peer closed

    def frames(self) -> Iterator[memoryview]:
        """The whole frames that are there now."""
        while not self.ended:
            body = self._body
            room = self._head[self._held :] if body is None else body[self._filled :]
            asked = len(room)
            try:
                count = self._recv_into(room)
            except WOULD_BLOCK:
                return
            if count == 0:
                self.ended = True
                return
            if body is None:
                self._held += count
                yield from self._cut()
            else:
                self._filled += count
                if self._filled == len(body):
                    self._body = None
                    frame = body.toreadonly()
                    del body, room  # whoever has the frame decides how long its buffer stays
                    yield frame
                    del frame
            if count < asked and not self._drain:
                return  # the socket is empty: no need to be told so by one more call

    def _cut(self) -> Iterator[memoryview]:
        """Frames that are whole in the head buffer; the start of a larger one moves to its own buffer."""
        at, held, head = 0, self._held, self._head
        while held - at >= 4:
            size = int.from_bytes(head[at : at + 4], "big", signed=True)
            self._check(size, head[at:held])
            have = held - at - 4
            if have < size:
                self._body = self._buffers.take(size)
                self._body[:have] = head[at + 4 : held]
                self._filled, at = have, held
                break
            frame = head[at + 4 : at + 4 + size]
            at += 4 + size
            yield frame.toreadonly()
        if at < held and at:
            head[: held - at] = bytes(head[at:held])
        self._held = held - at

    def _check(self, size: int, start: memoryview) -> None:
        if 4 <= size <= self._limit:
            return
        if start[0] in (0x15, 0x16) and start[1] == 3:
            raise ProtocolError(
                "the broker answers in TLS, and this connection is plain",
                fix="Set security.protocol to SSL or SASL_SSL, or use the port of a plaintext listener",
            )
        if bytes(start[:4]) == b"HTTP":
            raise ProtocolError("this is an HTTP server, not a Kafka broker", fix="Check bootstrap.servers")
        raise ProtocolError(
            f"a frame of {size} bytes was announced, the limit is {self._limit}",
            fix="Check that this address is a Kafka broker",
        )

"""A request's body in chunks (RFC 9112 7.1), taken as it comes and bounded. Pure: bytes in, a body out.

Programs that make a body while they send it use it: a pipe into curl, Java's clients without a length. Extensions and
trailers are read over; bare line feeds, signs and spaces are refused, since two readers could see two bodies.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Literal

from heliograph.http.message import BODY_LIMIT_BYTES, Refused, bad, too_large

LINE_LIMIT_BYTES = 1024  # a size with its extensions, or a line of the trailer
FRAMING_LIMIT_BYTES = 1 << 20  # sizes, line ends and trailers together: a body of single bytes is work for nothing
SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n\0]*)?")


class Chunks:
    def __init__(self) -> None:
        self.body = bytearray()
        self.rest = b""  # what came behind it, once it is whole
        self._data = bytearray()
        self._left = 0  # of the chunk that is being read
        self._framing = 0
        self._at: Literal["size", "content", "end", "trailer"] = "size"

    def feed(self, data: bytes) -> bool:
        """Whether the body is whole. Raises Refused."""
        self._data += data
        while True:
            if self._at == "content":
                self._take()
                if self._left:
                    return False
                self._at = "end"
            line = self._line()
            if line is None:
                return False
            if self._read(line):
                self.rest = bytes(self._data)
                return True

    def _take(self) -> None:
        part = self._data[: self._left]
        self.body += part
        self._left -= len(part)
        del self._data[: len(part)]

    def _line(self) -> bytes | None:
        """One line without its end; None: it is not all there."""
        end = self._data.find(b"\n")
        if (end if end >= 0 else len(self._data)) > LINE_LIMIT_BYTES:
            raise bad(f"a line between chunks is longer than {LINE_LIMIT_BYTES:,} bytes")
        if end < 0:
            return None
        line = bytes(self._data[: end + 1])
        del self._data[: end + 1]
        self._framing += len(line)
        if self._framing > FRAMING_LIMIT_BYTES:
            why = f"chunks so small that more than {FRAMING_LIMIT_BYTES:,} bytes stand between them"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why, close=True)
        if not line.endswith(b"\r\n"):
            raise bad("a line between chunks does not end in CR LF")
        return line[:-2]

    def _read(self, line: bytes) -> bool:
        """A line between two chunks; whether it was the last."""
        if self._at == "end":
            if line:
                raise bad("a chunk is longer than its size says")
            self._at = "size"
        elif self._at == "size":
            match = SIZE.fullmatch(line)
            if match is None:
                raise bad("a chunk's size is not a hexadecimal number")
            self._left = int(match[1], 16)
            if len(self.body) + self._left > BODY_LIMIT_BYTES:
                raise too_large()
            self._at = "content" if self._left else "trailer"
        return self._at == "trailer" and not line

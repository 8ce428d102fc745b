"""h11's parser with our limits, and stricter: what two readers could read in two ways is refused.

h11 takes bare line feeds, folded headers, lists of lengths and chunks of any size. In front of a proxy that reads them
otherwise, each is a way to smuggle a second request past it. `check_head` looks at the bytes of a head before h11 sees
them; `Parser` counts what a body brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import h11

from heliograph.http.message import Refused, Request, bad

HEAD_LIMIT_BYTES = 16 << 10  # request line and headers; browsers with many cookies stay below
HEADERS_LIMIT = 100
BODY_LIMIT_BYTES = 1 << 20
CHUNK_LINE_LIMIT_BYTES = 1024  # a chunk's size with its extensions
FRAMING_LIMIT_BYTES = 64 << 10  # sizes, line ends and trailers together: a body of single bytes is work for nothing
QUERY_FIELDS_LIMIT = 100
END = b"\r\n\r\n"
CONTINUE = "100-continue"
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class Parser(h11.Connection):
    """The server's side of one connection. `next_event` raises Refused where h11 would raise RemoteProtocolError.

    Reads two private attributes of h11 (`_receive_buffer`, `_reader`), for it says neither how many bytes it holds nor
    how long an announced chunk is; `tests/unit/test_http.py` fails if they go away.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT_BYTES)
        self._body_bytes = self._framing_bytes = 0

    @property
    def holds_bytes(self) -> bool:
        """Whether a part of a request, or of the next one, was received and not read yet."""
        return len(self._receive_buffer) > 0

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            if not self._head_is_whole():
                return h11.NEED_DATA
            self._body_bytes = self._framing_bytes = 0
        in_body = self.their_state is h11.SEND_BODY
        before = len(self._receive_buffer)
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            raise _refusal(error, in_body) from error
        if in_body:
            self._count(event, before - len(self._receive_buffer))
        return event

    def _head_is_whole(self) -> bool:
        data = bytes(self._receive_buffer)
        empty = len(data) - len(data.lstrip(b"\r\n"))
        if empty:  # RFC 9112 2.2: empty lines before a request are passed over
            self._receive_buffer.maybe_extract_at_most(empty)
            data = data[empty:]
        end = data.find(END, 0, HEAD_LIMIT_BYTES + len(END))
        if end >= 0:
            check_head(data[:end])
            return True
        if len(data) > HEAD_LIMIT_BYTES:
            why = f"a head of at most {HEAD_LIMIT_BYTES:,} bytes is taken"
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why, close=True)
        if data and data[0] < 0x21:
            raise bad("not an HTTP request line: METHOD target HTTP/1.1 (is it TLS, sent to a port without it?)")
        return False

    def _count(self, event: Any, taken: int) -> None:
        data = len(event.data) if isinstance(event, h11.Data) else 0
        announced = getattr(self._reader, "_bytes_in_chunk", 0)
        self._body_bytes += data
        self._framing_bytes += taken - data
        if announced >= 1 << 32:
            raise bad("a chunk's size is not a number of eight hexadecimal digits")
        if self._body_bytes + announced > BODY_LIMIT_BYTES:
            raise too_large()
        if taken - data > CHUNK_LINE_LIMIT_BYTES and not isinstance(event, h11.EndOfMessage):
            raise bad(f"a line between chunks is longer than {CHUNK_LINE_LIMIT_BYTES:,} bytes")
        if self._framing_bytes > FRAMING_LIMIT_BYTES:
            raise _too_much_framing()


def _refusal(error: h11.RemoteProtocolError, in_body: bool) -> Refused:
    if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE and in_body:
        return _too_much_framing()
    return Refused(HTTPStatus(error.error_status_hint), str(error), close=True)


def _too_much_framing() -> Refused:
    why = f"chunks so small that more than {FRAMING_LIMIT_BYTES:,} bytes stand between them, or too long a trailer"
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why, close=True)


def too_large() -> Refused:
    why = f"a body of at most {BODY_LIMIT_BYTES:,} bytes is taken"
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why, close=True)


# ---------------------------------------------------------------- the head


def check_head(head: bytes) -> None:
    """Raises Refused for a head that is not strictly HTTP/1.1 or HTTP/1.0, or asks for what is not done here."""
    text = head.decode("latin-1")
    bare = text.replace("\r\n", "")
    if "\0" in text or "\r" in bare or "\n" in bare:
        raise bad("control characters in the head, or lines that do not end in CR LF")
    line, *rest = text.split("\r\n")
    target, version = _request_line(line)
    headers = _headers(rest)
    if version == "HTTP/1.1" and "host" not in headers:
        raise bad("an HTTP/1.1 request needs a Host header")
    _check_length(headers, version)
    if headers.get("expect", CONTINUE).lower() != CONTINUE:
        raise Refused(HTTPStatus.EXPECTATION_FAILED, f"no other expectation is met than {CONTINUE}", close=True)
    split_target(target)


def _request_line(line: str) -> tuple[str, str]:
    words = line.split(" ")
    if len(words) != 3 or not words[0] or not set(words[0]) <= _TOKEN:
        raise bad("not an HTTP request line: METHOD target HTTP/1.1")
    _, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        status = HTTPStatus.HTTP_VERSION_NOT_SUPPORTED if version.startswith("HTTP/") else HTTPStatus.BAD_REQUEST
        raise Refused(status, "HTTP/1.1 and HTTP/1.0 are spoken here", close=True)
    if not target.startswith(("/", "http://", "https://")) or not all(32 < ord(letter) < 127 for letter in target):
        raise bad("the request target must be a path of ASCII letters; escape others")
    return target, version


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    if len(lines) > HEADERS_LIMIT:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEADERS_LIMIT} headers", close=True)
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or not set(name) <= _TOKEN:
            raise bad("a header that is not name: value")
        name, value = name.lower(), value.strip(" \t")
        if name in headers and name in ("host", "content-length"):
            raise bad(f"two {name} headers")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _check_length(headers: Mapping[str, str], version: str) -> None:
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if "content-length" in headers or version == "HTTP/1.0":  # two readers could see two bodies
            raise bad("Transfer-Encoding beside a Content-Length, or from HTTP/1.0")
        if coding.lower() != "chunked":
            raise Refused(HTTPStatus.NOT_IMPLEMENTED, "no transfer coding is known but chunked", close=True)
    told = headers.get("content-length", "0")
    if not (told.isascii() and told.isdigit()):
        raise bad("Content-Length is not a number")
    if len(told) > 9 or int(told) > BODY_LIMIT_BYTES:
        raise too_large()


# ---------------------------------------------------------------- what handlers get


def split_target(target: str) -> tuple[SplitResult, str, dict[str, list[str]]]:
    """Its parts, the path without escapes, and the query. Raises Refused."""
    try:
        # A path that begins with two slashes is a path: urlsplit would take the first segment for a host.
        parts = urlsplit(target if not target.startswith("//") else f"http://x{target}")
        path = unquote(parts.path, errors="strict")
        return parts, path, parse_qs(parts.query, max_num_fields=QUERY_FIELDS_LIMIT)
    except ValueError as error:
        raise bad(f"a request target that makes no sense: {error}") from error


def request_of(scope: Mapping[str, Any], body: bytes) -> Request:
    """An ASGI scope whose head went through `check_head`, as handlers see it."""
    raw, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    target = f"{raw}?{query}" if query else raw
    parts, path, fields = split_target(target)
    headers: dict[str, str] = {}
    for name_bytes, value_bytes in scope["headers"]:
        name, value = name_bytes.decode("latin-1"), value_bytes.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if not raw.startswith("/"):  # RFC 9112 3.2.2: the target's authority counts, whatever Host says
        raw, headers["host"] = parts.path, parts.netloc
    client = scope.get("client")
    return Request(
        scope["method"], path, fields, headers, body,
        raw_path=raw, tls=scope["scheme"] == "https", client=client[0] if client else "",
    )  # fmt: skip

"""HTTP/1.1 requests read and responses written, strictly: what is not understood is answered with the status for it.

Pure: bytes in, values out. Speaks as much of RFC 9112 as a scraper, a probe, a browser and a program that sends JSON
need: no continuation lines, no upgrades; bodies in chunks are `http.chunks`' affair.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

HEAD_LIMIT_BYTES = 16 << 10  # request line and headers; browsers with many cookies stay below
HEADERS_LIMIT = 100
BODY_LIMIT_BYTES = 1 << 20

JSON = "application/json; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"
CONTINUE = "100-continue"
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class Refused(Exception):
    """A request that gets this answer and nothing else. `close`: what follows on the connection makes no sense."""

    def __init__(self, status: HTTPStatus, why: str, *, close: bool = False, headers: Mapping[str, str] | None = None):
        super().__init__(why)
        self.status, self.why, self.close, self.headers = status, why, close, dict(headers or {})


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    keep_alive: bool = True
    raw_path: str = ""  # as it was sent, escapes and all
    tls: bool = False
    client: str = ""  # the address that it came from
    role: str = "reader"  # of who asks, as the guard found; "anybody" where nobody was asked


@dataclass(frozen=True, slots=True)
class Response:
    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = PLAIN  # "": there is nothing to be of a type
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: Any, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
        return cls(status, json.dumps(value, ensure_ascii=False).encode() + b"\n", JSON, headers or {})

    @classmethod
    def refusal(cls, refused: Refused) -> Response:
        """Shaped as Kafka Connect's: programs that speak to one understand the other."""
        return cls.json({"error_code": int(refused.status), "message": refused.why}, refused.status, refused.headers)

    def encode(self, *, head_only: bool = False, keep_alive: bool = True) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            *([f"Content-Type: {self.content_type}"] if self.content_type else []),
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
        ]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        return head if head_only else head + self.body


def parse_head(head: bytes) -> tuple[Request, int | None]:
    """A request without its body, and how long that is; None: it comes in chunks. Raises Refused."""
    text = head.decode("latin-1")
    if "\0" in text or "\r" in text.replace("\r\n", ""):
        raise bad("control characters in the head")
    line, *rest = text.split("\r\n")
    method, target, version = _request_line(line)
    headers = _headers(rest)
    if version == "HTTP/1.1" and "host" not in headers:
        raise bad("an HTTP/1.1 request needs a Host header")
    length = _length(headers, version)
    if headers.get("expect", CONTINUE).lower() != CONTINUE:
        raise Refused(HTTPStatus.EXPECTATION_FAILED, f"no other expectation is met than {CONTINUE}", close=True)
    try:
        parts = urlsplit(target)
        path, query = unquote(parts.path, errors="strict"), parse_qs(parts.query, max_num_fields=100)
    except ValueError as error:
        raise bad(f"a request target that makes no sense: {error}") from error
    tokens = {word.strip() for word in headers.get("connection", "").lower().split(",")}
    keep_alive = "close" not in tokens and (version == "HTTP/1.1" or "keep-alive" in tokens)
    raw = target.partition("?")[0] if target.startswith("/") else parts.path
    return Request(method, path, query, headers, keep_alive=keep_alive, raw_path=raw), length


def _request_line(line: str) -> tuple[str, str, str]:
    words = line.split(" ")
    if len(words) != 3 or not words[0] or not set(words[0]) <= _TOKEN:
        raise bad("not an HTTP request line: METHOD target HTTP/1.1")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        status = HTTPStatus.HTTP_VERSION_NOT_SUPPORTED if version.startswith("HTTP/") else HTTPStatus.BAD_REQUEST
        raise Refused(status, "HTTP/1.1 and HTTP/1.0 are spoken here", close=True)
    if not target.startswith(("/", "http://", "https://")) or any(ord(letter) < 33 for letter in target):
        raise bad("the request target must be a path")
    return method, target, version


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


def _length(headers: Mapping[str, str], version: str) -> int | None:
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if "content-length" in headers or version == "HTTP/1.0":  # two readers could see two bodies
            raise bad("Transfer-Encoding beside a Content-Length, or from HTTP/1.0")
        if coding.lower() != "chunked":
            raise Refused(HTTPStatus.NOT_IMPLEMENTED, "no transfer coding is known but chunked", close=True)
        return None
    told = headers.get("content-length", "0")
    if not (told.isascii() and told.isdigit()):
        raise bad("Content-Length is not a number")
    if len(told) > 9 or int(told) > BODY_LIMIT_BYTES:
        raise too_large()
    return int(told)


def too_large() -> Refused:
    why = f"a body of at most {BODY_LIMIT_BYTES:,} bytes is taken"
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why, close=True)


def bad(why: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, why, close=True)

"""Requests and responses as handlers see them, and the refusals that every part of the server can raise. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

JSON = "application/json; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"


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
    raw_path: str = ""  # as it was sent, escapes and all
    tls: bool = False
    client: str = ""  # the address that it came from
    user: str = ""  # as the guard found; empty where no password is asked for
    role: str = "reader"  # of the user, as the guard found; "anybody" where nobody was asked


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

    def fields(self, *, close: bool = False) -> list[tuple[str, str]]:
        """The header fields, with names as Connect's Jetty writes them: scripts look for `Location:`."""
        return [
            *([("Content-Type", self.content_type)] if self.content_type else []),
            *([("Content-Length", str(len(self.body)))] if self.status is not HTTPStatus.NO_CONTENT else []),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *self.headers.items(),
            *([("Connection", "close")] if close else []),
        ]

    def encode(self) -> bytes:
        """For a connection that ends with it, where no request could be read."""
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in self.fields(close=True)]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


def bad(why: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, why, close=True)

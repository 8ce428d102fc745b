"""One request to a token endpoint, and its answer within a time.

Redirects are not followed: the client secret goes to the address that was named and nowhere else. An endpoint that
sends a byte now and then is given up like one that is silent; a socket's own timeout would begin again with each byte.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO, Any

MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    is_html: bool


class BadAnswer(Exception):
    """Words that can follow `no token from URL: `."""


class Redirected(urllib.error.HTTPError):
    where = ""


def post(url: str, form: Mapping[str, str], headers: Mapping[str, str], timeout_s: float) -> Answer:
    """Raises BadAnswer, Redirected, urllib's HTTPError, OSError, HTTPException; ValueError, TypeError and OverflowError
    for what is no address. Takes `timeout_s` at most for each of connecting, the answer's head and the answer."""
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), dict(headers))
    watch = _Watch(timeout_s)
    try:
        with _opener(watch).open(request, timeout=timeout_s) as answer:
            watch.end()
            body = _read(answer, time.monotonic() + timeout_s)
            return Answer(body, _is_html(answer.headers, body))
    finally:
        watch.end()


class _Watch:
    """Hangs up when an answer's head does not come in time. One request's."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._timers: list[threading.Timer] = []
        self._hung_up = False

    def end(self) -> None:
        """Raises TimeoutError if it hung up: what was read until then only looks like an answer, or like no HTTP."""
        for timer in self._timers:
            timer.cancel()
        if self._hung_up:
            raise TimeoutError(f"its answer did not come within {self._timeout_s:g} s")

    def over(self, kind: type[http.client.HTTPConnection]) -> Callable[..., http.client.HTTPConnection]:
        """Connections of this kind, watched."""
        watch = self

        class Watched(kind):  # type: ignore[misc, valid-type]
            def connect(self) -> None:
                super().connect()
                watch.begin(self.sock)

        return Watched

    def begin(self, connection: socket.socket) -> None:
        timer = threading.Timer(self._timeout_s, self._hang_up, (connection,))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _hang_up(self, connection: socket.socket) -> None:
        """The reader finds the connection ended. (Not by TLS's own `shutdown`, which would wait for the reader.)"""
        self._hung_up = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._watch.over(http.client.HTTPConnection), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._watch.over(http.client.HTTPSConnection), req)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib would send the request's headers, and with them the client secret, to any host and scheme."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        fp.close()
        error = Redirected(req.full_url, code, msg, headers, None)
        error.where = urllib.parse.urlsplit(newurl).netloc[:200] or "another path"
        raise error


def _opener(watch: _Watch) -> urllib.request.OpenerDirector:
    """HTTP, HTTPS and the environment's proxies: none of urllib's `file:`, `ftp:` and `data:`."""
    opener = urllib.request.OpenerDirector()
    handlers: tuple[Any, ...] = (
        urllib.request.ProxyHandler(),
        _Http(watch),
        _Https(watch),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _NoRedirects(),
    )
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def _read(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    body = bytearray()
    while len(body) < MAX_ANSWER_BYTES:
        part = answer.read1(MAX_ANSWER_BYTES - len(body))
        if not part:
            break
        body += part
        if time.monotonic() > deadline:
            raise BadAnswer("its answer did not end in time")
    else:
        raise BadAnswer(f"its answer has more than {MAX_ANSWER_BYTES} bytes")
    if answer.length:  # `read1` does not say so by itself
        raise BadAnswer(f"its answer ended {answer.length} bytes early")
    return bytes(body)


def _is_html(headers: Message, body: bytes) -> bool:
    return headers.get_content_type() in ("text/html", "application/xhtml+xml") or body.lstrip()[:1] == b"<"

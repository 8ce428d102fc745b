"""The API at work: a request taken apart, decided, its deeds done, its answer sent.

Answers for the order of these and for what cannot be reached being said in Connect's shape. One change at a time, on
topics that were read to their ends before it is decided.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

import structlog

from heliograph import __version__
from heliograph.connect import positions, records, validation
from heliograph.connect.asking import (
    Ask,
    Decision,
    Deed,
    ForgetTopics,
    Offsets,
    Overtaken,
    Refusal,
    SetLevel,
    Sight,
    Write,
)
from heliograph.connect.endpoints import ENDPOINTS, Endpoint
from heliograph.connect.node import Node
from heliograph.connect.openapi import description
from heliograph.connect.shapes import offsets_json
from heliograph.errors import Held, HeliographError
from heliograph.http.message import Refused, Request, Response
from heliograph.http.notices import Notices
from heliograph.http.routing import Match, Route, Router
from heliograph.types import Flow

log = structlog.get_logger()

TRIES = 5  # of a change that other nodes are in the way of
ENDED_S = 15.0  # what a connector gets to end before its offsets may be changed
JSON_TYPES = ("application/json", "text/json")
# Escaped slashes, dots and zeros, empty segments, escapes that are none: two readers could read two paths.
PARAMETERS = re.compile(r";[^/]*")


class Backend(Protocol):
    """Whoever has connectors: a node of a Connect cluster, or the flows of a file."""

    def sight(self, *, fresh: bool = False) -> Sight: ...
    def do(self, deed: Deed, seen: int = 0) -> Any:
        """`seen`: of the board that the deed was decided by. Raises Overtaken."""

    def await_end(self, deed: Offsets) -> None:
        """Waits until nothing runs a connector whose offsets are to be changed; refuses if something goes on."""


class NodeBackend:
    def __init__(self, node: Node) -> None:
        self._node = node

    def sight(self, *, fresh: bool = False) -> Sight:
        """`fresh`: after everything that is in the topics now."""
        if fresh:
            self._node.store.catch_up()
        return self._node.sight()

    def do(self, deed: Deed, seen: int = 0) -> Any:
        store = self._node.store
        match deed:
            case Write():
                self._write(deed, seen)
                self._node.poke()
            case ForgetTopics(name, topics):
                store.tell([(records.topic_key(name, topic), None) for topic in topics])
                store.catch_up()
            case SetLevel(logger, level):
                self._node.loggers.set(logger, level)
            case Offsets():
                return self._offsets(deed)
        return None

    def _write(self, deed: Write, seen: int) -> None:
        store = self._node.store
        condition = records.Condition(seen, secrets.token_hex(8)) if deed.made else None
        store.write(deed.pairs, condition)
        store.catch_up()
        if condition is None or not store.was_overtaken(condition):
            return
        for _ in range(TRIES):  # invariant e of the board; what is left of it any node sees to
            if not store.repair():
                break
            store.catch_up()
        raise Overtaken

    def await_end(self, deed: Offsets) -> None:
        flow = self._flow(deed.name)
        deadline = time.monotonic() + ENDED_S
        while not self._node.has_ended(deed.name) and time.monotonic() < deadline:
            time.sleep(0.05)
        with _held():
            positions.require_stopped(flow)

    def _offsets(self, deed: Offsets) -> Any:
        flow, topic = self._flow(deed.name), self._node.file.offsets.name
        if deed.what == "read":
            return offsets_json(positions.read(flow, topic))
        if not self._node.has_ended(deed.name):
            raise Refusal(HTTPStatus.CONFLICT, f"{deed.name} has not ended yet on this worker: ask again")
        with _held():
            positions.change(flow, topic, deed)
        return None

    def _flow(self, name: str) -> Flow:
        one = self._node.store.board.connectors.get(name)
        if one is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"Connector {name} not found")
        made = validation.judge(name, one.config, self._node.file.worker).made
        if made.flow is None:
            why = f"the configuration of {name} is not right, so that nobody knows where its offsets are"
            raise Refusal(HTTPStatus.BAD_REQUEST, why)
        return made.flow


class Service:
    def __init__(self, backend: Backend, *, secured: bool = False, notices: Notices | None = None) -> None:
        self._backend = backend
        self._notices = notices or Notices()
        self._changing = threading.Lock()
        self._description = description(__version__, secured=secured)

    def routes(self) -> tuple[Route, ...]:
        served = tuple(
            Route(one.method, one.path, self._handler(one), one.doc, one.role, one.prompt) for one in ENDPOINTS
        )
        return (*served, Route("GET", "/openapi.json", self._describe, "this API, described", "reader", prompt=True))

    def _describe(self, request: Request, _: Mapping[str, str]) -> Response:
        return Response.json(self._description)

    def _handler(self, endpoint: Endpoint) -> Callable[[Request, Mapping[str, str]], Response]:
        def handle(request: Request, named: Mapping[str, str]) -> Response:
            try:
                _require_acceptable(request)
                response = self._answer(endpoint, Ask(named, request.query, _body(endpoint, request), request.role))
                return _placed(response, request)
            except Refusal as refusal:
                return _refused(refusal)
            except HeliographError as error:
                log.warning("a request could not be carried out", path=request.path, why=str(error))
                return _refused(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, f"Request timed out: {error}"))

        return handle

    def _answer(self, endpoint: Endpoint, ask: Ask) -> Response:
        if endpoint.role != "admin":
            sight = replace(self._backend.sight(), notices=tuple(self._notices.lines()))
            return self._carry_out(endpoint.decide(sight, ask))
        with self._changing:
            for _ in range(TRIES):
                sight = self._backend.sight(fresh=True)
                if endpoint.changes and not sight.writable:
                    why = "these flows are a file's: edit it, and let `heliograph apply` take it up"
                    raise Refusal(HTTPStatus.CONFLICT, why)
                decision = endpoint.decide(sight, ask)
                if any(isinstance(deed, Offsets) for deed in decision.deeds):
                    break
                with contextlib.suppress(Overtaken):
                    return self._carry_out(decision, sight.board.seen)
            else:
                why = "Cannot complete request momentarily: other nodes change this connector as well; ask again"
                raise Refusal(HTTPStatus.CONFLICT, why)
        return self._change_offsets(endpoint, ask, decision)

    def _change_offsets(self, endpoint: Endpoint, ask: Ask, decision: Decision) -> Response:
        """Other changes do not wait while the connector ends. So it may have been resumed, deleted or configured
        otherwise by then: the request is decided again on the topics as they are, and after the write once more, since
        a resume by another node may have come between. Then its flow has begun from old or new positions."""
        for deed in decision.deeds:
            if isinstance(deed, Offsets):
                self._backend.await_end(deed)
        with self._changing:
            response = self._carry_out(endpoint.decide(self._backend.sight(fresh=True), ask))
            try:
                endpoint.decide(self._backend.sight(fresh=True), ask)
            except Refusal as refusal:
                why = f"It was resumed or changed while its offsets were written, so both may count: {refusal.message}"
                raise Refusal(HTTPStatus.CONFLICT, why) from refusal
        return response

    def _carry_out(self, decision: Decision, seen: int = 0) -> Response:
        body = decision.body
        for deed in decision.deeds:
            made = self._backend.do(deed, seen)
            body = made if made is not None else body
        if body is None:
            return Response(decision.status, content_type="", headers=decision.headers)
        return _json(body, decision.status, decision.headers)


class Api(Router):
    """What is not in the table, and paths that are ambiguous, in Connect's words."""

    def find(self, request: Request) -> Match:
        if ";" in request.raw_path:  # parameters of segments, which nobody needs
            request = replace(request, path=unquote(PARAMETERS.sub("", request.raw_path)))
        return super().find(request)

    def ambiguous(self, request: Request) -> Match:
        return Match(request, Route(request.method, request.path, _ambiguous, "", "anybody", prompt=True), {})

    def refusing(self, request: Request, refused: Refused, role: str = "reader") -> Match:
        why = f"HTTP {refused.status.value} {refused.status.phrase}"
        return super().refusing(request, Refused(refused.status, why, headers=refused.headers), role)


def _ambiguous(_request: Request, _named: Mapping[str, str]) -> Response:
    return _refused(Refusal(HTTPStatus.BAD_REQUEST, "Ambiguous URI path"))


@contextlib.contextmanager
def _held() -> Iterator[None]:
    try:
        yield
    except Held as error:
        why = f"{error.message}. Its next positions would undo the change: stop it first"
        raise Refusal(HTTPStatus.CONFLICT, why) from error


def _json(body: Any, status: HTTPStatus, headers: Mapping[str, str]) -> Response:
    return replace(Response.json(body, status, headers), content_type=JSON_TYPES[0])


def _refused(refusal: Refusal) -> Response:
    return _json({"error_code": int(refusal.status), "message": refusal.message}, refusal.status, {})


def _require_acceptable(request: Request) -> None:
    ranges = [one.partition(";")[0].strip().lower() for one in request.headers.get("accept", "").split(",")]
    if not {"", "*/*", "application/*", *JSON_TYPES} & set(ranges):
        raise Refusal(HTTPStatus.NOT_ACCEPTABLE, "HTTP 406 Not Acceptable")


def _placed(response: Response, request: Request) -> Response:
    """With the address that was asked, as Connect has it."""
    where, host = response.headers.get("Location"), request.headers.get("host", "")
    if where is None or not host:
        return response
    scheme = request.headers.get("x-forwarded-proto", "https" if request.tls else "http")
    scheme = scheme if scheme in ("http", "https") else "http"
    return replace(response, headers={**response.headers, "Location": f"{scheme}://{host}{where}"})


def _body(endpoint: Endpoint, request: Request) -> Any:
    """The body as JSON, if one is taken; Refusal for anything else."""
    if endpoint.body is None:
        return None
    # As in Connect, a body says that it is JSON: browsers send one of any other type, or of none, for any page.
    told = request.headers.get("content-type", "" if request.body else JSON_TYPES[0]).partition(";")[0].strip().lower()
    if told not in JSON_TYPES and not told.endswith("+json"):
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "HTTP 415 Unsupported Media Type")
    try:
        body = json.loads(request.body.decode(), parse_constant=_no_number)
        json.dumps(body, ensure_ascii=False).encode()  # halves of characters could not be written down
        return body
    except (ValueError, RecursionError) as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}") from error


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")

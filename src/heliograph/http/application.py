"""The ASGI application: what is done with each request between the connection and its handler, in this order.

  1. the Host must be a name of this server (421), for every method (`hosts`)
  2. a page of another site may change nothing (403, `origin`)
  3. the route is found; what is not there becomes a refusal, given after 4
  4. the client's rate, then the user's password: waited for here, on no thread of the handlers (`guard`)
  5. the handler, on a thread of the pool; those that never block (/health) on threads of their own

Starlette has the outer frame: further routes (streams, files) stand beside the table and go through 1 and 2 as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from heliograph.http.bodies import Bodies, Held
from heliograph.http.connections import network
from heliograph.http.guard import OPEN, Identity
from heliograph.http.hosts import Hosts
from heliograph.http.message import Refused, Request, Response
from heliograph.http.origin import require_own
from heliograph.http.parsing import request_of
from heliograph.http.pool import Full, Pool
from heliograph.http.routing import Match, Router

log = structlog.get_logger()

HANDLERS = 16  # threads that may wait for Kafka at a time
HANDLERS_WAITING_EACH, HANDLERS_WAITING = 64, 256  # requests of one client, of all, that wait for one of them
PROMPT = 2  # threads of the handlers that never block


def application(router: Router, hosts: Hosts, handlers: Pool, prompt: Pool, more: Sequence[BaseRoute] = ()) -> ASGIApp:
    made = Starlette(routes=[*more], middleware=[Middleware(OwnNames, hosts=hosts), Middleware(OwnPages)])
    made.router.redirect_slashes = False
    made.router.default = Table(router, handlers, prompt)  # a Mount would leave out paths with an escaped line end
    return Closing(made)


class Closing:
    """Requests that are cut off when the server closes end in silence: uvicorn would log each as a fault."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._app(scope, receive, send)


class OwnNames:
    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = request_of(scope, b"")
            try:
                self._hosts.require(request)
            except Refused as refused:
                await _read_body(receive)
                await _send(send, Response.refusal(refused), close=True)
                return
            scope = {**scope, "path": request.path, "raw_path": request.raw_path.encode("latin-1"), "asked": request}
        await self._app(scope, receive, send)


class OwnPages:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                require_own(scope["asked"])
            except Refused as refused:
                await _read_body(receive)
                await _send(send, Response.refusal(refused), close=refused.close)
                return
        await self._app(scope, receive, send)


class Table:
    """The router as an ASGI application."""

    def __init__(self, router: Router, handlers: Pool, prompt: Pool) -> None:
        self._router, self._handlers, self._prompt = router, handlers, prompt
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked: Request = scope["asked"]
        with self._bodies.of(network(asked.client)) as held:
            if not await _read_body(receive, held):
                return  # the connection ended within the request
            close = False
            try:
                response = await self._respond(replace(asked, body=held.whole()), fits=held.fits)
            except Refused as refused:
                response, close = Response.refusal(refused), refused.close
        await _send(send, response, close=close)

    async def _respond(self, request: Request, *, fits: bool) -> Response:
        try:
            if not fits:
                why = "bodies of requests take up as much memory as they may: ask again"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, why, headers={"Retry-After": "2"})
            match = self._router.find(request)
            who = await self._admit(match)
            return await self._call(match, who)
        except Refused:
            raise
        except Exception as error:  # the top of a request: said, logged, and the next one is served
            log.exception("a request failed", path=request.raw_path)
            why = f"{type(error).__name__}: this is a fault of Heliograph, its log says more"
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, why) from error

    async def _admit(self, match: Match) -> Identity:
        guard = self._router.guard
        if guard is None:
            return OPEN
        guard.count(match.request, alone=match.route.prompt and match.route.role == "anybody")
        who = await guard.identify(match.request, match.route.role)
        try:
            return guard.require(who, match.route.role)
        except Refused as refused:
            self._router.refuse(match, refused, who)
            raise

    async def _call(self, match: Match, who: Identity) -> Response:
        pool = self._prompt if match.route.prompt else self._handlers

        def call() -> Response:
            return match.answer(who)

        try:
            return await asyncio.wrap_future(pool.submit(network(match.request.client), call))
        except Full as full:
            why = "requests wait for Kafka and no thread is free: ask again"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{why} ({full})", headers={"Retry-After": "2"}) from full


async def _read_body(receive: Receive, held: Held | None = None) -> bool:
    """All of it, for what is left unread would be taken for the next request. False: the connection ended."""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return False
        if held is not None:
            held.add(message.get("body", b""))
        if not message.get("more_body", False):
            return True


async def _send(send: Send, response: Response, *, close: bool) -> None:
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.fields(close=close)]
    await send({"type": "http.response.start", "status": int(response.status), "headers": fields})
    await send({"type": "http.response.body", "body": response.body})

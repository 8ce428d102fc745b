"""Which handler answers which request: a table of method and path, with typed handlers.

A path may hold `{name}`, which stands for one segment and is handed to the handler. HEAD is answered by whoever answers
GET. What is not in the table is 404 with the paths that are, or 405 with the methods that are. Where there is a guard,
it is asked first; pages of other sites are refused before that. What admins do is logged with its outcome.

`find`, `admit` and `Match.answer` are the steps of one request. The server takes them apart, for the guard waits and
handlers block; `answer` takes them at once, on the caller's thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus

from heliograph import audit
from heliograph.http.guard import OPEN, Guard, Identity
from heliograph.http.limits import Bucket
from heliograph.http.message import Refused, Request, Response
from heliograph.http.origin import require_own

# Paths that two readers could take apart in two ways: a proxy that guards a path, and this server.
AMBIGUOUS = re.compile(r"%2f|%2e|%00|//|%(?![0-9a-f]{2})", re.IGNORECASE)
STRANGERS_PER_SECOND, STRANGERS_BURST = 0.1, 10.0  # audit lines about changes without credentials

Handler = Callable[[Request, Mapping[str, str]], Response]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: Handler
    doc: str
    role: str = "reader"  # of who may: anybody, reader, admin; asked for where there is a guard
    prompt: bool = False  # its handler never blocks: it is answered also while all others wait for Kafka

    def match(self, path: str) -> dict[str, str] | None:
        """The named segments, or None when this is another path."""
        mine, theirs = self.path.split("/"), path.split("/")
        if len(mine) != len(theirs):
            return None
        named: dict[str, str] = {}
        for wanted, found in zip(mine, theirs, strict=True):
            if wanted.startswith("{"):
                if not found:
                    return None
                named[wanted.strip("{}")] = found
            elif wanted != found:
                return None
        return named


@dataclass(frozen=True, slots=True)
class Match:
    """A request and the route that answers it, also if that is a refusal."""

    request: Request
    route: Route
    named: Mapping[str, str]

    def answer(self, who: Identity) -> Response:
        """Raises Refused, and whatever the handler raises."""
        request = replace(self.request, user=who.user, role=who.role)
        if self.route.role != "admin":
            return self.route.handler(request, self.named)
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        try:
            response = self.route.handler(request, self.named)
            status = response.status
            return response
        except Refused as refused:
            status = refused.status
            raise
        finally:
            audit.record(who.words, request.client, f"{request.method} {request.raw_path}", int(status), role=who.role)

    def refuse(self, refused: Refused, who: Identity | None, **more: object) -> None:
        """Audits a change that was refused."""
        name, role = (who.words, str(who.role)) if who is not None else ("nobody that is known", "none")
        what = f"{self.request.method} {self.request.raw_path}"
        audit.record(name, self.request.client, what, int(refused.status), role=role, **more)


class Router:
    def __init__(self, routes: Sequence[Route], guard: Guard | None = None) -> None:
        self.routes = tuple(routes)
        self.guard = guard
        self._strangers = Bucket(STRANGERS_PER_SECOND, STRANGERS_BURST)
        self._passed_over = 0  # refusals of strangers since the last one that was logged

    def answer(self, request: Request) -> Response:
        """Raises Refused for what is not in the table, and whatever the handler raises."""
        require_own(request)
        match = self.find(request)
        who = OPEN if self.guard is None else self.guard.check(request, match.route.role)
        return match.answer(who)

    def refuse(self, match: Match, refused: Refused, who: Identity | None) -> None:
        """Logs what was tried; of strangers, who could fill the log, samples with the number left out. Called by the
        server's loop alone."""
        if match.route.role != "admin":
            return
        if who is not None:
            match.refuse(refused, who)
        elif self._strangers.take():
            match.refuse(refused, None, **({"more_refused": self._passed_over} if self._passed_over else {}))
            self._passed_over = 0
        else:
            self._passed_over += 1

    def find(self, request: Request) -> Match:
        if AMBIGUOUS.search(request.raw_path):
            return self.ambiguous(request)
        path = request.path.rstrip("/") or "/"
        method = "GET" if request.method == "HEAD" else request.method
        found = [(route, named) for route in self.routes if (named := route.match(path)) is not None]
        asked = next(((route, named) for route, named in found if route.method == method), None)
        if asked is not None:
            return Match(request, *asked)
        # Also for what is not there a role is needed: nobody learns what is.
        if not found:
            known = ", ".join(sorted({route.path for route in self.routes}))
            return self.refusing(request, Refused(HTTPStatus.NOT_FOUND, f"no such path; there are: {known}"))
        allowed = ", ".join(sorted({route.method for route, _ in found} | {"HEAD"}))
        why = f"{request.path} takes {allowed} only"
        return self.refusing(request, Refused(HTTPStatus.METHOD_NOT_ALLOWED, why, headers={"Allow": allowed}))

    def ambiguous(self, request: Request) -> Match:
        return self.refusing(request, Refused(HTTPStatus.BAD_REQUEST, "the path is ambiguous"), "anybody")

    def refusing(self, request: Request, refused: Refused, role: str = "reader") -> Match:
        def refuse(_request: Request, _named: Mapping[str, str]) -> Response:
            raise refused

        return Match(request, Route(request.method, request.path, refuse, "", role, prompt=True), {})

"""Which handler answers which request: a table of method and path, with typed handlers.

A path may hold `{name}`, which stands for one segment and is handed to the handler. HEAD is answered by whoever answers
GET. What is not in the table is 404 with the paths that are, or 405 with the methods that are. Where there is a guard,
it is asked first; pages of other sites are refused before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus

from heliograph.http.guard import Guard
from heliograph.http.message import Refused, Request, Response
from heliograph.http.origin import require_own

Handler = Callable[[Request, Mapping[str, str]], Response]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: Handler
    doc: str
    role: str = "reader"  # of who may: anybody, reader, admin; asked for where there is a guard

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


class Router:
    def __init__(self, routes: Sequence[Route], guard: Guard | None = None) -> None:
        self.routes = tuple(routes)
        self._guard = guard

    def answer(self, request: Request) -> Response:
        """Raises Refused for what is not in the table, and whatever the handler raises."""
        require_own(request)
        path = request.path.rstrip("/") or "/"
        method = "GET" if request.method == "HEAD" else request.method
        found = [(route, named) for route in self.routes if (named := route.match(path)) is not None]
        asked = next(((route, named) for route, named in found if route.method == method), None)
        role: str = "admin"
        if self._guard is not None:  # also of what is not there: nobody learns what is
            role = self._guard.check(request, asked[0].role if asked is not None else "reader")
        if asked is not None:
            return asked[0].handler(replace(request, role=role), asked[1])
        if not found:
            known = ", ".join(sorted({route.path for route in self.routes}))
            raise Refused(HTTPStatus.NOT_FOUND, f"no such path; there are: {known}")
        methods = sorted({route.method for route, _ in found} | {"HEAD"})
        allowed = ", ".join(methods)
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} takes {allowed} only", headers={"Allow": allowed})

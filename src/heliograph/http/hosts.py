"""The names this server answers to, against DNS rebinding.

A page of evil.example may let its name lead to 127.0.0.1 while it is open in a browser. To the browser, requests to us
are then requests to the page's own site: the origin check sees nothing, and only the Host header tells. So every
request, whatever its method, must name this server by a name that nobody else can point at it.

An IP address is always taken: a page that was loaded from an address cannot be moved to another one by DNS. So
probes of Kubernetes, which name a pod by its address, need no setting.
"""

from __future__ import annotations

import ipaddress
import platform
import re
from collections.abc import Iterable
from http import HTTPStatus

from heliograph.errors import ConfigError
from heliograph.http.message import Refused, Request, bad

SETTING = "--allow-host"
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]+)(:[0-9]{0,5})?")


class Hosts:
    def __init__(self, *own: str, more: Iterable[str] = ()) -> None:
        """`own`: addresses that are listened on and advertised; `more`: as the setting has them, one with a dot in
        front for a domain and all names below it. Raises ConfigError."""
        self._names = {"localhost", _plain(platform.node()), *(_plain(name) for name in own)} - {""}
        self._domains = [".localhost"]
        problems = []
        for name in more:
            plain = _plain(name)
            if not _NAME.fullmatch(plain.removeprefix(".")) and not _is_address(plain):
                why = "not a host name; give it without a port, e.g. connect.example.org or .example.org"
                problems.append(f"{SETTING} {name}: {why}")
            elif plain.startswith("."):
                self._domains.append(plain)
            self._names.add(plain.removeprefix("."))
        if problems:
            raise ConfigError(problems)

    def require(self, request: Request) -> None:
        """Raises Refused. HTTP/1.0 may leave the header away: no browser does."""
        told = request.headers.get("host")
        if told is None:
            return
        match = _HOST.fullmatch(told.strip().lower())
        if match is None:
            raise bad("a Host header that is not HOST or HOST:PORT")
        name = _plain(match[1])
        if name not in self._names and not name.endswith(tuple(self._domains)) and not _is_address(name):
            why = f"Host {name[:100]!r} is not a name of this server; if it is, start it with {SETTING} {name[:100]}"
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, why)


def _plain(name: str) -> str:
    return name.strip().lower().removeprefix("[").removesuffix("]").removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True

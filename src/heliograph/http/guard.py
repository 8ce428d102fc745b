"""Who may: requests let in by Basic or bearer credentials; too many held off.

A bearer token is `name.secret`, which saves trying every user.

Invariants:
  a. A handler runs only after its request was let in; what anybody may ask is named by the route.
  b. Where there are no users, everybody may read; changes are for whoever makes the guard to allow.
  c. One client cannot use up what all may ask: each has a measure of its own, smaller than that of all.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from heliograph.http import logins
from heliograph.http.connections import network
from heliograph.http.limits import Bucket, Buckets
from heliograph.http.logins import Logins, too_many
from heliograph.http.message import Refused, Request
from heliograph.http.users import Role, User, Users

CHALLENGE = {"WWW-Authenticate": 'Basic realm="heliograph", charset="UTF-8"'}

CLIENT_PER_SECOND, CLIENT_BURST = 200.0, 400.0  # requests of one address
PER_SECOND, BURST = 800.0, 1600.0  # of all together
CLIENTS = 4096  # addresses that are remembered


@dataclass(frozen=True, slots=True)
class Identity:
    user: str
    role: Role | Literal["anybody"]

    @property
    def words(self) -> str:
        return self.user or "anybody (no password is asked for)"


OPEN = Identity("", "admin")


class Guard:
    def __init__(self, users: Users | Mapping[str, User] | None = None, *, open_to_change: bool = True) -> None:
        """`users`, None: everybody may read, and change things if it is `open_to_change` (invariant b)."""
        users = Users(users) if isinstance(users, Mapping) else users
        self._logins = Logins(users) if users is not None else None
        self._open_to_change = open_to_change
        self._lock = threading.Lock()
        self._all = Bucket(PER_SECOND, BURST)
        self._clients = Buckets(CLIENT_PER_SECOND, CLIENT_BURST, CLIENTS)

    def close(self) -> None:
        if self._logins is not None:
            self._logins.close()

    def check(self, request: Request, role: str) -> Identity:
        """All three steps at once, on the caller's thread. Raises Refused for whoever may not."""
        self.count(request)
        found = self._begin(request)
        if not isinstance(found, Future):
            return self.require(found, role)
        try:
            return self.require(_identity(found.result(logins.WAIT_S)), role)
        except TimeoutError:
            found.cancel()
            raise too_many("too many passwords wait to be verified", 2) from None

    def count(self, request: Request, *, alone: bool = False) -> None:
        """Invariant c: who has used up their own takes nothing of what all have. `alone`: only their own counts, so
        that a probe of /health is answered whatever others ask. Raises Refused."""
        with self._lock:
            if self._clients.of(network(request.client)).take() and (alone or self._all.take()):
                return
        why = f"more than {CLIENT_PER_SECOND:.0f} requests a second, or {PER_SECOND:.0f} of all"
        raise too_many(why, 1)

    async def identify(self, request: Request, role: str) -> Identity | None:
        """Who asks; None: nobody that is known. Raises Refused where passwords cannot be verified now; what anybody
        may ask is not refused for that, but answered as to a stranger."""
        try:
            found = self._begin(request)
            if not isinstance(found, Future):
                return found
            try:
                return _identity(await asyncio.wait_for(asyncio.wrap_future(found), logins.WAIT_S))
            except TimeoutError:
                raise too_many("too many passwords wait to be verified", 2) from None
        except Refused:
            if role == "anybody":
                return None
            raise

    def require(self, who: Identity | None, role: str) -> Identity:
        """Raises Refused."""
        if self._logins is None and role == "admin" and not self._open_to_change:
            why = "nobody is asked for a password here, so nothing can be changed: start it with --users FILE"
            raise Refused(HTTPStatus.FORBIDDEN, why)
        if role == "anybody":
            return who or Identity("", "anybody")
        if who is None:
            why = "credentials are needed: Basic, or a bearer token"
            raise Refused(HTTPStatus.UNAUTHORIZED, why, headers=CHALLENGE)
        if role == "admin" and who.role != "admin":
            raise Refused(HTTPStatus.FORBIDDEN, f"{who.user} may look, not change")
        return who

    def _begin(self, request: Request) -> Identity | Future[User | None] | None:
        """Who asks, or the verdict that is waited for. Raises Refused."""
        if self._logins is None:
            return Identity("", "admin" if self._open_to_change else "reader")
        header = request.headers.get("authorization", "")
        name, secret = _credentials(header)
        if not name:
            return None
        verified, user = self._logins.remembered(header)
        if verified:
            return _identity(user)
        return self._logins.verify(request.client, name, secret, header)


def _identity(user: User | None) -> Identity | None:
    return None if user is None else Identity(user.name, user.role)


def _credentials(header: str) -> tuple[str, str]:
    """Name and secret; empty for anything that is none."""
    scheme, _, rest = header.partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        name, dot, secret = rest.partition(".")
        return (name, secret) if dot and name and secret else ("", "")
    if scheme.lower() != "basic":
        return "", ""
    try:
        text = base64.b64decode(rest, validate=True).decode()
    except (binascii.Error, ValueError):
        return "", ""
    name, colon, secret = text.partition(":")
    return (name, secret) if colon and name and secret and len(secret) < 1024 else ("", "")

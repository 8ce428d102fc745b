"""Who may: requests let in by Basic or bearer credentials, held against a file of hashed secrets; too many held off.

The file has a line for each who may: `name role hash`. Roles are `reader` (sees everything) and `admin` (changes it).
A hash is scrypt's, with its parameters and salt, so that the file gives no secret away; `digest` makes one. A bearer
token is `name.secret`, which saves trying every line.

Invariants:
  a. A request is looked at by the router only after it was let in; what anybody may ask is named by the route.
  b. To try a secret costs as much whether the name is known or not, and only so many are tried at a time: guessing
     takes the time of scrypt, and nobody's requests wait for who guesses but those that bring secrets not seen before.
  c. Where there are no users, everybody may read; changes are for whoever makes the guard to allow.
  d. One client cannot use up what all may ask: each has a measure of its own, smaller than that of all.
  e. No secret is kept: of those found right a keyed digest is, for a while, so that scrypt runs once and not each time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from heliograph.errors import ConfigError
from heliograph.http.message import Refused, Request

Role = Literal["reader", "admin"]
ROLES: tuple[Role, ...] = ("reader", "admin")
CHALLENGE = {"WWW-Authenticate": 'Basic realm="heliograph", charset="UTF-8"'}

N, R, P = 1 << 14, 8, 1  # scrypt: 16 MiB and some 50 ms
SALT_BYTES, HASH_BYTES = 16, 32
REMEMBERED_S, REMEMBERED = 60.0, 1000
TRIES_AT_ONCE = 2
TRY_WAIT_S = 5.0
CLIENT_PER_SECOND, CLIENT_BURST = 200.0, 400.0  # requests of one address
PER_SECOND, BURST = 800.0, 1600.0  # of all together
CLIENTS = 4096  # addresses that are remembered
_NAME = re.compile(r"[A-Za-z0-9_@-]{1,64}")
_HASH = re.compile(r"scrypt\$([0-9]{1,8})\$([0-9]{1,3})\$([0-9]{1,3})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: Role
    hash: str


def digest(secret: str) -> str:
    salt = os.urandom(SALT_BYTES)
    made = hashlib.scrypt(secret.encode(), salt=salt, n=N, r=R, p=P, dklen=HASH_BYTES, maxmem=64 << 20)
    return f"scrypt${N}${R}${P}${base64.b64encode(salt).decode()}${base64.b64encode(made).decode()}"


def fits(secret: str, known: str) -> bool:
    match = _HASH.fullmatch(known)
    if match is None:
        return False
    n, r, p = (int(match[i]) for i in (1, 2, 3))
    salt, expected = base64.b64decode(match[4]), base64.b64decode(match[5])
    made = hashlib.scrypt(secret.encode(), salt=salt, n=n, r=r, p=p, dklen=len(expected), maxmem=64 << 20)
    return hmac.compare_digest(made, expected)


def load_users(path: Path) -> dict[str, User]:
    """Raises ConfigError with every line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    users: dict[str, User] = {}
    problems = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        role = next((one for one in ROLES if len(words) == 3 and one == words[1]), None)
        if role is None or not _NAME.fullmatch(words[0]) or not _sound(words[2]):
            problems.append(f"{path}:{number}: not `name role hash` with the role {' or '.join(ROLES)}")
        elif words[0] in users:
            problems.append(f"{path}:{number}: {words[0]} stands there twice")
        else:
            users[words[0]] = User(words[0], role, words[2])
    if not users and not problems:
        problems.append(f"{path}: names nobody, so that nobody could ever be let in")
    if problems:
        raise ConfigError(problems)
    return users


def _sound(text: str) -> bool:
    match = _HASH.fullmatch(text)
    if match is None:
        return False
    n, r, p = (int(match[i]) for i in (1, 2, 3))
    try:
        base64.b64decode(match[4], validate=True), base64.b64decode(match[5], validate=True)
    except binascii.Error:
        return False
    return n > 1 and n & (n - 1) == 0 and r > 0 and p > 0 and 128 * n * r <= 32 << 20


class Bucket:
    """So many requests at once, and so many a second after that."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._tokens, self._at = burst, time.monotonic()

    def take(self) -> bool:
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    @property
    def is_full(self) -> bool:
        self._fill()
        return self._tokens >= self._burst

    def _fill(self) -> None:
        now = time.monotonic()
        self._tokens, self._at = min(self._tokens + (now - self._at) * self._per_second, self._burst), now


class Guard:
    def __init__(self, users: Mapping[str, User] | None = None, *, open_to_change: bool = True) -> None:
        """`users`, None: everybody may read, and change things if it is `open_to_change` (invariant c)."""
        self._users, self._open_to_change = users, open_to_change
        self._nobody = digest(secrets.token_hex(8))  # what is tried for a name that is not known
        self._key = os.urandom(32)
        self._lock = threading.Lock()
        self._let_in: dict[bytes, tuple[float, User]] = {}
        self._trying = threading.BoundedSemaphore(TRIES_AT_ONCE)
        self._all = Bucket(PER_SECOND, BURST)
        self._clients: dict[str, Bucket] = {}

    def check(self, request: Request, role: str) -> Role | Literal["anybody"]:
        """What the one who asks is. Raises Refused for whoever may not."""
        self._count(request.client)
        if self._users is None:
            if role == "admin" and not self._open_to_change:
                why = "nobody is asked for a password here, so nothing can be changed: start it with --users FILE"
                raise Refused(HTTPStatus.FORBIDDEN, why)
            return "admin" if self._open_to_change else "reader"
        user = self._user(request.headers.get("authorization", ""))
        if role == "anybody":
            return "anybody" if user is None else user.role
        if user is None:
            why = "credentials are needed: Basic, or a bearer token"
            raise Refused(HTTPStatus.UNAUTHORIZED, why, headers=CHALLENGE)
        if role == "admin" and user.role != "admin":
            raise Refused(HTTPStatus.FORBIDDEN, f"{user.name} may look, not change")
        return user.role

    def _count(self, client: str) -> None:
        """Invariant d: who has used up their own takes nothing of what all have."""
        with self._lock:
            key = _network(client)
            if key not in self._clients and len(self._clients) >= CLIENTS:
                self._clients = {one: bucket for one, bucket in self._clients.items() if not bucket.is_full}
            if key not in self._clients and len(self._clients) < CLIENTS:
                self._clients[key] = Bucket(CLIENT_PER_SECOND, CLIENT_BURST)
            own = self._clients.get(key)
            if (own is None or own.take()) and self._all.take():
                return
        why = f"more than {CLIENT_PER_SECOND:.0f} requests a second, or {PER_SECOND:.0f} of all: come again"
        raise Refused(HTTPStatus.TOO_MANY_REQUESTS, why, headers={"Retry-After": "1"})

    def _user(self, header: str) -> User | None:
        name, secret = _credentials(header)
        if not name:
            return None
        mark = hmac.digest(self._key, header.encode(), "sha256")
        now = time.monotonic()
        with self._lock:
            known = self._let_in.get(mark)
        if known is not None and known[0] > now:
            return known[1]
        user = (self._users or {}).get(name)
        if not self._trying.acquire(timeout=TRY_WAIT_S):  # invariant b
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "too many try their secrets", headers={"Retry-After": "5"})
        try:
            right = fits(secret, user.hash if user is not None else self._nobody)
        finally:
            self._trying.release()
        if user is None or not right:
            return None
        with self._lock:
            if len(self._let_in) >= REMEMBERED:
                self._let_in.clear()
            self._let_in[mark] = now + REMEMBERED_S, user
        return user


def _network(client: str) -> str:
    """What one client can call its own: an address, or the 64 bits of IPv6 that a host gets."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or int(address) >> 64)
    return client


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

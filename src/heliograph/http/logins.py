"""Passwords verified, a few at a time, so that a flood of wrong ones keeps no right one out.

argon2 takes 64 MiB and a tenth of a second by design, so whoever sends passwords makes this process work.

Invariants:
  a. At most two are verified at a time: one for clients from which the same user logged in rightly within a day, one
     for all others, where clients take turns (`pool`). A flood of strangers never delays whoever was here before.
  b. A secret that was verified, right or wrong, is not verified again for REMEMBERED_S: a keyed digest of it is kept,
     no secret. It counts for the users file it was verified by, and for no later one. So neither a scraper nor one
     with an old password makes argon2 run at each request, and the latter is no flood.
  c. Wrong secrets are limited by client and by user. What one client may do in a minute is less than a user's limit,
     so that one client cannot use it up. Right ones cost nothing. Known pairs (a) have a limit of their own.
  d. Unknown names are treated as known ones in all of this, and take as long.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from concurrent.futures import Future
from http import HTTPStatus

import structlog

from heliograph.http import passwords
from heliograph.http.connections import network
from heliograph.http.limits import Bucket, Buckets
from heliograph.http.message import Refused
from heliograph.http.pool import Full, Pool
from heliograph.http.users import User, Users

log = structlog.get_logger()

REMEMBERED_S, REMEMBERED = 60.0, 1000
WAIT_S = 15.0  # for one's turn and the verdict, which on a busy machine takes seconds
WAITING_EACH, WAITING = 4, 256
CLIENT_PER_SECOND, CLIENT_BURST = 1 / 6, 10.0  # wrong secrets of one client
USER_PER_SECOND, USER_BURST = 1.0, 60.0  # wrong secrets for one user, from all clients that are not known
KNOWN_S, KNOWN = 86_400.0, 1000
LOGGED_PER_SECOND, LOGGED_BURST = 0.1, 10.0  # lines about wrong secrets


class Logins:
    def __init__(self, users: Users) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._remembered: dict[bytes, tuple[float, int, User | None]] = {}  # until when, of which file; None: wrong
        self._known: dict[tuple[str, str], float] = {}  # client and user -> until when
        self._by_client = Buckets(CLIENT_PER_SECOND, CLIENT_BURST)
        self._by_user = Buckets(USER_PER_SECOND, USER_BURST)
        self._by_pair = Buckets(CLIENT_PER_SECOND, CLIENT_BURST)
        self._logged = Buckets(LOGGED_PER_SECOND, LOGGED_BURST)
        self._strangers = Pool("login", 1, waiting_each=WAITING_EACH, waiting=WAITING)
        self._visitors = Pool("login-known", 1, waiting_each=WAITING_EACH, waiting=WAITING)

    def remembered(self, header: str) -> tuple[bool, User | None]:
        """Whether this header was verified a short while ago, and who was let in by it."""
        with self._lock:
            found = self._remembered.get(self._mark(header))
        if found is None or found[0] < time.monotonic() or found[1] != self._users.version:
            return False, None
        return True, found[2]

    def verify(self, client: str, name: str, secret: str, header: str) -> Future[User | None]:
        """None: no such user, or another password. Raises Refused for too many tries."""
        client = network(client)
        with self._lock:
            known = self._known.get((client, name), 0.0) > time.monotonic()
            buckets = (
                [self._by_pair.of(f"{client} {name}")]
                if known
                else [self._by_client.of(client), self._by_user.of(name)]
            )
            taken: list[Bucket] = []
            for bucket in buckets:
                if not bucket.take():
                    for one in taken:
                        one.give_back()
                    raise too_many("too many wrong passwords from this address, or for this user", 10)
                taken.append(bucket)

        def settle() -> User | None:
            user, hash_, version = self._users.find(name)
            right = passwords.fits(secret, hash_)
            if user is None or not right:
                self._log_wrong(client, name)
                with self._lock:
                    self._remember(header, version, None)
                return None
            with self._lock:
                for bucket in taken:
                    bucket.give_back()
                self._remember(header, version, user)
                self._know(client, user.name)
            return user

        def give_back(of: Future[User | None]) -> None:
            """One that was given up before its turn was not wrong."""
            if of.cancelled():
                self._give_back(taken)

        try:
            future = (self._visitors if known else self._strangers).submit(client, settle)
        except Full as full:
            self._give_back(taken)
            raise too_many("too many passwords wait to be verified", 2) from full
        future.add_done_callback(give_back)
        return future

    def close(self) -> None:
        self._strangers.close()
        self._visitors.close()

    def _give_back(self, taken: list[Bucket]) -> None:
        with self._lock:
            for bucket in taken:
                bucket.give_back()

    def _remember(self, header: str, version: int, user: User | None) -> None:
        if len(self._remembered) >= REMEMBERED:
            self._remembered.clear()
        self._remembered[self._mark(header)] = time.monotonic() + REMEMBERED_S, version, user

    def _know(self, client: str, name: str) -> None:
        now = time.monotonic()
        if len(self._known) >= KNOWN:
            self._known = {pair: until for pair, until in self._known.items() if until > now}
            if len(self._known) >= KNOWN:
                self._known.clear()
        self._known[client, name] = now + KNOWN_S

    def _mark(self, header: str) -> bytes:
        return hmac.digest(self._key, header.encode("utf-8", "surrogatepass"), "sha256")

    def _log_wrong(self, client: str, name: str) -> None:
        with self._lock:
            said = self._logged.of("").take()
        if said:
            shown = "".join(letter if letter.isprintable() else "?" for letter in name[:64])
            log.warning("a login was refused: no such user, or another password", user=shown, where=client)


def too_many(why: str, seconds: int) -> Refused:
    headers = {"Retry-After": str(seconds)}
    return Refused(HTTPStatus.TOO_MANY_REQUESTS, f"{why}: come again in {seconds} s", headers=headers)

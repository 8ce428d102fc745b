"""Passwords under a flood of wrong ones: whoever brings the right one from elsewhere gets in, and scrapers pay once."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from structlog.typing import EventDict

from heliograph.http import logins as module
from heliograph.http import passwords
from heliograph.http.guard import Guard
from heliograph.http.logins import Logins
from heliograph.http.message import Refused, Request
from heliograph.http.users import User, Users
from tests.kit import wait_until


class Hashing:
    """In argon2's place: every try is seen, and takes until it is let go."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.running = self.most = 0
        self.open = threading.Event()
        self.open.set()
        self._lock = threading.Lock()

    def fits(self, secret: str, known: str) -> bool:
        with self._lock:
            self.tried.append(known)
            self.running += 1
            self.most = max(self.most, self.running)
        self.open.wait(30)
        with self._lock:
            self.running -= 1
        return known == f"hash of {secret}"


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hashing]:
    made = Hashing()
    monkeypatch.setattr(passwords, "fits", made.fits)
    monkeypatch.setattr(passwords, "decoy", lambda known: "decoy")
    yield made
    made.open.set()


@pytest.fixture
def users(hashing: Hashing) -> Users:
    return Users({name: User(name, "admin", f"hash of {name}") for name in ("alice", "bob")})


@pytest.fixture
def guard(users: Users) -> Iterator[Guard]:
    one = Guard(users)
    yield one
    one.close()


def asked(name: str, secret: str, client: str) -> Request:
    return Request("GET", "/", headers={"authorization": f"Bearer {name}.{secret}"}, client=client)


def outcome(guard: Guard, name: str, secret: str, client: str) -> int:
    try:
        guard.check(asked(name, secret, client), "reader")
    except Refused as refused:
        return int(refused.status)
    return 200


def test_a_flood_of_wrong_passwords_from_one_address_keeps_no_right_one_out(guard: Guard, hashing: Hashing) -> None:
    """E10: two slots, taken in the order of arrival: who guessed without a pause kept everybody out."""
    hashing.open.clear()
    ended = threading.Event()
    guess = itertools.count()

    def flood() -> None:
        while not ended.is_set():
            outcome(guard, "alice", f"wrong {next(guess)}", "10.0.0.66")

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_until(lambda: hashing.running == 1, what="the flood at work")
    found: list[int] = []
    friend = threading.Thread(target=lambda: found.append(outcome(guard, "alice", "alice", "10.0.0.1")))
    friend.start()
    wait_until(lambda: "10.0.0.1" in guard._logins._strangers._queues, what="the friend's turn")  # type: ignore[union-attr]
    hashing.open.set()
    friend.join(30)
    assert found == [200]
    wait_until(
        lambda: outcome(guard, "alice", f"wrong {next(guess)}", "10.0.0.66") == 429, what="the flood is told to wait"
    )
    assert outcome(guard, "bob", "bob", "10.0.0.2") == 200
    ended.set()
    for thread in threads:
        thread.join(30)
    assert len(hashing.tried) < 20, "most of the flood never got as far as argon2"


def test_guesses_from_everywhere_do_not_keep_out_who_was_here_before(guard: Guard, hashing: Hashing) -> None:
    assert outcome(guard, "alice", "alice", "10.9.9.9") == 200
    statuses = [outcome(guard, "alice", f"wrong {n}", f"10.0.{n // 200}.{n % 200}") for n in range(300)]
    assert statuses[0] == 401
    assert statuses[-1] == 429, "one user's password is not guessed by a thousand machines"
    guard._logins._remembered.clear()  # type: ignore[union-attr]
    assert outcome(guard, "alice", "alice", "10.9.9.9") == 200
    assert outcome(guard, "bob", "bob", "10.0.0.200") == 200


def test_a_scraper_pays_once(guard: Guard, hashing: Hashing) -> None:
    assert [outcome(guard, "alice", "alice", "10.0.0.1") for _ in range(50)] == [200] * 50
    assert len(hashing.tried) == 1


def test_a_scraper_with_an_old_password_is_told_so_each_time_and_pays_once(guard: Guard, hashing: Hashing) -> None:
    """It is no flood of guesses: others at its address, a proxy say, are not kept out because of it."""
    assert [outcome(guard, "alice", "old", "10.0.0.1") for _ in range(50)] == [401] * 50
    assert len(hashing.tried) == 1
    assert outcome(guard, "alice", "alice", "10.0.0.1") == 200


def test_what_was_right_is_forgotten_after_a_minute_and_with_the_file(
    users: Users, guard: Guard, hashing: Hashing, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome(guard, "alice", "alice", "10.0.0.1") == 200
    users.take({"bob": User("bob", "admin", "hash of bob")})
    assert outcome(guard, "alice", "alice", "10.0.0.1") == 401
    monkeypatch.setattr(module, "REMEMBERED_S", -1.0)
    assert [outcome(guard, "bob", "bob", "10.0.0.1") for _ in range(3)] == [200] * 3
    assert len(hashing.tried) == 5


def test_right_passwords_use_up_nothing(guard: Guard, hashing: Hashing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_S", -1.0)
    assert [outcome(guard, "alice", "alice", "10.0.0.1") for _ in range(100)] == [200] * 100


def test_a_password_that_waits_too_long_uses_up_nothing(
    users: Users, hashing: Hashing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right one that did not get its turn counted as a wrong one: ten of them, and its client was kept out."""
    monkeypatch.setattr(module, "CLIENT_PER_SECOND", 0.0)
    monkeypatch.setattr(module, "WAITING_EACH", 64)
    logins = Logins(users)
    hashing.open.clear()
    first = logins.verify("10.0.0.1", "alice", "x", "first")
    wait_until(lambda: hashing.running == 1)
    for turn in range(20):
        assert logins.verify("10.0.0.2", "bob", "bob", f"{turn}").cancel()
    hashing.open.set()
    assert first.result(30) is None
    found = logins.verify("10.0.0.2", "bob", "bob", "again").result(30)
    assert found is not None
    logins.close()


def test_at_most_two_are_verified_at_a_time(guard: Guard, hashing: Hashing) -> None:
    assert outcome(guard, "alice", "alice", "10.0.0.1") == 200
    guard._logins._remembered.clear()  # type: ignore[union-attr]
    hashing.open.clear()
    threads = [
        threading.Thread(target=outcome, args=(guard, "alice", "alice", f"10.0.0.{n % 4}"), daemon=True)
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: hashing.running == 2, what="two at work")
    hashing.open.set()
    for thread in threads:
        thread.join(30)
    assert hashing.most == 2


def test_unknown_names_are_tried_against_a_decoy_of_a_known_ones_kind(guard: Guard, hashing: Hashing) -> None:
    assert outcome(guard, "carol", "x", "10.0.0.1") == outcome(guard, "alice", "x", "10.0.0.1") == 401
    assert hashing.tried == ["decoy", "hash of alice"]


def test_decoys_have_the_kinds_of_the_file_and_each_name_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    argon = passwords.digest("x")
    scrypt = "scrypt$2$8$1$c2FsdHNhbHRzYWx0c2FsdA==$aGFzaGhhc2hoYXNoaGFzaA=="
    users = Users({"old": User("old", "reader", scrypt), "new": User("new", "reader", argon)})
    decoys = {name: users.find(name)[1] for name in map(str, range(100))}
    assert {passwords.kind(one) for one in decoys.values()} == {passwords.kind(scrypt), passwords.kind(argon)}
    assert all(users.find(name)[1] == one for name, one in decoys.items())
    assert all(passwords.is_sound(one) for one in decoys.values())
    assert not {scrypt, argon} & set(decoys.values())


def test_health_is_answered_while_passwords_wait(guard: Guard, hashing: Hashing) -> None:
    """What anybody may ask is not refused for want of a verdict."""
    for n in range(40):
        outcome(guard, "alice", f"wrong {n}", "10.0.0.66")
    who = asyncio.run(guard.identify(asked("alice", "wrong", "10.0.0.66"), "anybody"))
    assert guard.require(who, "anybody").role == "anybody"
    with pytest.raises(Refused) as refused:
        asyncio.run(guard.identify(asked("alice", "wrong", "10.0.0.66"), "reader"))
    assert refused.value.status is HTTPStatus.TOO_MANY_REQUESTS
    assert int(refused.value.headers["Retry-After"]) > 0


def test_refused_logins_are_logged_and_do_not_fill_the_log(users: Users, logs: list[EventDict]) -> None:
    guard = Guard(users)
    for n in range(100):
        outcome(guard, f"user{n}\x1b[2J", "hunter2", f"10.0.0.{n}")
    lines = [line for line in logs if "a login was refused" in line["event"]]
    assert 1 <= len(lines) <= 12
    assert "hunter2" not in str(logs)
    assert "\x1b" not in str([line["user"] for line in lines])
    guard.close()


def test_queues_end_with_the_guard(users: Users) -> None:
    logins = Logins(users)
    logins.close()
    with pytest.raises(Refused):
        logins.verify("10.0.0.1", "alice", "x", "h")

"""Who may use the API: a file with a line `name role hash` for each, read again when it changes.

Roles are `reader` (sees everything) and `admin` (changes it).

Invariants:
  a. What is in force was read whole and without a fault. A file that cannot be read, or has one bad line, changes
     nothing: nobody is let in by half a file, nobody is locked out by a slip, and notices say that it is so.
  b. `version` grows with every file taken up; what was remembered about an older one does not count.
  c. An unknown name costs as much to try as a known one: it is tried against a decoy of the same kind of hash.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from heliograph.errors import ConfigError
from heliograph.http import passwords
from heliograph.http.notices import Notices
from heliograph.http.watch import Signature, signature

log = structlog.get_logger()

Role = Literal["reader", "admin"]
ROLES: tuple[Role, ...] = ("reader", "admin")
NAME = re.compile(r"[A-Za-z0-9_@-]{1,64}")
TOPIC = "users"  # of the notices


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: Role
    hash: str


class Users:
    def __init__(self, users: Mapping[str, User]) -> None:
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self.version = 0
        self.take(users)

    def take(self, users: Mapping[str, User]) -> None:
        decoys: dict[str, str] = {}
        for user in users.values():
            if (kind := passwords.kind(user.hash)) not in decoys:
                decoys[kind] = passwords.decoy(user.hash)
        with self._lock:
            self._users, self.version = dict(users), self.version + 1
            self._decoys = [decoys[passwords.kind(user.hash)] for user in users.values()] or [passwords.digest("")]

    def find(self, name: str) -> tuple[User | None, str, int]:
        """The user, the hash to try a secret against, and the version of both."""
        with self._lock:
            user = self._users.get(name)
            if user is not None:
                return user, user.hash, self.version
            # By a keyed digest, so that one name always meets the same decoy: else two tries would tell.
            number = int.from_bytes(hmac.digest(self._key, name.encode("utf-8", "replace"), "sha256")[:8])
            return None, self._decoys[number % len(self._decoys)], self.version

    def outdated(self) -> list[str]:
        with self._lock:
            return sorted(name for name, user in self._users.items() if passwords.is_outdated(user.hash))


class UsersFile(Users):
    """`look`, called every second, takes the file up when it changed."""

    def __init__(self, path: Path, notices: Notices) -> None:
        """Raises ConfigError: a process does not start on a file that is wrong."""
        self._path, self._notices = path, notices
        self._seen: Signature = signature(path)  # of the file that was read last, rightly or not
        self._latest = self._seen  # at the last look
        self._wrong = False
        super().__init__(load_users(path))
        self._tell_outdated()

    def look(self) -> None:
        """Files are often written in two steps, and for a moment empty, or whole lines of them are missing: a change
        counts when the file is the same at two looks (invariant a)."""
        now, before = signature(self._path), self._latest
        self._latest = now
        if now != before or (now == self._seen and not self._wrong):
            return
        self._seen = now
        try:
            users = load_users(self._path)
        except ConfigError as error:
            self._wrong = True
            why = "; ".join(error.problems)
            text = f"the users file is not taken up, the last good one stays in force: {why}"
            if self._notices.set(TOPIC, text):
                log.error("the users file is not taken up, the last good one stays in force", why=why)
            return
        self._wrong = False
        was_wrong = self._notices.set(TOPIC, "")
        self.take(users)
        log.warning("the users file is taken up again", file=str(self._path), users=len(users), mended=was_wrong)
        self._tell_outdated()

    def _tell_outdated(self) -> None:
        names = self.outdated()
        if not names:
            self._notices.set("passwords", "")
            return
        fix = f"heliograph users {self._path} {names[0]}"
        text = f"passwords of {', '.join(names)} are kept as scrypt of 0.1 or weaker than today: renew them ({fix})"
        if self._notices.set("passwords", text):
            log.warning("passwords should be renewed, for their hashes are weak", users=names, fix=fix)


def load_users(path: Path) -> dict[str, User]:
    """Raises ConfigError with every line that is wrong."""
    return users_of(path, read_lines(path))


def read_lines(path: Path) -> list[str]:
    """Raises ConfigError."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def users_of(path: Path, lines: Sequence[str]) -> dict[str, User]:
    """By the lines of the file there. Raises ConfigError with every one that is wrong: a running process would not take
    them up, and go on with the users before."""
    users: dict[str, User] = {}
    problems = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        role = next((one for one in ROLES if len(words) == 3 and one == words[1]), None)
        if role is None or not NAME.fullmatch(words[0]) or not passwords.is_sound(words[2]):
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


def write_users(path: Path, lines: Sequence[str]) -> None:
    """Whole or not at all, and for nobody else to read. Raises ConfigError."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write("".join(f"{line}\n" for line in lines))
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error

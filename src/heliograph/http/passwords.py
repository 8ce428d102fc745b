"""Secrets as hashes: argon2id by RFC 9106's parameters for machines that spare memory; scrypt of 0.1 is still read.

A hash carries its parameters and salt, so that a file of them gives no secret away and old ones stay valid.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

import argon2
from argon2.exceptions import InvalidHashError, VerificationError

SHORTEST, LONGEST = 12, 1023  # letters; NIST SP 800-63B asks for 8 at least, and for 15 where it is the only factor
# What a line of the file may ask of this process: a hash from elsewhere must not take a gigabyte at each login.
MEMORY_LIMIT_KIB, TIME_LIMIT, LANES_LIMIT = 256 << 10, 10, 16
SCRYPT_MEMORY_BYTES = 64 << 20
# Of a hash and its salt. A line that was cut off has fewer, and scrypt's short ones fit many secrets.
SHORTEST_HASH_BYTES, SHORTEST_SALT_BYTES = 16, 8
_HASHER = argon2.PasswordHasher.from_parameters(argon2.profiles.RFC_9106_LOW_MEMORY)
_SCRYPT = re.compile(r"scrypt\$([0-9]{1,8})\$([0-9]{1,3})\$([0-9]{1,3})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True)
class _Scrypt:
    n: int
    r: int
    p: int
    salt: bytes
    expected: bytes

    def made(self, secret: str) -> bytes:
        how = {"n": self.n, "r": self.r, "p": self.p, "dklen": len(self.expected), "maxmem": SCRYPT_MEMORY_BYTES}
        return hashlib.scrypt(secret.encode(), salt=self.salt, **how)


def digest(secret: str) -> str:
    return _HASHER.hash(secret)


def fits(secret: str, known: str) -> bool:
    old = _scrypt(known)
    if old is not None:
        return hmac.compare_digest(old.made(secret), old.expected)
    try:
        return _HASHER.verify(known, secret)
    except (VerificationError, InvalidHashError):
        return False


def is_sound(text: str) -> bool:
    """Whether it is a hash that can be verified within the limits."""
    old = _scrypt(text)
    if old is not None:
        power_of_two = old.n > 1 and old.n & (old.n - 1) == 0
        whole = len(old.expected) >= SHORTEST_HASH_BYTES and len(old.salt) >= SHORTEST_SALT_BYTES
        return whole and power_of_two and old.r > 0 and old.p > 0 and 128 * old.n * old.r <= SCRYPT_MEMORY_BYTES // 2
    try:
        found = argon2.extract_parameters(text)
    except InvalidHashError:
        return False
    if found.hash_len < SHORTEST_HASH_BYTES or found.salt_len < SHORTEST_SALT_BYTES:
        return False
    small = found.memory_cost <= MEMORY_LIMIT_KIB and found.time_cost <= TIME_LIMIT
    return found.type is argon2.Type.ID and small and found.parallelism <= LANES_LIMIT


def is_outdated(known: str) -> bool:
    """Whether it should be made again: scrypt of 0.1, or parameters below today's."""
    return _scrypt(known) is not None or _HASHER.check_needs_rehash(known)


def kind(known: str) -> str:
    """Hashes of one kind take the same time to verify."""
    return known.rpartition("$")[0].rpartition("$")[0]


def decoy(known: str) -> str:
    """A hash of the same kind that nobody knows the secret of."""
    old = _scrypt(known)
    if old is not None:
        salt, made = secrets.token_bytes(len(old.salt)), secrets.token_bytes(len(old.expected))
        return f"{kind(known)}${base64.b64encode(salt).decode()}${base64.b64encode(made).decode()}"
    found = argon2.extract_parameters(known)
    salt, made = secrets.token_bytes(found.salt_len), secrets.token_bytes(found.hash_len)
    plain = [base64.b64encode(part).decode().rstrip("=") for part in (salt, made)]
    return f"{kind(known)}${plain[0]}${plain[1]}"


def problem_of(secret: str) -> str:
    """What is wrong with a new password; empty: nothing."""
    if len(secret) < SHORTEST:
        return f"has {len(secret)} letters; it needs {SHORTEST} at least: several words are easier to keep than signs"
    if len(secret) > LONGEST:
        return f"has {len(secret):,} letters; at most {LONGEST:,} are taken"
    return ""


def _scrypt(text: str) -> _Scrypt | None:
    match = _SCRYPT.fullmatch(text)
    if match is None:
        return None
    try:
        salt, expected = (base64.b64decode(match[i], validate=True) for i in (4, 5))
    except binascii.Error:
        return None
    return _Scrypt(int(match[1]), int(match[2]), int(match[3]), salt, expected)

"""The SASL exchanges: PLAIN, SCRAM-SHA-256/512 (RFC 5802, 7677), OAUTHBEARER (RFC 7628), carried by SaslAuthenticate.

Answers for proving who we are, and (SCRAM) for making the broker prove that it knows the password too. Takes anything
that can `call` and knows `version`s: no sockets here. Error messages name mechanism and user, never a secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from heliograph.errors import LoginFailed
from heliograph.wire import codes
from heliograph.wire.messages import Message, build

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# Kafka's own minimum; fewer would let a false broker guess the password cheaply.
_MIN_ITERATIONS = 4096
# A hostile server must not keep us busy for minutes.
_MAX_ITERATIONS = 10_000_000

# An exchange yields what to send, is sent what came, and returns when the client side is satisfied.
Exchange = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True)
class Login:
    alias: str
    mechanism: str
    username: str
    password: str = field(repr=False, default="")
    token: Callable[[], str] | None = field(repr=False, default=None, compare=False)
    extensions: Mapping[str, str] = field(default_factory=dict)


class Caller(Protocol):
    address: Any

    def version(self, api: str) -> int: ...

    def call(self, request: Message, timeout_s: float = ...) -> Message: ...


class Refused(Exception):
    """The other side's proof is not right."""


def log_in(connection: Caller, login: Login, deadline: float) -> float:
    """Runs the exchange. Returns the session's lifetime in seconds, 0 if it has no end."""

    def ask(api: str, **fields: Any) -> Message:
        request = build(api, connection.version(api), **fields)
        return connection.call(request, timeout_s=deadline - time.monotonic())

    answer = ask("sasl_handshake", mechanism=login.mechanism)
    if answer.error_code:
        raise _handshake_refused(connection, login, int(answer.error_code), answer.mechanisms)
    exchange = _start(login)
    challenge: bytes | None = None
    lifetime_s = 0.0
    try:
        while True:
            message = next(exchange) if challenge is None else exchange.send(challenge)
            answer = ask("sasl_authenticate", auth_bytes=message)
            if answer.error_code:
                raise _failed(connection, login, answer.error_message or codes.name_of(int(answer.error_code)))
            challenge = answer.auth_bytes
            lifetime = getattr(answer, "session_lifetime", None)
            lifetime_s = lifetime.total_seconds() if lifetime is not None else 0.0
    except StopIteration:
        return lifetime_s
    except Refused as error:
        raise _failed(connection, login, str(error)) from error


def _start(login: Login) -> Exchange:
    if login.mechanism == "PLAIN":
        return plain(login)
    if login.mechanism == "OAUTHBEARER":
        return oauthbearer(login)
    return scram(login)


def plain(login: Login) -> Exchange:
    yield b"\0" + login.username.encode() + b"\0" + login.password.encode()


def oauthbearer(login: Login) -> Exchange:
    assert login.token is not None
    extensions = "".join(f"\x01{key}={value}" for key, value in login.extensions.items())
    refusal = yield f"n,,\x01auth=Bearer {login.token()}{extensions}\x01\x01".encode()
    if refusal:
        # The server explains in JSON and wants this one byte before it ends the exchange with an error.
        yield b"\x01"
        raise Refused(refusal.decode("utf-8", "replace"))


def scram(login: Login, nonce: str | None = None) -> Exchange:
    name = login.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    nonce = nonce or secrets.token_urlsafe(24)
    username = login.username.replace("=", "=3D").replace(",", "=2C")
    extensions = "".join(f",{key}={value}" for key, value in login.extensions.items())
    first = f"n={username},r={nonce}{extensions}"

    server_first = (yield b"n,," + first.encode()).decode("utf-8", "replace")
    salt, iterations, server_nonce = _read_server_first(server_first, nonce)
    salted = hashlib.pbkdf2_hmac(name, login.password.encode(), salt, iterations)

    without_proof = f"c={base64.b64encode(b'n,,').decode()},r={server_nonce}"
    signed = f"{first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))

    server_final = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    fields = _fields(server_final.decode("utf-8", "replace"))
    if "e" in fields:
        raise Refused(fields["e"])
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    if not hmac.compare_digest(_decode(fields.get("v", "")), expected):
        raise Refused("the broker does not know this password itself: its signature is wrong")


def _read_server_first(text: str, nonce: str) -> tuple[bytes, int, str]:
    fields = _fields(text)
    if "e" in fields:
        raise Refused(fields["e"])
    if "m" in fields:
        raise Refused("the broker asks for a SCRAM extension that is not known")
    server_nonce, iterations = fields.get("r", ""), fields.get("i", "")
    if not server_nonce.startswith(nonce) or len(server_nonce) == len(nonce):
        raise Refused("the broker's nonce does not continue ours")
    # isdigit() alone also takes `²`, and int() refuses that and numbers of thousands of digits with a ValueError.
    is_number = iterations.isascii() and iterations.isdigit() and len(iterations) <= len(str(_MAX_ITERATIONS))
    if not is_number or not _MIN_ITERATIONS <= int(iterations) <= _MAX_ITERATIONS:
        raise Refused(f"{iterations[:20] or 'no'} iterations; {_MIN_ITERATIONS} to {_MAX_ITERATIONS} are accepted")
    salt = _decode(fields.get("s", ""))
    if not salt:
        raise Refused("the broker sent no salt")
    return salt, int(iterations), server_nonce


def _fields(text: str) -> dict[str, str]:
    return {key: value for key, _, value in (part.partition("=") for part in text.split(","))}


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _handshake_refused(connection: Caller, login: Login, code: int, offered: Any) -> LoginFailed:
    if code == codes.UNSUPPORTED_SASL_MECHANISM:
        why, fix = "the broker does not offer it", f"Set {login.alias}.sasl.mechanism to one of {', '.join(offered)}"
    elif code == codes.ILLEGAL_SASL_STATE:
        why = "this listener does not ask for SASL"
        fix = f"Set {login.alias}.security.protocol to PLAINTEXT or SSL, or use the port of a SASL listener"
    else:
        why, fix = codes.name_of(code), ""
    return LoginFailed(
        f"{login.alias} broker {connection.address}: {login.mechanism} is refused: {why}", fix=fix, cluster=login.alias
    )


def _failed(connection: Caller, login: Login, why: str) -> LoginFailed:
    what = "the token's settings" if login.token is not None else "user and password"
    return LoginFailed(
        f"{login.alias} broker {connection.address}: login of {login.username!r} by {login.mechanism} failed: {why}",
        fix=f"Check {what} in {login.alias}.sasl.jaas.config, and that the broker has this user for it",
        cluster=login.alias,
    )

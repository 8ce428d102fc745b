"""Bearer tokens for OAUTHBEARER: made here (unsecured), read from a file, or fetched with client credentials.

Answers for getting a token and keeping it while it is good. Knows Kafka's names for the settings; does not log in.

The client secret goes to the address that the configuration names and nowhere else (`wire.token_http`). Which addresses
a connector's JSON may name is `config.token_urls`'s to say.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from heliograph.errors import ConfigError, LoginFailed, TokenUnavailable
from heliograph.wire import token_http

# A token is used again until this share of its life is over, so that a login never carries one about to end.
_FRESH_SHARE = 0.8
_URL = "sasl.oauthbearer.token.endpoint.url"
_UNKNOWN_LIFETIME_S = 60.0
# Answers of an endpoint that restarts or has too much to do; the same request may be answered in a moment.
_PASSING = (408, 425, 429)


class TokenSource:
    """Call it for a token. Thread-safe; remembers the token while it is fresh."""

    def __init__(
        self, principal: str, fetch: Callable[[], tuple[str, float]], extensions: Mapping[str, str] | None = None
    ) -> None:
        self.principal = principal
        self.extensions = dict(extensions or {})
        self._fetch = fetch
        self._lock = threading.Lock()
        self._token = ""
        self._fresh_until = 0.0

    def __call__(self) -> str:
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._token, lifetime_s = self._fetch()
                self._fresh_until = time.monotonic() + lifetime_s * _FRESH_SHARE
            return self._token


def source_of(alias: str, properties: Mapping[str, str], options: Mapping[str, str]) -> TokenSource:
    url = properties.get(_URL, "").strip()
    extensions = {k.removeprefix("extension_"): v for k, v in options.items() if k.startswith("extension_")}
    if not url:
        return _unsecured(alias, options)
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:  # http://[half
        raise ConfigError(f"{alias}.{_URL}: {url!r} is not a URL: {error}") from error
    scheme = parts.scheme.lower()
    if scheme == "file":
        path = urllib.request.url2pathname(parts.path)
        return TokenSource(f"token of {path}", lambda: _from_file(alias, path), extensions)
    if scheme not in ("http", "https"):
        raise ConfigError(f"{alias}.{_URL}: {url!r} is not an http, https or file URL")
    client_id = properties.get("sasl.oauthbearer.client.credentials.client.id", options.get("clientId", ""))
    secret = properties.get("sasl.oauthbearer.client.credentials.client.secret", options.get("clientSecret", ""))
    if not client_id or not secret:
        raise ConfigError(f"{alias}.sasl.jaas.config: has no clientId and clientSecret for {url}")
    scope = properties.get("sasl.oauthbearer.scope", options.get("scope", ""))
    timeout_s = _timeout_s(alias, properties)
    return TokenSource(
        client_id, lambda: _client_credentials(alias, url, client_id, secret, scope, timeout_s), extensions
    )


def _timeout_s(alias: str, properties: Mapping[str, str]) -> float:
    key = "sasl.login.read.timeout.ms"
    text = properties.get(key, "10000").strip()
    # No more digits than a Java int has: int() refuses thousands of them with a ValueError, as it refuses `²`.
    if not (text.isascii() and text.isdigit() and len(text) <= 10) or not int(text):
        raise ConfigError(f"{alias}.{key}: {text[:20]!r} is not a number of milliseconds")
    return int(text) / 1000


def _client_credentials(
    alias: str, url: str, client_id: str, secret: str, scope: str, timeout_s: float
) -> tuple[str, float]:
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    try:
        answer = token_http.post(url, form, headers, timeout_s)
    except token_http.Redirected as error:
        why = f"it redirects ({error.code}) to {error.where}, which is not followed: the client secret would go there"
        raise _no_token(alias, url, client_id, why, f"Write the final address in {alias}.{_URL}") from error
    except urllib.error.HTTPError as error:
        why = f"it answered {error.code} {error.reason}"
        error.close()
        if error.code >= 500 or error.code in _PASSING:
            raise _unavailable(alias, url, client_id, why) from error
        fix = "Check clientId and clientSecret" if error.code in (400, 401, 403) else f"Check {alias}.{_URL}"
        raise _no_token(alias, url, client_id, why, fix) from error
    except token_http.BadAnswer as error:
        raise _no_token(alias, url, client_id, str(error), f"Check {alias}.{_URL}, and proxies before it") from error
    except OSError as error:  # URLError and timeouts are
        why = f"it cannot be reached: {getattr(error, 'reason', error)}"
        if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
            fix = f"Check {alias}.{_URL}, and the authorities that this machine trusts"
            raise _no_token(alias, url, client_id, why, fix) from error
        raise _unavailable(alias, url, client_id, why) from error
    except http.client.HTTPException as error:  # no HTTP at all, or an answer cut off: a proxy, or another service
        why = f"it does not answer in HTTP: {type(error).__name__}"
        raise _no_token(alias, url, client_id, why, f"Check {alias}.{_URL}, and proxies before it") from error
    except (ValueError, TypeError, OverflowError) as error:  # as `link.NOT_AN_ADDRESS`
        raise _no_token(alias, url, client_id, f"this is not an address: {error}", f"Check {alias}.{_URL}") from error
    if answer.is_html:
        why = "it answered with an HTML page, as login pages and proxies do, not with JSON"
        raise _no_token(alias, url, client_id, why, f"Check {alias}.{_URL}: it must be the token endpoint itself")
    try:
        return read_token(answer.body)
    except ValueError as error:
        why, fix = f"its answer is not JSON with an access_token: {error}", f"Check {alias}.{_URL}"
        raise _no_token(alias, url, client_id, why, fix) from error


def _no_token(alias: str, url: str, client_id: str, why: str, fix: str) -> LoginFailed:
    return LoginFailed(f"{alias}: no token from {url} for {client_id}: {why}", fix=fix, cluster=alias)


def _unavailable(alias: str, url: str, client_id: str, why: str) -> TokenUnavailable:
    fix = f"Is the token endpoint up? Else check {alias}.{_URL}"
    return TokenUnavailable(f"{alias}: no token from {url} for {client_id}: {why}", fix=fix, cluster=alias)


def read_token(body: bytes) -> tuple[str, float]:
    """The token of an endpoint's answer and its lifetime in seconds. ValueError, and nothing else, says why not. Never
    quotes the answer: it may hold a token."""
    answer = _json(body)
    if not isinstance(answer, dict):
        raise ValueError("it is no object")
    token = answer.get("access_token") or answer.get("id_token")
    if not isinstance(token, str) or not is_sendable(token):
        raise ValueError("it has none" if not token else "its token is not printable ASCII")
    expires_in = _finite(answer.get("expires_in"))
    return token, expires_in if expires_in else _lifetime_s(token)


def is_sendable(token: str) -> bool:
    """RFC 6750 allows less. What is not ASCII cannot be sent, and a control character would end the field."""
    return bool(token) and token.isascii() and token.isprintable()


def _json(text: bytes) -> object:
    try:
        return json.loads(text)
    except RecursionError:  # a hundred thousand brackets
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(type(error).__name__) from None


def _finite(value: object) -> float | None:
    """A number of seconds, not negative; None: it is not one. NaN would count as fresh for ever."""
    try:
        seconds = float(value)  # type: ignore[arg-type]  # whatever is no number is a TypeError
    except (ValueError, TypeError, OverflowError):  # OverflowError: an integer beyond 1e308
        return None
    return seconds if 0 <= seconds < math.inf else None


def _from_file(alias: str, path: str) -> tuple[str, float]:
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, ValueError) as error:  # ValueError: it is not UTF-8, or the path has a NUL
        why = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
        raise LoginFailed(f"{alias}: no token: {path}: {why}", fix=f"Check {alias}.{_URL}", cluster=alias) from error
    if not is_sendable(token):
        why = "it holds no token: a token is printable ASCII"
        raise LoginFailed(f"{alias}: no token: {path}: {why}", fix=f"Check {alias}.{_URL}", cluster=alias)
    return token, 0.0  # somebody else renews the file: read it each time


def _lifetime_s(token: str) -> float:
    """What a JWT says of its end; nothing to go by is a minute."""
    try:
        claims = _json(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    except (ValueError, IndexError):
        return _UNKNOWN_LIFETIME_S
    end = _finite(claims.get("exp")) if isinstance(claims, dict) else None
    return _UNKNOWN_LIFETIME_S if end is None else max(end - time.time(), 0.0)


def _unsecured(alias: str, options: Mapping[str, str]) -> TokenSource:
    """Java's OAuthBearerLoginModule without an endpoint: a token signed by nobody, from the module's options."""
    claims: dict[str, Any] = {}
    for key, value in options.items():
        if key.startswith("unsecuredLoginStringClaim_"):
            claims[key.removeprefix("unsecuredLoginStringClaim_")] = value
        elif key.startswith("unsecuredLoginNumberClaim_"):
            claims[key.removeprefix("unsecuredLoginNumberClaim_")] = _number(alias, key, value)
        elif key.startswith("unsecuredLoginListClaim_"):
            # The first character is the separator, as Java has it.
            claims[key.removeprefix("unsecuredLoginListClaim_")] = value[1:].split(value[0]) if value else []
    subject = claims.get(options.get("unsecuredLoginPrincipalClaimName", "sub"))
    if not subject:
        raise ConfigError(
            f"{alias}.sasl.jaas.config: OAUTHBEARER needs {alias}.{_URL} with clientId and clientSecret, or "
            "unsecuredLoginStringClaim_sub for a broker that takes unsecured tokens"
        )
    lifetime_s = _number(alias, "unsecuredLoginLifetimeSeconds", options.get("unsecuredLoginLifetimeSeconds", "3600"))
    prefix = "unsecuredLoginExtension_"
    extensions = {k.removeprefix(prefix): v for k, v in options.items() if k.startswith(prefix)}

    def make() -> tuple[str, float]:
        # Rounded down: a broker rounds to the nearest millisecond, and refuses what was issued in its future.
        now = time.time_ns() // 1_000_000 / 1000
        body = {"iat": now, "exp": now + lifetime_s, **claims}
        return f"{_part({'alg': 'none'})}.{_part(body)}.", lifetime_s

    return TokenSource(str(subject), make, extensions)


def _number(alias: str, key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{alias}.sasl.jaas.config: {key} is not a number")
    return number


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

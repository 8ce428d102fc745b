"""Bearer tokens for OAUTHBEARER: made here (unsecured), read from a file, or fetched with client credentials.

Answers for getting a token and keeping it while it is good. Knows Kafka's names for the settings; does not log in.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from heliograph.errors import ConfigError, LoginFailed

# A token is used again until this share of its life is over, so that a login never carries one about to end.
_FRESH_SHARE = 0.8
_URL = "sasl.oauthbearer.token.endpoint.url"
_MAX_ANSWER_BYTES = 1 << 20


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
    scheme = urllib.parse.urlsplit(url).scheme.lower()
    if scheme == "file":
        path = urllib.request.url2pathname(urllib.parse.urlsplit(url).path)
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
    text = properties.get(key, "10000")
    if not text.strip().isdigit() or not int(text):
        raise ConfigError(f"{alias}.{key}: {text!r} is not a number of milliseconds")
    return int(text) / 1000


def _client_credentials(
    alias: str, url: str, client_id: str, secret: str, scope: str, timeout_s: float
) -> tuple[str, float]:
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    request = urllib.request.Request(
        url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {basic}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            body = json.loads(answer.read(_MAX_ANSWER_BYTES))
        token = body.get("access_token") or body["id_token"]
        return str(token), float(body.get("expires_in") or _lifetime_s(token))
    except urllib.error.HTTPError as error:
        why = f"it answered {error.code} {error.reason}"
        fix = "Check clientId and clientSecret" if error.code in (400, 401, 403) else f"Check {alias}.{_URL}"
    except OSError as error:  # URLError and timeouts are
        why, fix = f"it cannot be reached: {getattr(error, 'reason', error)}", f"Check {alias}.{_URL}"
    except (ValueError, KeyError, AttributeError, TypeError):
        why, fix = "its answer is not JSON with an access_token", f"Check {alias}.{_URL}"
    raise LoginFailed(f"{alias}: no token from {url} for {client_id}: {why}", fix=fix, cluster=alias)


def _from_file(alias: str, path: str) -> tuple[str, float]:
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except OSError as error:
        raise LoginFailed(f"{alias}: no token: {path}: {error.strerror}", fix=f"Check {alias}.{_URL}") from error
    return token, 0.0  # somebody else renews the file: read it each time


def _lifetime_s(token: str) -> float:
    """What a JWT says of its end; nothing to go by is a minute."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        return max(float(claims["exp"]) - time.time(), 0.0)
    except (ValueError, KeyError, IndexError, TypeError):
        return 60.0


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
        return float(value)
    except ValueError:
        raise ConfigError(f"{alias}.sasl.jaas.config: {key} is not a number") from None


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

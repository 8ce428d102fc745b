"""Which addresses a configuration may have tokens fetched from.

A file of the operator's may name any (`wire.oauth` says which schemes there are). A connector's JSON comes over the
network, and its token goes to a broker that the same JSON names: it would read files of the worker's machine and
services that only the worker reaches. So, as for Java's clients, JSON may only name what the worker's file lists under
`org.apache.kafka.sasl.oauthbearer.allowed.urls`, and never a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"  # what Java's system property is called
URL_KEYS = ("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.jwks.endpoint.url")
_PORTS = {"http": 80, "https": 443}


def is_url_key(key: str) -> bool:
    """Of whichever client: `source.cluster.…`, `producer.override.…`."""
    return key.endswith(URL_KEYS)


def check_listed(url: str) -> None:
    """An item of the list. ValueError says what is wrong with it."""
    parts = _split(url)
    if parts.scheme not in _PORTS:
        raise ValueError(f"{url!r} is not an http or https URL")


def why_refused(url: str, allowed: Sequence[str]) -> str | None:
    """None: the list has this very URL, or its scheme, host and port without a path."""
    try:
        parts = _split(url.strip())
        if parts.scheme not in _PORTS:
            return "a connector's tokens come from an http or https URL: files of the worker's machine are not read"
        listed = [_split(one) for one in allowed]
    except ValueError as problem:
        return str(problem)
    for one in listed:
        if _origin(one) == _origin(parts) and (one.path in ("", "/") or one.path == parts.path):
            return None
    return f"the worker's file does not allow this address: add it to {ALLOWED_URLS} there"


def _split(url: str) -> SplitResult:
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in " \\"):
        raise ValueError("not a URL: blanks, backslashes and control characters must be written as %XX")
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname
    except ValueError as problem:
        raise ValueError(f"not a URL: {problem}") from None
    if "@" in parts.netloc:
        raise ValueError("not a URL that can be allowed: it has a user name or password before its host")
    if parts.scheme in _PORTS and not parts.hostname:
        raise ValueError("not a URL: it names no host")
    return parts


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)

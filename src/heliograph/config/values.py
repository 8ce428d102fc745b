"""Texts of a configuration file turned into values, by the kind of their key. Each function raises ValueError with the
reason, in words that can follow `key = value: `."""

from __future__ import annotations

import re

from heliograph.config import caps, counts, starts
from heliograph.config.shape import Key, Kind
from heliograph.javaregex import java_regex

_INT = re.compile(r"[+-]?[0-9]+")
_LIMITS = {Kind.INT: 2**31, Kind.LONG: 2**63, Kind.INTERVAL: 2**63, Kind.FACTOR: 2**31}
_SHORT = 2**15 - 1
# Kafka's own rule for an address: an optional protocol, a host name, IPv4 or [IPv6], and a port.
_SERVER = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?(\[[0-9a-fA-F:%.]+\]|[0-9a-zA-Z\-%._]+):([0-9]{1,5})")


def split(text: str) -> tuple[str, ...]:
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def check(key: Key, text: str) -> None:
    """Whether the key may hold this. The parsers below give the value itself."""
    if key.kind is Kind.BOOL:
        boolean(text)
    elif key.kind is Kind.INTERVAL:
        interval_s(key, text)
    elif key.kind is Kind.FACTOR:
        replication_factor(key, text)
    elif key.allowed:
        choice(key, text)
    elif key.kind in _LIMITS:
        integer(key, text)
    elif key.kind is Kind.REGEXES:
        regexes(text)
    elif key.kind is Kind.SERVERS:
        servers(text)
    elif key.kind is Kind.START:
        starts.rules(text)
    elif key.kind is Kind.COUNTS:
        counts.rules(text)
    elif key.kind is Kind.CAPS:
        caps.caps(text)


def boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("must be true or false")
    return word == "true"


def integer(key: Key, text: str) -> int:
    text = text.strip()
    # Twenty digits hold any long; int() of thousands would be refused with another kind of ValueError.
    if not _INT.fullmatch(text) or len(text) > 20 or abs(int(text)) >= _LIMITS[key.kind]:
        raise ValueError("must be a whole number")
    value = int(text)
    if key.minimum is not None and value < key.minimum:
        raise ValueError(f"must be at least {key.minimum}")
    return value


def replication_factor(key: Key, text: str) -> int:
    value = integer(key, text)
    if value != -1 and not 0 < value <= _SHORT:
        raise ValueError(f"must be from 1 to {_SHORT}, or -1 for the target cluster's default")
    return value


def interval_s(key: Key, text: str) -> int:
    """MM2's scheduler takes a negative number for never, and throws at 0."""
    value = integer(key, text)
    if value == 0:
        raise ValueError("must not be 0: write a number of seconds, or a negative one for never")
    return value


def regexes(text: str) -> tuple[str, ...]:
    """MM2 joins the list with `|` before it compiles it, so `a(b,c)` is one expression. It names the culprit."""
    items = split(text)
    try:
        java_regex("|".join(items))
    except ValueError as problem:
        raise ValueError(f"not a regular expression: {_culprit(items) or problem}") from None
    return items


def _culprit(items: tuple[str, ...]) -> str:
    for item in items:
        try:
            java_regex(item)
        except ValueError as problem:
            hint = " (a comma separates the items of the list)" if "{" in item or "(" in item else ""
            return f"{item!r}: {problem}{hint}"
    return ""


def servers(text: str) -> tuple[str, ...]:
    items = split(text)
    if not items:
        raise ValueError("names no broker: write host:port[,host:port…]")
    for item in items:
        match = _SERVER.fullmatch(item)
        if not match or not 0 < int(match[2]) < 65536:
            raise ValueError(f"{item!r} is not host:port")
    return tuple(item.split("://")[-1] for item in items)


def choice(key: Key, text: str) -> str:
    """Case does not matter for the names of protocols and mechanisms, which Kafka writes in capitals."""
    word = text.strip()
    word = word.upper() if key.name in ("security.protocol", "sasl.mechanism") else word
    if word not in key.allowed:
        raise ValueError(f"must be {' or '.join(key.allowed)}")
    return word

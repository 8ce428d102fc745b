"""Which messages are wanted: by what is in their key, value and headers, and by their time. Pure.

A text is looked for anywhere, `=text` must be all of it, `/expression/` is a regular expression (Python's), searched
for. Bytes that are no UTF-8 are compared all the same: text in them is found, and they can be no part of an expression.
Nothing fits a key or value that is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from heliograph.messages.reading import Message

Test = Callable[[bytes | None], bool]


def test(text: str) -> Test:
    """Raises ValueError with the reason."""
    if len(text) > 1 and text.startswith("/") and text.endswith("/"):
        return _expression(text[1:-1])
    if text.startswith("="):
        exact = text[1:].encode()
        return lambda data: data == exact
    part = text.encode()
    return lambda data: data is not None and part in data


def _expression(text: str) -> Test:
    try:
        pattern = re.compile(text)
    except re.error as problem:
        raise ValueError(f"/{text}/ is no regular expression: {problem}") from None
    return lambda data: data is not None and pattern.search(data.decode(errors="surrogateescape")) is not None


@dataclass(frozen=True, slots=True)
class HeaderTest:
    name: str
    value: Test | None = None  # None: whatever it says

    def __call__(self, message: Message) -> bool:
        return any(name == self.name and (self.value is None or self.value(value)) for name, value in message.headers)


def header_test(text: str) -> HeaderTest:
    """`NAME`: there is one. `NAME=TEXT`, `NAME==TEXT`, `NAME=/EXPRESSION/`: of several of this name one fits."""
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} names no header: write NAME, NAME=TEXT or NAME=/EXPRESSION/")
    return HeaderTest(name, test(value) if equals else None)


@dataclass(frozen=True, slots=True)
class Filter:
    """All of them must fit."""

    keys: tuple[Test, ...] = ()
    values: tuple[Test, ...] = ()
    headers: tuple[HeaderTest, ...] = ()
    tombstones: bool = False  # only messages without a value
    since_ms: int | None = None
    until_ms: int | None = None  # not included

    def __call__(self, message: Message) -> bool:
        return (
            (self.since_ms is None or message.timestamp_ms >= self.since_ms)
            and (self.until_ms is None or message.timestamp_ms < self.until_ms)
            and not (self.tombstones and message.value is not None)
            and all(fits(message.key) for fits in self.keys)
            and all(fits(message.value) for fits in self.values)
            and all(fits(message) for fits in self.headers)
        )

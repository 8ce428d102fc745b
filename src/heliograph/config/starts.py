"""Where copying begins, as it is written in the file (`start = …`) and on the command line (`offsets set --to …`).

    start = latest
    start = orders:3=offset:1200, orders=timestamp:2026-11-01T00:00:00Z, file:begin.txt, earliest

An item is `[topic[:partition]=]where`; the first that fits a partition decides. `topic` is a name or a regular
expression, `where` is earliest, latest, `timestamp:` with ISO 8601 or milliseconds, or `offset:`. `file:` stands for
the items of a file, one a line. Every function raises ValueError with the reason, in words that can follow
`key = value: `.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from heliograph.javaregex import java_regex
from heliograph.types import StartPoint, StartRule

WHERE = "earliest, latest, timestamp:2026-11-01T00:00:00Z or offset:1200"
_NUMBER = re.compile(r"[0-9]{1,18}")  # any offset or time that can be
_PARTITION = re.compile(r"[0-9]{1,9}")
LATEST_MS = 253_402_300_799_999  # the end of the year 9999
FILE_BYTES = 16 << 20  # more is not a list of offsets but a mistake


def rules(text: str) -> tuple[StartRule, ...]:
    found: list[StartRule] = []
    for item in (part.strip() for part in text.split(",")):
        if item.startswith("file:"):
            found += _of_file(item.removeprefix("file:").strip())
        elif item:
            found.append(rule(item))
    if not found:
        raise ValueError(f"says nothing: write {WHERE}")
    return tuple(found)


def rule(item: str) -> StartRule:
    whose, equals, where = item.rpartition("=")
    if not equals:
        return StartRule(point(item))
    topics, partition = selection(whose.strip())
    return StartRule(point(where), topics, partition)


def selection(text: str) -> tuple[str, int | None]:
    """`topic[:partition]`; a colon that no number follows belongs to the expression."""
    head, colon, tail = text.rpartition(":")
    topics, partition = (head, int(tail)) if colon and _PARTITION.fullmatch(tail) else (text, None)
    if not topics:
        raise ValueError(f"{text!r} names no topic: write topic or topic:partition")
    try:
        java_regex(topics)
    except ValueError as problem:
        raise ValueError(f"{topics!r} is neither a topic nor a regular expression: {problem}") from None
    return topics, partition


def point(text: str) -> StartPoint:
    text = text.strip()
    kind, colon, value = text.partition(":")
    if kind == "earliest" and not colon:
        return StartPoint("earliest")
    if kind == "latest" and not colon:
        return StartPoint("latest")
    if kind == "timestamp" and colon:
        return StartPoint("timestamp", _time_ms(value.strip()))
    if kind == "offset" and colon:
        if not _NUMBER.fullmatch(value.strip()):
            raise ValueError(f"{value.strip()!r} is no offset: write a whole number, e.g. offset:1200")
        return StartPoint("offset", int(value))
    raise ValueError(f"{text!r} is no place to begin: write {WHERE}")


def _time_ms(text: str) -> int:
    if _NUMBER.fullmatch(text):
        if int(text) > LATEST_MS:
            raise ValueError(f"{text} ms since 1970 is after the year 9999: is it in microseconds?")
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 2026-11-01T00:00:00Z, or milliseconds since 1970") from None
    if when.tzinfo is None:
        raise ValueError(f"{text!r} does not say in which time zone: add Z, or +01:00")
    if when.year < 1970:
        raise ValueError(f"{text!r} is before 1970, as no record of Kafka is")
    return round(when.timestamp() * 1000)


def _of_file(name: str) -> Iterator[StartRule]:
    """One item a line; empty lines and those that begin with # are passed over."""
    path = Path(name)
    try:
        if path.stat().st_size > FILE_BYTES:
            raise ValueError(f"file:{name} is larger than {FILE_BYTES >> 20} MB: it is no list of starts")
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"file:{name} is no text in UTF-8") from None
    except OSError as problem:
        raise ValueError(f"file:{name} cannot be read: {problem.strerror or problem}") from None
    for number, line in enumerate(lines, 1):
        item = line.strip()
        if not item or item.startswith("#"):
            continue
        try:
            yield rule(item)
        except ValueError as problem:
            raise ValueError(f"file:{name}, line {number}: {problem}") from None

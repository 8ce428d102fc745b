"""Messages drawn: a table that fits the terminal, a wide one that cuts nothing, and JSON lines that lose nothing.

What a message holds is somebody else's: nothing of it reaches the terminal that could move its cursor. In JSON, text is
a string, null is null, and what is no UTF-8 is {"base64": …}: every byte can be had back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from rich.cells import cell_len, set_cell_size

from heliograph.cli.documents import plain
from heliograph.cli.out import style
from heliograph.escaping import escape
from heliograph.messages import meaning, mux
from heliograph.messages.meaning import Meaning
from heliograph.messages.reading import Message

NULL = "∅"
EMPTY = '""'
CUT = "…"
KEY_WIDTH = 24  # of a table; the value gets the rest
SHORT_TIME_BELOW = 70  # columns: only the time of day
LATEST_MS = 253_402_300_800_000  # the year 10000: no calendar goes further


@dataclass(frozen=True, slots=True)
class Topic:
    """What a message does not say of itself."""

    cluster: str
    name: str
    kind: str | None = None  # of `messages.meaning`; None: what it holds is shown as it is
    mux: bool = True  # read MUX headers


class Sheet(Protocol):
    def heading(self) -> str: ...

    def lines(self, message: Message) -> Iterator[str]: ...


def make(output: str, topic: Topic, width: int, partitions: Sequence[int], end: int) -> Sheet:
    """`json`, `wide` or `table`; `end`: an offset that is as long as any."""
    if output == "json":
        return JsonLines(topic)
    return Wide(topic) if output == "wide" else Table(topic, width, partitions, end)


# ---------------------------------------------------------------- text


def shown(data: bytes | None) -> str:
    """One line, safe for a terminal. Bytes that are no text look like Python's: b'\\x00\\x01'."""
    if data is None:
        return NULL
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return escape(text) or EMPTY


def cut(text: str, width: int) -> str:
    """At most so many columns of the terminal."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + CUT if width > 0 else ""


def fitted(text: str, width: int) -> str:
    text = cut(text, width)
    return text + " " * (width - cell_len(text))


def when(timestamp_ms: int) -> str:
    """`2026-11-16 10:48:37.123`, UTC."""
    if not 0 <= timestamp_ms < LATEST_MS:
        return "no time" if timestamp_ms == -1 else str(timestamp_ms)
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")


def headers_text(message: Message) -> str:
    return "  ".join(
        f"{escape(name.encode(errors='surrogateescape').decode(errors='backslashreplace'))}={shown(value)}"
        for name, value in message.headers
    )


# ---------------------------------------------------------------- tables


class Table:
    """Fits `width`: a line for each message, its headers and what it means in a second one."""

    def __init__(self, topic: Topic, width: int, partitions: Sequence[int], end: int) -> None:
        self._topic, self._width = topic, max(width, 30)
        self._day = self._width >= SHORT_TIME_BELOW
        self._widths = [
            23 if self._day else 12,
            max(len("part"), *(len(str(number)) for number in partitions), 0),
            max(len("offset"), len(str(end))),
        ]
        left = self._width - sum(self._widths) - 2 * (len(self._widths) + 1)
        key = max(min(KEY_WIDTH, left // 3), 3)
        self._widths += [key, max(left - key, 3)]

    def heading(self) -> str:
        if self._topic.kind is not None:
            return self._row("time (UTC)", "part", "offset", "", self._topic.kind)
        return self._row("time (UTC)", "part", "offset", "key", "value")

    def lines(self, message: Message) -> Iterator[str]:
        time = when(message.timestamp_ms)
        short = time if self._day else time.partition(" ")[2] or time
        said = _meaning(self._topic, message)
        value = escape(said.words) if said and said.readable else shown(message.value)
        key = "" if said and said.readable else shown(message.key)
        yield self._row(short, str(message.partition), str(message.offset), key, value)
        below = [f"! {said.words}"] if said and not said.readable else []
        if origin := _origin(self._topic, message):
            below.append(f"from {origin}")
        if message.headers:
            below.append(headers_text(message))
        for text in below:
            yield style("  " + cut(text, self._width - 2), dim=True)

    def _row(self, time: str, part: str, offset: str, key: str, value: str) -> str:
        widths = self._widths
        cells = [fitted(time, widths[0]), part.rjust(widths[1]), offset.rjust(widths[2])]
        if self._topic.kind is not None and not key:  # what it means takes the place of both
            return "  ".join([*cells, cut(value, widths[3] + 2 + widths[4])])
        return "  ".join([*cells, fitted(key, widths[3]), cut(value, widths[4])]).rstrip()


class Wide:
    """Everything of a message in one line, as long as it takes."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def heading(self) -> str:
        return "  ".join(["time (UTC)".ljust(23), "type    ", "part", "   offset", "key", "value", "headers"])

    def lines(self, message: Message) -> Iterator[str]:
        kind = "append" if message.appended else "create"
        place = [when(message.timestamp_ms).ljust(23), kind.ljust(8), f"{message.partition:>4}", f"{message.offset:>9}"]
        parts = [*place, shown(message.key), shown(message.value)]
        if message.headers:
            parts.append(headers_text(message))
        if (said := _meaning(self._topic, message)) is not None:
            parts.append(f"[{said.kind}: {escape(said.words)}]")
        if origin := _origin(self._topic, message):
            parts.append(f"[from {origin}]")
        yield "  ".join(parts)


# ---------------------------------------------------------------- JSON


class JsonLines:
    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def heading(self) -> str:
        return ""

    def lines(self, message: Message) -> Iterator[str]:
        document: dict[str, Any] = {
            "cluster": self._topic.cluster,
            "topic": self._topic.name,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": _iso(message.timestamp_ms),
            "timestamp_ms": message.timestamp_ms,
            "timestamp_type": "LogAppendTime" if message.appended else "CreateTime",
            "key": plain(message.key),
            "value": plain(message.value),
            "headers": _pairs(message.headers),
        }
        if (said := _meaning(self._topic, message)) is not None:
            document["decoded"] = _decoded(said)
        if self._topic.mux and (origin := mux.read(message.headers)):
            document["mux"] = origin
        yield json.dumps(document)


def _pairs(headers: Sequence[tuple[str, bytes | None]]) -> list[list[Any]]:
    """Pairs, not an object: names may come twice, and order counts."""
    return [[plain(name.encode(errors="surrogateescape")), plain(value)] for name, value in headers]


def _decoded(said: Meaning) -> dict[str, Any]:
    if not said.readable:
        return {"kind": said.kind, "readable": False}
    found = {"kind": said.kind, **said.fields}
    if said.record is not None:
        one = said.record
        found["record"] = {
            "timestamp_ms": one.timestamp,
            "key": plain(one.key),
            "value": plain(one.value),
            "headers": _pairs(one.headers),
        }
    return found


def _iso(timestamp_ms: int) -> str | None:
    if not 0 <= timestamp_ms < LATEST_MS:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _meaning(topic: Topic, message: Message) -> Meaning | None:
    return None if topic.kind is None else meaning.read(topic.kind, message)


def _origin(topic: Topic, message: Message) -> str:
    """Empty: nothing is said of it."""
    fields = mux.read(message.headers) if topic.mux else None
    return escape(mux.words(fields)) if fields else ""

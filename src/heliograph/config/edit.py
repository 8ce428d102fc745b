"""A properties file with some entries added or removed, and every other byte as it was: comments, order, line ends.

Answers for the text alone. What comes out is read again and compared with what it should say: a file that is written in
a way that was not foreseen is refused, not spoilt. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping

from heliograph.config import place, properties
from heliograph.errors import ConfigError
from heliograph.types import is_secret

CLUSTERS = "clusters"


def add(data: bytes, entries: Mapping[str, str], *, alias: str = "") -> bytes:
    """With these entries at its end, in this order; `alias`: one more of `clusters`."""
    text, encoding = properties.decode(data)
    lines = properties.split_lines(text)
    wanted = _values(data) | dict(entries)
    if alias:
        wanted[CLUSTERS] = _listed([*_aliases(wanted), alias])
        _extend(lines, alias)
    end = "\r\n" if any(line.endswith("\r\n") for line in lines) else "\n"
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += end
    if entries and lines and lines[-1].strip():
        lines.append(end)
    lines += [f"{key} = {properties.escaped(value)}{end}" for key, value in entries.items()]
    return _proven(lines, encoding, wanted)


def remove(data: bytes, drops: Callable[[str], bool], *, alias: str = "") -> bytes:
    """Without the entries whose key is such; `alias`: one less of `clusters`. Comments stay: somebody wrote them."""
    text, encoding = properties.decode(data)
    lines = properties.split_lines(text)
    wanted = {key: value for key, value in _values(data).items() if not drops(key)}
    if alias:
        wanted[CLUSTERS] = _listed([one for one in _aliases(wanted) if one != alias])
        _shorten(lines, alias)
    for stretch in properties.stretches(text):
        if drops(stretch.key):
            lines[stretch.first - 1 : stretch.end - 1] = [""] * (stretch.end - stretch.first)
    return _proven(lines, encoding, wanted)


def preview(before: bytes, after: bytes) -> list[str]:
    """The lines that go (-) and come (+); secrets, and values of unknown keys, masked."""
    old, new = (list(_shown(data)) for data in (before, after))
    found = difflib.unified_diff(old, new, n=0, lineterm="")
    return [line for line in found if line[:1] in "+-" and line[:3] not in ("+++", "---") and line[1:].strip()]


def keys_of(data: bytes) -> frozenset[str]:
    return frozenset(_values(data))


def _shown(data: bytes) -> Iterator[str]:
    text, _ = properties.decode(data)
    lines = [line.rstrip("\r\n") for line in properties.split_lines(text)]
    aliases = _aliases(_values(data))
    for one in properties.stretches(text):
        known = place.judge(place.locate(one.key, aliases)).standing is not place.Standing.UNKNOWN
        if is_secret(one.key) or not known:
            lines[one.first - 1 : one.end - 1] = [f"{one.key} = ***"] + [""] * (one.end - one.first - 1)
    yield from lines


def _values(data: bytes) -> dict[str, str]:
    return {key: entry.value for key, entry in properties.parse(data).entries.items()}


def _aliases(values: Mapping[str, str]) -> list[str]:
    return [one.strip() for one in values.get(CLUSTERS, "").split(",") if one.strip()]


def _listed(aliases: list[str]) -> str:
    return ", ".join(aliases)


def _clusters(lines: list[str]) -> properties.Stretch:
    """The last of several: it wins."""
    found = [one for one in properties.stretches("".join(lines)) if one.key == CLUSTERS]
    if not found:
        raise ConfigError(f"{CLUSTERS} is missing", fix="add the line, e.g. clusters = hub, spoke1")
    return found[-1]


def _extend(lines: list[str], alias: str) -> None:
    at = _clusters(lines).end - 2
    body = lines[at].rstrip("\r\n")
    lines[at] = f"{body.rstrip()}, {alias}{lines[at][len(body) :]}"


def _shorten(lines: list[str], alias: str) -> None:
    """The numbers of lines stay: a line that is joined leaves an empty place."""
    one = _clusters(lines)
    text = "".join(lines[one.first - 1 : one.end - 1])
    name, gap = re.escape(alias), r"(?:\s|\\(?:\r\n|\n|\r))*"
    left = re.sub(rf",{gap}{name}(?=[\s,\\]|$)", "", text, count=1)
    if left == text:
        left = re.sub(rf"(?<=[\s=:,]){name}{gap},[ \t]*", "", text, count=1)
    lines[one.first - 1 : one.end - 1] = [left] + [""] * (one.end - one.first - 1)


def _proven(lines: list[str], encoding: str, wanted: Mapping[str, str]) -> bytes:
    text = "".join(lines)
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        raise ConfigError("a value holds what this file's encoding cannot: save the file as UTF-8 first") from None
    got = _values(data)
    if _comparable(got) != _comparable(wanted):
        differ = sorted(key for key in got.keys() | wanted.keys() if got.get(key) != wanted.get(key))
        raise ConfigError(
            f"the file is written in a way that cannot be edited safely: {', '.join(differ[:3])} would not come out",
            fix="edit it by hand, then: heliograph apply FILE",
        )
    return data


def _comparable(values: Mapping[str, str]) -> dict[str, object]:
    return {**values, CLUSTERS: _aliases(values)}

"""Java's `.properties` files, read as java.util.Properties reads them.

Answers for the syntax alone: logical lines, comments, separators, escapes, and the line each key stands on. What a key
means is `load`'s business. One leniency: a file that is valid UTF-8 is read as UTF-8 (Java takes every byte for
ISO-8859-1), because an editor of today writes UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\n|\r")  # not str.splitlines, which knows ten more than Java


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    value: str
    line: int  # the first line of the entry, from 1


@dataclass(frozen=True, slots=True)
class Properties:
    """The entries of a file in order, the last of equal keys; `repeated` has the ones that lost, `malformed` the
    lines that Java would refuse."""

    entries: dict[str, Entry]
    repeated: tuple[Entry, ...] = ()
    malformed: tuple[tuple[int, str], ...] = ()


def parse(data: bytes) -> Properties:
    entries: dict[str, Entry] = {}
    repeated: list[Entry] = []
    malformed: list[tuple[int, str]] = []
    for number, line in _logical_lines(_decode(data)):
        raw_key, raw_value = _split(line)
        try:
            entry = Entry(_unescape(raw_key), _unescape(raw_value), number)
        except ValueError as problem:
            malformed.append((number, str(problem)))
            continue
        if entry.key in entries:
            repeated.append(entries.pop(entry.key))
        entries[entry.key] = entry
    return Properties(entries, tuple(repeated), tuple(malformed))


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Joins continued lines. A continuation is never a comment, and a blank one ends the entry."""
    lines = iter(enumerate(_LINE_END.split(text), start=1))
    for number, raw in lines:
        line = raw.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            _, following = next(lines, (0, ""))
            line = line[:-1] + following.lstrip(_BLANK)
            if not following.strip(_BLANK):
                break
        if line:
            yield number, line


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped: the key ends at the first unescaped `=`, `:` or blank."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\":
            out.append(char)
            continue
        char = text[at : at + 1]
        at += 1
        if char == "u":
            out.append(_unicode(text[at : at + 4]))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # A pair of \u surrogates is one character in Java's UTF-16; a lone one has no meaning in any name or address.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unicode(digits: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
        raise ValueError(f"malformed \\u{digits}: four hexadecimal digits must follow \\u (for a backslash write \\\\)")
    return chr(int(digits, 16))

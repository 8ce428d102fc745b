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
class Stretch:
    """The lines of a file that an entry stands on, from 1; `end` is the first behind it."""

    key: str
    first: int
    end: int


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
    for number, _, line in _logical_lines(decode(data)[0]):
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


def stretches(text: str) -> Iterator[Stretch]:
    """Every entry in order, also those that lose; what Java would refuse is left out."""
    for first, end, line in _logical_lines(text):
        try:
            yield Stretch(_unescape(_split(line)[0]), first, end)
        except ValueError:
            continue


def decode(data: bytes) -> tuple[str, str]:
    """The text and its encoding."""
    try:
        encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
        return data.decode(encoding), encoding
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def split_lines(text: str) -> list[str]:
    """Each with its end; the last may have none."""
    ends = [found.end() for found in _LINE_END.finditer(text)]
    lines = [text[begin:end] for begin, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    return lines if lines[-1] else lines[:-1]


def escaped(value: str) -> str:
    """As it stands behind `key = `."""
    text = (
        value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    )
    return "\\" + text if text.startswith(" ") else text


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Joins continued lines. A continuation is never a comment, and a blank one ends the entry."""
    lines = iter(enumerate(_LINE_END.split(text), start=1))
    for number, raw in lines:
        line = raw.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        end = number + 1
        while _is_continued(line):
            last, following = next(lines, (0, ""))
            end = max(end, last + 1)
            line = line[:-1] + following.lstrip(_BLANK)
            if not following.strip(_BLANK):
                break
        if line:
            yield number, end, line


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

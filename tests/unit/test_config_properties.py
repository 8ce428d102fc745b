"""The .properties syntax, case by case as java.util.Properties documents it."""

from __future__ import annotations

import pytest

from heliograph.config.properties import parse


def pairs(text: str) -> dict[str, str]:
    return {key: entry.value for key, entry in parse(text.encode()).entries.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t:\t b ", {"a": "b "}),  # blanks at the end belong to the value
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("# c\n! d\n  # e\n\n \t\na=1", {"a": "1"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("us->eu.enabled = true", {"us->eu.enabled": "true"}),
        (r"a\=b\:c\ d=e", {"a=b:c d": "e"}),
        ("a=x,\\\n   y,\\\n\tz", {"a": "x,y,z"}),
        ("a=x\\\n# y", {"a": "x# y"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\\n\nb=y", {"a": "x", "b": "y"}),  # a blank line ends a continuation
        ("a=x\\", {"a": "x"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        (r"a=\u00e9\u0041", {"a": "éA"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        (r"a=\t\n\r\f\q\\", {"a": "\t\n\r\fq\\"}),
        (r"topics=mm2.*\\.internal", {"topics": r"mm2.*\.internal"}),
        (r"topics=mm2.*\.internal", {"topics": "mm2.*.internal"}),  # a single backslash vanishes, as in Java
        ("\ufeffa=1", {"a": "1"}),
        ("", {}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert pairs(text) == expected


def test_line_numbers_are_those_of_the_first_line_of_an_entry() -> None:
    entries = parse(b"# top\n\na=1\\\n 2\nb=3").entries
    assert (entries["a"].line, entries["b"].line) == (3, 5)


def test_the_last_of_equal_keys_wins_and_the_other_is_kept() -> None:
    file = parse(b"a=1\nb=2\na=3")
    assert file.entries["a"].value == "3"
    assert [(entry.value, entry.line) for entry in file.repeated] == [("1", 1)]


def test_bytes_that_are_not_utf8_are_latin1() -> None:
    assert parse(b"a=\xe9").entries["a"].value == "é"
    assert parse("a=é".encode()).entries["a"].value == "é"


def test_a_malformed_escape_is_reported_with_its_line() -> None:
    file = parse(b"a=1\nb=\\u12x4\nc=2")
    assert [line for line, _ in file.malformed] == [2]
    assert set(file.entries) == {"a", "c"}

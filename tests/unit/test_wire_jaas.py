"""sasl.jaas.config as Kafka's Java clients read it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.wire.jaas import parse

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
words = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$.\-]{0,20}", fullmatch=True)


def quoted(value: str, quote: str) -> str:
    return quote + value.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote


@settings(deadline=None)
@given(
    options=st.dictionaries(words, st.text(), max_size=6),
    quote=st.sampled_from("\"'"),
    gap=st.sampled_from([" ", "\n", "\t ", " /* note; */ ", " // note;\n"]),
)
def test_whatever_is_quoted_comes_back(options: dict[str, str], quote: str, gap: str) -> None:
    body = gap.join(f"{key}={quoted(value, quote)}" for key, value in options.items())
    module = parse(f"{PLAIN}{gap}required{gap}{body}{gap};")
    assert module.name == PLAIN
    assert module.options == options


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read_or_refused_with_a_reason_that_does_not_quote_it(text: str) -> None:
    try:
        parse(text)
    except ValueError as error:
        said = str(error)
    else:
        return
    assert any(word in said for word in ("it must", "the word after", "option", "a quote"))


def test_bare_words_and_java_escapes() -> None:
    options = parse(f'{PLAIN} required serviceName=kafka tokenauth=true p="a\\tb\\"c\\\\d\\101" ;').options
    assert options == {"serviceName": "kafka", "tokenauth": "true", "p": 'a\tb"c\\dA'}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it must read"),
        (f'{PLAIN} required username="a" password="secret"', "end with ';'"),
        (f'{PLAIN} username="a";', "required"),
        (f'{PLAIN} required username="a password="secret";', "quote"),
        (f"{PLAIN} required username password;", "option 1"),
        (f'{PLAIN} required username="a"; {PLAIN} required;', "one login module"),
    ],
)
def test_what_is_wrong_is_said_without_the_secret(text: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)


def test_comments_that_are_not_closed_reach_to_the_end_and_are_searched_once() -> None:
    with pytest.raises(ValueError, match="must end with ';'"):
        parse("Module required a=b /* c; ")
    with pytest.raises(ValueError):
        parse("Module required " + "/* " * 300_000)  # each was searched to the end: 45 thousand million steps

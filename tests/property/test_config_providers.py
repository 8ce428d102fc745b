"""`${provider:path:key}` is found as Kafka finds it, in steps linear in the value's length (fault E1)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.providers import (
    MAX_EXPRESSIONS,
    MAX_VALUE_CHARS,
    ProviderProblem,
    Providers,
    expressions,
    is_expression,
)

KAFKAS = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")  # ConfigTransformer.DEFAULT_PATTERN
TEXTS = st.text(alphabet="${}:a\n", max_size=14)
PIECES = st.sampled_from(["${:", "${", "${a:", ":", "${}", "a", "}", "${a:b:c}"])


class Counted(str):
    """Counts the characters that searches and slices of it pass over."""

    steps = 0

    def find(self, what: str, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        found = super().find(what, start)
        self.steps += (len(self) if found < 0 else found) - start + 1
        return found

    def __getitem__(self, where: slice) -> str:  # type: ignore[override]
        piece = super().__getitem__(where)
        self.steps += len(piece)
        return piece


@given(TEXTS)
def test_expressions_are_those_that_kafkas_pattern_finds(text: str) -> None:
    found = [(one.provider, one.path, one.key, one.start, one.end) for one in expressions(text)]
    assert found == [(m[1], m[3] or "", m[4], m.start(), m.end()) for m in KAFKAS.finditer(text)]
    assert is_expression(text) == (KAFKAS.fullmatch(text) is not None)


@given(st.lists(PIECES, min_size=1, max_size=3).map("".join), st.integers(1, 3000))
def test_finding_them_takes_steps_linear_in_the_length(piece: str, times: int) -> None:
    text = Counted(piece * times)
    list(expressions(text))
    assert text.steps <= 4 * len(text) + 4


@pytest.mark.parametrize("text", ["${:" * 300_000, "${" + ":" * 1_000_000, "${a" * 300_000, "${a:b" * 200_000])
def test_a_long_value_is_judged_at_once_also_where_nothing_is_looked_up(text: str) -> None:
    """Kafka's pattern takes longer than this suite may for a thousandth of them."""
    assert Providers({}).replace(text).text == text
    assert not Providers({}).withheld().replace(text).withheld


class Constant:
    def __init__(self, value: str) -> None:
        self.value, self.asked = value, 0

    def look_up(self, path: str, key: str) -> str | None:
        self.asked += 1
        return self.value


def test_a_value_is_bounded_in_length_expressions_and_what_they_stand_for() -> None:
    constant = Constant("x")
    with pytest.raises(ProviderProblem, match="may have"):
        Providers({}).replace("${a:b}" + "x" * MAX_VALUE_CHARS)
    with pytest.raises(ProviderProblem, match=f"more than {MAX_EXPRESSIONS} expressions"):
        Providers({"c": constant}).replace("${c:k}" * 10_000)
    assert constant.asked == MAX_EXPRESSIONS
    with pytest.raises(ProviderProblem, match="stand for"):
        Providers({"c": Constant("x" * (MAX_VALUE_CHARS // 2))}).replace("${c:k}" * 3)


def test_files_without_an_end_are_not_read() -> None:
    from heliograph.config.providers import Directory, Files

    with pytest.raises(ProviderProblem, match="not a regular file"):
        Files({}).look_up("/dev/zero", "key")
    assert Directory({}).look_up("/dev", "zero") is None

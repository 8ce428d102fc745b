"""The demo's check of a copy finds what it is there to find."""

from __future__ import annotations

import pytest

from heliograph.cli.compare import compare
from heliograph.cli.scene import summarise
from heliograph.cli.traffic import _headers, _value

A, B, C, D = b"a", b"b", b"c", b"d"


@pytest.mark.parametrize(
    ("source", "copy", "words"),
    [
        ([A, B, C], [A, B], "1 lost, first at record 2"),
        ([A, B, C], [A, C], "1 lost, first at record 1"),
        ([A, B], [A, A, B], "1 twice, first at record 1"),
        ([A, B, C], [A, C, B], "2 out of order, first at record 1"),
        ([A, B, C], [A, D, C], "1 lost, 1 changed, first at record 1"),
        ([A], [], "1 lost, first at record 0"),
        ([], [A], "1 changed, first at record 0"),
    ],
)
def test_differences_are_found_and_named(source: list[bytes], copy: list[bytes], words: str) -> None:
    (difference,) = compare("orders", {0: [A], 1: source}, {0: [A], 1: copy})
    assert str(difference) == f"orders-1: {words}"


def test_equal_copies_have_none() -> None:
    assert compare("orders", {0: [A, B], 1: []}, {0: [A, B], 1: []}) == []


def test_a_partition_without_copy_is_lost() -> None:
    assert [d.lost for d in compare("orders", {0: [A], 1: [B, C]}, {0: [A]})] == [2]


def test_the_summarys_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert summarise(10, 10, [], True, ()) == 0
    assert "every record arrived once" in capsys.readouterr().out
    assert summarise(10, 9, [], True, ()) == 1
    assert summarise(10, 10, [], False, ()) == 1
    assert summarise(10, 10, compare("t", {0: [A]}, {}), True, ()) == 1
    assert "t-0: 1 lost" in capsys.readouterr().out


def test_no_two_events_are_alike() -> None:
    made = [(_value(number), tuple(_headers(number))) for number in range(3000)]
    assert len(set(made)) == len(made)
    assert any(value is None for value, _ in made)

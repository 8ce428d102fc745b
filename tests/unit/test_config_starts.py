"""`start = …`: what it may say, and the words for what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph import policy
from heliograph.config import starts
from heliograph.config.load import parse
from heliograph.errors import ConfigError
from heliograph.types import Flow, StartPoint, StartRule, TopicPartition

BASE = "clusters = us, eu\nus.bootstrap.servers = us1:9092\neu.bootstrap.servers = eu1:9092\nus->eu.enabled = true\n"
NOVEMBER_MS = 1_793_491_200_000  # 2026-11-01T00:00:00Z


def flow(*lines: str) -> Flow:
    return parse((BASE + "\n".join(lines)).encode(), "mm2.properties", environment={}).flows[0]


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("earliest", StartPoint("earliest")),
        (" latest ", StartPoint("latest")),
        ("timestamp:2026-11-01T00:00:00Z", StartPoint("timestamp", NOVEMBER_MS)),
        ("timestamp:2026-11-01T01:00:00+01:00", StartPoint("timestamp", NOVEMBER_MS)),
        (f"timestamp:{NOVEMBER_MS}", StartPoint("timestamp", NOVEMBER_MS)),
        ("offset:0", StartPoint("offset", 0)),
        ("offset:1200", StartPoint("offset", 1200)),
    ],
)
def test_a_point(text: str, point: StartPoint) -> None:
    assert starts.point(text) == point


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("soon", "no place to begin: write earliest, latest, timestamp:"),
        ("earliest:3", "no place to begin"),
        ("timestamp:2026-11-01T00:00:00", "does not say in which time zone"),
        ("timestamp:yesterday", "no time: write 2026-11-01T00:00:00Z"),
        ("timestamp:1969-12-31T23:00:00Z", "before 1970"),
        ("timestamp:1793491200000000", "microseconds"),
        ("offset:-1", "no offset: write a whole number"),
        ("offset:", "no offset"),
        ("offset:1e6", "no offset"),
        ("", "no place to begin"),
    ],
)
def test_what_is_no_point(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        starts.point(text)


def test_the_first_rule_that_fits_decides() -> None:
    one = flow(
        "us.consumer.auto.offset.reset = latest",
        r"us->eu.start = orders:3=offset:1200, orders=timestamp:2026-11-01T00:00:00Z, pay(?:ments)?\\..*=earliest",
    )
    wanted = {
        ("orders", 3): StartPoint("offset", 1200),
        ("orders", 0): StartPoint("timestamp", NOVEMBER_MS),
        ("payments.eu", 1): StartPoint("earliest"),
        ("other", 0): StartPoint("latest"),  # no rule fits: auto.offset.reset
    }
    assert {tp: policy.start_of(one, TopicPartition(*tp)) for tp in wanted} == wanted


def test_a_flow_of_its_own_wins_and_a_bare_word_is_for_all() -> None:
    assert flow("start = latest").start == (StartRule(StartPoint("latest")),)
    assert flow("start = latest", "us->eu.start = earliest").start == (StartRule(StartPoint("earliest")),)


def test_a_file_of_starts(tmp_path: Path) -> None:
    file = tmp_path / "starts.txt"
    file.write_text("# exact offsets\n\norders:0=offset:10\norders:1 = offset:20\n")
    one = flow(f"us->eu.start = file:{file}, latest")
    assert [str(rule) for rule in one.start] == ["orders:0=offset 10", "orders:1=offset 20", ".*=latest"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("someday", "'someday' is no place to begin"),
        ("orders=", "'' is no place to begin"),
        ("=latest", "names no topic"),
        ("a(b=latest", "neither a topic nor a regular expression"),
        (",", "says nothing"),
        ("file:absent.txt", "file:absent.txt cannot be read: No such file"),
    ],
)
def test_a_bad_start_names_line_key_and_fix(value: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        flow(f"us->eu.start = {value}")
    (problem,) = caught.value.problems
    assert words in problem
    assert problem.startswith("mm2.properties:5: us->eu.start = ")


def test_a_bad_line_of_a_file_of_starts_is_named(tmp_path: Path) -> None:
    file = tmp_path / "starts.txt"
    file.write_text("orders:0=offset:10\norders:1=offset:x\n")
    with pytest.raises(ConfigError, match=r"starts\.txt, line 2: 'x' is no offset"):
        flow(f"us->eu.start = file:{file}")


def test_points_in_words() -> None:
    assert str(StartPoint("timestamp", NOVEMBER_MS)) == "timestamp 2026-11-01T00:00:00.000Z"
    assert str(StartRule(StartPoint("offset", 7), "orders", 2)) == "orders:2=offset 7"

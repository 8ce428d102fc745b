"""`max.bytes.per.second = …`: what it may say, and the words for what it may not."""

from __future__ import annotations

import pytest

from heliograph.config.load import parse
from heliograph.errors import ConfigError
from heliograph.policy import cap_of
from heliograph.types import Cap, Flow

BASE = "clusters = us, eu\nus.bootstrap.servers = us1:9092\neu.bootstrap.servers = eu1:9092\nus->eu.enabled = true\n"


def flow(*lines: str) -> Flow:
    return parse((BASE + "\n".join(lines)).encode(), "mm2.properties", environment={}).flows[0]


def test_none_unless_asked_for() -> None:
    assert flow().caps == ()


def test_of_the_flow_and_of_topics() -> None:
    caps = flow(r"us->eu.max.bytes.per.second = 10000000, history\\..*=2000000 , clicks = 500000").caps
    assert caps == (Cap(10_000_000), Cap(2_000_000, r"history\..*"), Cap(500_000, "clicks"))
    assert [cap_of(caps, topic) for topic in ("history.2019", "clicks", "history", "orders")] == [1, 2, None, None]


def test_the_first_pattern_that_fits_decides() -> None:
    caps = flow("max.bytes.per.second = orders=1000000, .*=5000000").caps
    assert [cap_of(caps, topic) for topic in ("orders", "orders2")] == [0, 1]


def test_the_flows_own_wins_over_that_for_all() -> None:
    assert flow("max.bytes.per.second = 5000000", "us->eu.max.bytes.per.second = 7000000").caps == (Cap(7_000_000),)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "a cap of 0 would copy nothing: leave the key out for no cap"),
        ("orders=0", "a cap of 0 would copy nothing"),
        ("-1", "-1 is negative: leave the key out"),
        ("10MB", "'10MB' is no whole number: the unit is bytes a second: 10 MB/s is 10000000"),
        ("1e7", "no whole number"),
        ("10", "10 bytes a second is less than"),
        ("", "says nothing"),
        (",", "says nothing"),
        ("=1000000", "names no topic"),
        ("orders=", "'' is no whole number"),
        ("orders:3=1000000", "for topics, not for single partitions"),
        ("a(b=1000000", "neither a topic nor a regular expression"),
        ("1000000, 2000000", "caps the flow twice, with 1000000 and with 2000000"),
        ("orders=1000000, orders=2000000", "caps 'orders' twice"),
        ("1000000, orders=2000000", "orders=2000000 can never be reached: the flow as a whole is capped at 1000000"),
        ("orders=2000000, 1000000", "can never be reached"),
    ],
)
def test_a_bad_cap_names_line_key_and_fix(value: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        flow(f"us->eu.max.bytes.per.second = {value}")
    said = str(caught.value)
    assert "mm2.properties:5: us->eu.max.bytes.per.second = " in said
    assert words in said

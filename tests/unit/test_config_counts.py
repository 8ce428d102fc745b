"""`target.partitions = …`: what it may say, and the words for what it may not."""

from __future__ import annotations

import pytest

from heliograph import policy
from heliograph.config.load import parse
from heliograph.errors import ConfigError
from heliograph.types import CountRule, Flow

BASE = "clusters = us, eu\nus.bootstrap.servers = us1:9092\neu.bootstrap.servers = eu1:9092\nus->eu.enabled = true\n"


def flow(*lines: str, base: str = BASE) -> Flow:
    return parse((base + "\n".join(lines)).encode(), "mm2.properties", environment={}).flows[0]


def test_unset_a_copy_has_as_many_as_its_source() -> None:
    assert flow().target_partitions == ()
    assert policy.partitions_of(flow(), "orders") is None


def test_one_count_is_for_all_topics_but_never_for_heartbeats() -> None:
    one = flow("us->eu.target.partitions = 12")
    assert one.target_partitions == (CountRule(12),)
    topics = ("orders", "heartbeats", "us.heartbeats")
    assert [policy.partitions_of(one, topic) for topic in topics] == [12, None, None]


def test_the_first_that_fits_decides() -> None:
    one = flow(r"us->eu.target.partitions = orders.*:12, logs : 1, 6")
    wanted = {"orders": 12, "orders.eu": 12, "logs": 1, "logs2": 6}
    assert {topic: policy.partitions_of(one, topic) for topic in wanted} == wanted
    assert policy.partitions_of(flow("us->eu.target.partitions = logs:1"), "orders") is None


def test_it_may_stand_at_the_top_also_beside_a_cluster_called_target() -> None:
    assert flow("target.partitions = 3").target_partitions == (CountRule(3),)
    base = BASE.replace("eu", "target")
    assert flow("target.partitions = 3", base=base).target_partitions == (CountRule(3),)
    assert flow("us->target.target.partitions = 4", "target.partitions = 3", base=base).target_partitions == (
        CountRule(4),
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "'0': a topic has 1 to 10,000 partitions"),
        ("orders:-3", "'orders:-3': a topic has 1 to"),
        ("1000000", "a topic has 1 to"),
        ("many", "'many' has no count of partitions: write a count"),
        ("orders:", "'orders:' has no count"),
        ("orders", "'orders' has no count"),
        (":5", "':5' names no topic"),
        ("4.5", "has no count"),
        ("", "says nothing"),
        ("a(b:3", "neither a topic nor a regular expression"),
        ("orders:3, orders:4", "orders:4 never counts: 3 is chosen for orders before it"),
        ("12, logs:1", "logs:1 never counts: 12 is chosen for all topics before it"),
    ],
)
def test_a_bad_count_names_line_key_and_fix(value: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        flow(f"us->eu.target.partitions = {value}")
    (problem,) = caught.value.problems
    assert words in problem
    assert problem.startswith("mm2.properties:5: us->eu.target.partitions = ")

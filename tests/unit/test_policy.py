"""Names, cycles and filters, with the answers that MM2 4.x's own classes give."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from heliograph import policy
from heliograph.errors import ConfigError
from heliograph.javaregex import java_regex
from heliograph.policy import DEFAULT_EXCLUDE, IDENTITY_POLICY, Filter, Policy, should_replicate
from heliograph.types import Cluster, Flow, Naming

US_EU = Flow(Cluster("us"), Cluster("eu"))
DEFAULT = policy.of(US_EU)


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("us.orders", "us", "orders", "orders"),
        ("eu.us.orders", "eu", "us.orders", "orders"),
        ("my.own.topic", "my", "own.topic", "topic"),  # it does not know which aliases exist
        ("orders.", None, None, "orders."),  # Java's split drops the empty end
        ("us.orders.", "us", "orders.", "orders."),
        ("us..orders", "us", ".orders", "orders"),
        (".orders", "", "orders", "orders"),
    ],
)
def test_taking_names_apart(topic: str, source: str | None, upstream: str | None, original: str) -> None:
    assert DEFAULT.topic_source(topic) == source
    assert DEFAULT.upstream_topic(topic) == upstream
    assert DEFAULT.original_topic(topic) == original


def test_putting_names_together() -> None:
    assert DEFAULT.remote_topic("us", "orders") == "us.orders"
    assert policy.positions_topic("us") == "mm2-offsets.us.internal"
    assert DEFAULT.checkpoints_topic("us") == "us.checkpoints.internal"
    assert DEFAULT.offset_syncs_topic("eu") == "mm2-offset-syncs.eu.internal"


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("__consumer_offsets", True),
        (".hidden", True),
        ("mm2-offsets.us.internal", True),
        ("mm2-offset-syncs.eu.internal", True),
        ("us.checkpoints.internal", True),
        ("orders.internal", False),  # 3.x took these two for internal
        ("orders-internal", False),
        ("mm2-notes", False),
        ("heartbeats", False),
    ],
)
def test_internal_topics_by_the_rule_of_4x(topic: str, expected: bool) -> None:
    assert DEFAULT.is_internal(topic) is expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", True),
        ("ap.orders", True),  # a third cluster's, passed on
        ("eu.orders", False),  # came from the target
        ("ap.eu.orders", False),  # came from the target two hops ago
        ("orders.eu", True),  # the last part is the topic, not a hop
        ("__transaction_state", False),
        ("mm2-configs.ap.internal", False),
        ("orders.replica", False),
        ("heartbeats", True),
        ("ap.heartbeats", True),
        ("eu.heartbeats", False),
    ],
)
def test_what_a_flow_takes_by_default(topic: str, expected: bool) -> None:
    assert should_replicate(US_EU, topic) is expected


def test_heartbeats_pass_any_filter_but_internal_topics_none() -> None:
    flow = Flow(Cluster("us"), Cluster("eu"), topics=("nothing", "__.*"), topics_exclude=("heartbeats",))
    assert should_replicate(flow, "heartbeats")
    assert not should_replicate(replace(flow, heartbeats_replication=False), "heartbeats")
    assert not should_replicate(flow, "__consumer_offsets")


def test_a_filter_matches_in_full_and_exclusion_wins() -> None:
    chosen = Filter(("orders", "pay.*"), ("pay-test.*",))
    assert chosen.accepts("orders")
    assert chosen.accepts("payments")
    assert not chosen.accepts("orders2")
    assert not chosen.accepts("my-orders")
    assert not chosen.accepts("pay-test-1")
    assert not Filter(()).accepts("orders")


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"\Qa.b\E.*", "a.bc", "axbc"),
        (r"(?<x>a+)-\k<x>", "aa-aa", "aa-a"),
        (r"\p{Alpha}+", "abc", "ab1"),
        (r"[\p{Digit}x]+", "1x2", "a"),
        (r"\P{Digit}+", "abc", "ab1"),
        (r"(?i)orders|pay", "PAY", "pa"),  # the flag goes on through the alternatives
        (r"a|(?i)b|c", "C", "A"),
        (r"(a|(?i)b)c", "Bc", "bC"),
        (r"a++b", "aab", "aa"),
        (r"[^|~]+", "abc", "a|b"),
        (r"x\z", "x", "xx"),
        (r"(?!test-).*", "orders", "test-orders"),
        (r"[]a]+", "a]", "b"),
        (r"a\-b", "a-b", "ab"),
    ],
)
def test_java_syntax(pattern: str, matching: str, other: str) -> None:
    compiled = java_regex(pattern)
    assert compiled.fullmatch(matching)
    assert not compiled.fullmatch(other)


@pytest.mark.parametrize(
    "pattern", ["(", ")", "[a", "*", "a(?i)b", "[a&&b]", "[a[b]]", r"\p{Greek}", r"\k", "a" + "{9" * 50]
)
def test_what_is_no_expression_or_not_supported_is_refused(pattern: str) -> None:
    if pattern.startswith("a{"):
        assert java_regex(pattern)  # braces that are no repetition are letters in Python; harmless in a topic name
        return
    with pytest.raises(ValueError):
        java_regex(pattern)


def test_a_separator_of_ones_own_is_in_every_name_that_takes_it() -> None:
    own = policy.make(Naming(separator="__"), "us")
    assert own.remote_topic("us", "orders") == "us__orders"
    assert own.topic_source("us__orders") == "us"
    assert own.topic_source("us.orders") is None
    assert own.checkpoints_topic("us") == "us__checkpoints__internal"
    assert own.offset_syncs_topic("eu") == "mm2-offset-syncs__eu__internal"
    plain = policy.make(Naming(separator="__", internal_separator=False), "us")
    assert plain.checkpoints_topic("us") == "us.checkpoints.internal"


def test_identity_keeps_names_but_those_of_heartbeats() -> None:
    same = policy.make(Naming(policy=IDENTITY_POLICY), "us")
    assert same.remote_topic("us", "orders") == "orders"
    assert (same.topic_source("orders"), same.upstream_topic("orders")) == ("us", "orders")
    assert same.original_topic("orders") == "orders"
    assert not same.is_cycle("orders", "eu")
    assert same.remote_topic("us", "heartbeats") == "us.heartbeats"
    assert same.remote_topic("us", "my-heartbeats") == "us.my-heartbeats"  # MM2's rule goes by the end of the name
    assert same.is_heartbeats("eu.us.heartbeats")
    assert same.is_cycle("eu.heartbeats", "eu")


@pytest.mark.parametrize(
    "topic", ["orders.internal", "orders-internal", "mm2-offsets.us.internal", "us.checkpoints.internal"]
)
def test_internal_topics_by_the_rule_of_3x(topic: str) -> None:
    assert policy.make(Naming(rules=3), "us").is_internal(topic)
    assert not Filter((".*",), DEFAULT_EXCLUDE[3]).accepts(topic)


class Shouting(Policy):
    def remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}".upper()


def test_a_policy_of_ones_own() -> None:
    own = policy.make(Naming(policy=f"{__name__}:Shouting", allowed=True), "us")
    assert own.remote_topic("us", "orders") == "US.ORDERS"


@pytest.mark.parametrize(
    "name", ["no.such.module:Class", f"{__name__}:Missing", f"{__name__}:pytest", "com.example.Mine"]
)
def test_a_policy_that_cannot_be_had_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"replication\.policy\.class"):
        policy.policy_class(name, allowed=True)


def test_a_class_that_nobody_allowed_is_not_imported() -> None:
    with pytest.raises(ConfigError, match="may not be imported"):
        policy.policy_class("this:s")
    with pytest.raises(ConfigError, match="may not be imported"):
        policy.make(Naming(policy=f"{__name__}:Shouting"), "us")
    assert "this" not in sys.modules


def test_a_policy_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "acme_naming-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: acme-naming\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[heliograph.policies]\nacme = {__name__}:Shouting\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert policy.make(Naming(policy="acme"), "us").remote_topic("us", "orders") == "US.ORDERS"
    with pytest.raises(ConfigError, match="no policy of this name"):
        policy.policy_class("acme2")

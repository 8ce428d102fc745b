"""Replication factors: lowered where the file does not set them, refused where it does, and said either way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.state.replicas import NEW_COPIES, Needed, Seen, needed_by, refusals, shortfalls, words
from heliograph.types import (
    COPIES_FACTOR,
    HEARTBEATS_FACTOR,
    STORAGE_FACTOR,
    Cluster,
    Demux,
    Factor,
    Flow,
    Mux,
    Policies,
)

US, EU = Cluster("us"), Cluster("eu")
FLOW = Flow(US, EU)
DEFAULT, FIXED = Factor(3, "eu.offset.storage.replication.factor"), Factor(3, "eu.rf", fixed=True)


def names(flow: Flow) -> list[tuple[str, str, str]]:
    return [(one.cluster.alias, one.topic, one.factor.key) for one in needed_by(flow)]


def test_every_topic_that_a_flow_creates_and_the_key_of_its_factor() -> None:
    storage = f"eu.{STORAGE_FACTOR}"
    assert names(FLOW) == [
        ("eu", "mm2-offsets.us.internal", storage),
        ("eu", "mm2-offset-map.us.internal", storage),
        ("eu", "heartbeats", HEARTBEATS_FACTOR),
        ("us", "mm2-offset-syncs.eu.internal", "offset-syncs.topic.replication.factor"),
        ("eu", "us.checkpoints.internal", "checkpoints.topic.replication.factor"),
        ("eu", "mm2-heliograph-incidents.us.internal", storage),
        ("eu", "mm2-heliograph-quarantine.us.internal", storage),
        ("eu", NEW_COPIES, COPIES_FACTOR),
    ]


def test_what_is_switched_off_is_not_needed() -> None:
    assert [topic for _, topic, _ in names(replace(FLOW, enabled=False))] == ["heartbeats"]
    without = replace(FLOW, emit_heartbeats_s=None, emit_offset_syncs=False, on=Policies(refused="stop"))
    assert [topic for _, topic, _ in names(without)] == [
        *("mm2-offsets.us.internal", "mm2-offset-map.us.internal", "mm2-heliograph-incidents.us.internal"),
        NEW_COPIES,
    ]
    beside = replace(FLOW, copies=False, emit_heartbeats_s=None)  # a checkpoint connector
    assert [topic for _, topic, _ in names(beside)][-1] == "us.checkpoints.internal"
    on_target = replace(FLOW, offset_syncs_location="target")
    assert ("eu", "mm2-offset-syncs.us.internal", "offset-syncs.topic.replication.factor") in names(on_target)


def test_what_is_multiplexed_and_put_back() -> None:
    mux = Mux(("a",), "shared", "us", 4, ())
    bare = replace(FLOW, emit_heartbeats_s=None, emit_offset_syncs=False, positions_topic="mm2-mux.us.eu.internal")
    assert [topic for _, topic, _ in names(replace(bare, mux=mux))] == [
        *("mm2-mux.us.eu.internal", "mm2-heliograph-incidents.us.mux.internal"),
        *("mm2-heliograph-quarantine.us.mux.internal", NEW_COPIES),
    ]
    rules = (Demux("one", "", True, US, Factor(2)), Demux("two", "", True, US, Factor(1, "us->eu.rf", fixed=True)))
    put_back = [one.factor for one in needed_by(replace(bare, demux=rules)) if one.topic == NEW_COPIES]
    assert put_back == [Factor(2), Factor(1, "us->eu.rf", fixed=True)]


@pytest.mark.parametrize(
    ("factor", "has", "brokers", "short"),
    [
        (Factor(3), 0, 1, (0, 1)),  # would be created with one replica instead of three
        (Factor(3), 0, 2, (0, 2)),
        (Factor(3), 0, 3, None),
        (Factor(3), 0, 5, None),
        (Factor(2), 0, 1, (0, 1)),
        (Factor(1), 0, 1, None),
        (Factor(-1), 0, 1, None),  # the cluster's own default: its operators chose it
        (Factor(3), 1, 1, (1, 1)),  # was created with one
        (Factor(3), 1, 3, (1, 3)),  # and the cluster has grown since
        (Factor(3), 2, 2, (2, 2)),
        (Factor(3), 3, 1, None),  # the cluster has shrunk: nothing of ours to raise
        (Factor(2), 3, 3, None),
        (Factor(3, fixed=True), 0, 1, None),  # refused
        (Factor(3, fixed=True), 1, 3, (1, 3)),  # there from before the line was written
        (Factor(1, fixed=True), 1, 3, None),
    ],
)
def test_which_topics_have_fewer_than_wanted(
    factor: Factor, has: int, brokers: int, short: tuple[int, int] | None
) -> None:
    seen = Seen(dict.fromkeys(range(brokers), True), {"t": has} if has else {})
    found = shortfalls([Needed(EU, "t", factor), Needed(EU, "t", factor)], seen)
    assert [(one.has, one.possible) for one in found] == ([short] if short else [])


def test_a_broker_that_is_down_is_one_of_the_clusters() -> None:
    """Registered and fenced: a factor must not sink because a broker restarts."""
    seen = Seen({1: True, 2: False, 3: False}, {})
    assert shortfalls([Needed(EU, "t", DEFAULT)], seen) == []
    assert refusals([Needed(EU, "t", FIXED)], seen) == []


@pytest.mark.parametrize(
    ("factor", "there", "refused"),
    [
        (FIXED, False, True),
        (FIXED, True, False),  # nothing is to be created
        (Factor(2, "eu.rf", fixed=True), False, False),
        (Factor(-1, "eu.rf", fixed=True), False, False),
        (DEFAULT, False, False),
    ],
)
def test_a_factor_of_the_file_that_the_cluster_cannot_hold(factor: Factor, there: bool, refused: bool) -> None:
    seen = Seen({1: True, 2: True}, {"t": 1} if there else {})
    found = refusals(
        [Needed(EU, "t", factor), Needed(EU, "u", factor)] if not there else [Needed(EU, "t", factor)], seen
    )
    assert bool(found) is refused
    if refused:
        (text,) = found
        assert all(part in text for part in ("eu.rf = 3", "eu has 2 brokers", "t, u cannot be created", "Set it to 2"))


def test_copies_of_a_factor_that_cannot_be_held_are_refused_too() -> None:
    (text,) = refusals([Needed(EU, NEW_COPIES, replace(FIXED, key="us->eu.replication.factor"))], Seen({1: True}, {}))
    assert "us->eu.replication.factor = 3: eu has 1 broker, so new copies cannot be created" in text


def test_one_sentence_for_each_cluster_with_topics_keys_and_the_command() -> None:
    seen = Seen({1: True}, {})
    on_eu = [one for one in needed_by(FLOW) if one.cluster is EU]
    on_us = [one for one in needed_by(FLOW) if one.cluster is US]
    first, second = words([*shortfalls(on_eu, seen), *shortfalls(on_us, seen)])
    assert first.startswith("eu has 1 broker. Fewer replicas than wanted: mm2-offsets.us.internal, ")
    assert "1 replica instead of 3 (eu.offset.storage.replication.factor)" in first
    assert "new copies: 1 replica instead of 2 (replication.factor)" in first
    assert first.endswith("When eu has more brokers: heliograph replicas raise FILE --yes")
    assert "mm2-offset-syncs.eu.internal: 1 replica instead of 3" in second
    grown = shortfalls([Needed(EU, "t", DEFAULT)], Seen(dict.fromkeys(range(3), True), {"t": 1}))
    assert words(grown)[0].endswith("More are possible now: heliograph replicas raise FILE --yes")


def test_a_factor_is_fixed_where_the_file_sets_it_and_called_as_it_stands_there() -> None:
    flow = replace(FLOW, replication_factor=1, factors_set=((COPIES_FACTOR, "us->eu.replication.factor"),))
    assert flow.factor(COPIES_FACTOR) == Factor(1, "us->eu.replication.factor", fixed=True)
    assert flow.factor(STORAGE_FACTOR) == Factor(3, f"eu.{STORAGE_FACTOR}")
    assert replace(flow, label="a connector").factor(STORAGE_FACTOR).key == STORAGE_FACTOR
    assert [Factor(3).lowerable, Factor(-1).lowerable, FIXED.lowerable] == [True, False, False]

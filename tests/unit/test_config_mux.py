"""`mux.*` and `demux` in a file: the flows that follow, what is left of the pair's own, and what is refused."""

from __future__ import annotations

import pytest

from heliograph import policy
from heliograph.config.load import parse
from heliograph.config.model import Config
from heliograph.errors import ConfigError
from heliograph.types import MUX_HEADERS, Flow

BASE = """
clusters = spoke1, spoke2, hub
spoke1.bootstrap.servers = s1:9092
spoke2.bootstrap.servers = s2:9092
hub.bootstrap.servers = h:9092
spoke1->hub.enabled = true
"""


def config(*lines: str) -> Config:
    return parse((BASE + "\n".join(lines)).encode(), environment={})


def flows(*lines: str) -> dict[str, Flow]:
    return {flow.name: flow for flow in config(*lines).flows}


def problem(*lines: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(*lines)
    assert len(caught.value.problems) == 1, caught.value.problems
    return caught.value.problems[0]


CHOSEN = "spoke1->hub.mux.topics = topic, topic2"


def test_without_the_keys_nothing_follows() -> None:
    assert list(flows()) == ["spoke1->hub"]
    assert not any(flow.staged for flow in config().flows)


def test_straight_to_the_hub() -> None:
    found = flows(CHOSEN, "spoke1->hub.demux = original")
    assert list(found) == ["spoke1->hub", "spoke1->hub.mux", "hub->hub.demux"]
    mux = found["spoke1->hub.mux"].mux
    assert mux is not None
    assert (mux.topics, mux.topic, mux.identifier) == (("topic", "topic2"), "mux-replication_spoke1", "spoke1")
    assert (mux.partitions, mux.headers) == (4, MUX_HEADERS)
    assert (found["spoke1->hub.mux"].source.alias, found["spoke1->hub.mux"].target.alias) == ("spoke1", "hub")
    (back,) = found["hub->hub.demux"].demux
    assert (back.topic, back.prefix, back.keep_headers, back.spoke.alias) == (
        "mux-replication_spoke1",
        "",
        True,
        "spoke1",
    )


def test_what_travels_is_put_back_and_nothing_else_unless_it_is_said() -> None:
    (back,) = flows(CHOSEN, "spoke1->hub.demux = original")["hub->hub.demux"].demux
    assert back.topics == ("topic", "topic2")
    (back,) = flows(CHOSEN, "spoke1->hub.demux = original", "spoke1->hub.demux.topics = t.*")["hub->hub.demux"].demux
    assert back.topics == ("t.*",)
    assert "nothing is put back" in problem(CHOSEN, "spoke1->hub.demux.topics = t.*")
    assert "has no mux.topics" in problem("spoke1->hub.demux.topics = t.*")


def test_no_shared_topic_of_the_hub_is_a_target_whoever_puts_it_back() -> None:
    found = flows(
        *(CHOSEN, "spoke1->hub.demux = original", "spoke2->hub.enabled = true", "spoke2->hub.mux.topics = x"),
        *("spoke2->hub.mux.via = intermediate", "hub->spoke2.enabled = true", "hub->spoke2.mux.topics = y"),
        "hub->spoke2.mux.via = intermediate",
    )
    (back,) = found["hub->hub.demux"].demux
    assert back.shared == ("mux-replication_hub", "mux-replication_spoke1", "spoke2.mux-replication_spoke2")


def test_by_a_topic_on_the_spoke() -> None:
    found = flows(CHOSEN, "spoke1->hub.mux.via = intermediate", "spoke1->hub.demux = prefixed")
    assert list(found) == ["spoke1->hub", "spoke1->spoke1.mux", "hub->hub.demux"]
    link = found["spoke1->hub"]
    assert policy.should_replicate(link, "mux-replication_spoke1")
    assert link.awaits == ("mux-replication_spoke1",), "looked for soon again, until it is there"
    for stays in ("topic", "topic2", "nonreplicated"):
        assert not policy.should_replicate(link, stays)
    assert found["spoke1->spoke1.mux"].target.bootstrap == "s1:9092"
    (back,) = found["hub->hub.demux"].demux
    assert (back.topic, back.prefix) == ("spoke1.mux-replication_spoke1", "spoke1.")


def test_names_follow_the_identifier_and_the_policy() -> None:
    found = flows(
        CHOSEN,
        "spoke1->hub.mux.identifier = oslo",
        "spoke1->hub.mux.via = intermediate",
        "spoke1->hub.demux = original",
        "spoke1->hub.demux.headers = strip",
        "replication.policy.class = IdentityReplicationPolicy",
        "mux.partitions = 12",
        "mux.headers = MUX_SOURCE_OFFSET",
    )
    mux, (back,) = found["spoke1->spoke1.mux"].mux, found["hub->hub.demux"].demux
    assert mux is not None
    assert (mux.topic, mux.partitions) == ("mux-replication_oslo", 12)
    assert mux.headers == (*MUX_HEADERS[:2], "MUX_SOURCE_OFFSET")
    assert (back.topic, back.keep_headers) == ("mux-replication_oslo", False)


@pytest.mark.parametrize("via", ["straight", "intermediate"])
def test_what_else_is_copied_is_what_topics_says(via: str) -> None:
    alone = flows(CHOSEN, f"spoke1->hub.mux.via = {via}")["spoke1->hub"]
    beside = flows(CHOSEN, f"spoke1->hub.mux.via = {via}", "spoke1->hub.topics = top.*, other")["spoke1->hub"]
    assert not policy.should_replicate(alone, "other")
    assert policy.should_replicate(beside, "other")
    assert policy.should_replicate(beside, "top")
    assert not policy.should_replicate(beside, "topic")


def test_an_expression_that_fits_everything_does_not_hold_the_shared_topic_back() -> None:
    found = flows(
        "spoke1->hub.mux.topics = .*", "spoke1->hub.mux.via = intermediate", "spoke1->hub.mux.topic = all.of_it"
    )
    assert policy.should_replicate(found["spoke1->hub"], "all.of_it")
    assert not policy.should_replicate(found["spoke1->hub"], "allxof_it")


def test_one_flow_puts_back_for_all_spokes_of_a_hub() -> None:
    second = ("spoke2->hub.enabled = true", "spoke2->hub.mux.topics = topic", "spoke2->hub.demux = prefixed")
    found = flows(CHOSEN, "spoke1->hub.demux = original", *second)
    assert [rule.topic for rule in found["hub->hub.demux"].demux] == [
        "mux-replication_spoke1",
        "mux-replication_spoke2",
    ]
    assert len({flow.positions_topic for flow in found.values() if flow.staged}) == 3


def test_what_goes_on_beside_copying_is_the_pairs_own() -> None:
    for flow in flows(CHOSEN, "spoke1->hub.demux = original", "sync.group.offsets.enabled = true").values():
        if flow.staged:
            assert flow.emit_heartbeats_s is None
            assert flow.emit_checkpoints_s is None
            assert flow.sync_group_offsets_s is None
            assert flow.sync_topic_configs_s is None
            assert not flow.emit_offset_syncs
            assert policy.of(flow).is_internal(flow.positions_topic or "")


def test_served_clusters() -> None:
    whole = config(
        CHOSEN, "spoke1->hub.mux.via = intermediate", "spoke1->hub.demux = original", "emit.heartbeats.enabled = false"
    )
    assert [flow.name for flow in whole.serving(["spoke1"]).flows] == ["spoke1->spoke1.mux"]
    assert [flow.name for flow in whole.serving(["hub"]).flows] == ["spoke1->hub", "hub->hub.demux"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["spoke1->hub.mux.topics ="], "names no topic"),
        (["spoke1->hub.mux.topics = a(b"], "not a regular expression"),
        (["spoke1->hub.demux = original"], "this flow has no mux.topics"),
        (["spoke1->hub.mux.topic = x"], "this flow has no mux.topics"),
        ([CHOSEN, "spoke1->hub.mux.topic = topic2"], "topic2 is the shared topic itself"),
        ([CHOSEN, "spoke1->hub.mux.topic = a b"], "is no topic's name"),
        ([CHOSEN, "spoke1->hub.mux.topic = mm2-x.internal"], "is the name of an internal topic"),
        (
            [CHOSEN, "spoke1->hub.mux.identifier = Oslo, Norge"],
            "can be no topic's name: choose another, or set mux.topic",
        ),
        ([CHOSEN, "spoke1->hub.mux.partitions = 0"], "must be at least 1"),
        ([CHOSEN, "mux.headers = MUX_SOURCE_OFSET"], "did you mean MUX_SOURCE_OFFSET?"),
        ([CHOSEN, "spoke1->hub.mux.via = topic"], "must be straight or intermediate"),
        ([CHOSEN, "spoke1->hub.demux = yes"], "must be original or prefixed"),
        ([CHOSEN, "spoke1->hub.demux.headers = strip"], "nothing is put back: set demux"),
        ([CHOSEN, "spoke1->hub.demux = original", "spoke1->hub.demux.headers = drop"], "must be keep or strip"),
    ],
)
def test_what_is_refused_names_the_key_and_the_fix(lines: list[str], words: str) -> None:
    said = problem(*lines)
    assert words in said
    assert lines[-1].split(" = ")[0].split(" =")[0] in said


def test_two_flows_may_not_share_a_topic() -> None:
    more = (
        "spoke2->hub.enabled = true",
        "spoke2->hub.mux.topics = x",
        "spoke2->hub.mux.topic = mux-replication_spoke1",
    )
    said = problem(CHOSEN, *more)
    assert "is the shared topic of spoke1->hub too, on hub: give each its own" in said


def test_both_ways_with_the_same_topics_are_refused() -> None:
    back = ("hub->spoke1.enabled = true", "hub->spoke1.mux.topics = top.*", "hub->spoke1.demux = original")
    with pytest.raises(ConfigError) as caught:
        config(CHOSEN, "spoke1->hub.demux = original", *back)
    assert "spoke1->hub.demux = original and hub->spoke1.demux = original" in str(caught.value)
    assert config(CHOSEN, "spoke1->hub.demux = prefixed", *back)
    assert config(CHOSEN, "spoke1->hub.demux = original", back[0], back[1].replace("top.*", "else"), back[2])


def test_a_cluster_may_be_called_mux() -> None:
    text = BASE.replace("spoke1", "mux") + "mux.partitions = 7\nmux->hub.mux.topics = a\n"
    (flow,) = (one for one in parse(text.encode(), environment={}).flows if one.mux)
    assert (flow.name, flow.mux.partitions if flow.mux else 0) == ("mux->hub.mux", 7)


def test_records_that_would_go_round_are_refused() -> None:
    said = problem(
        CHOSEN,
        "spoke1->hub.demux = original",
        "hub->spoke1.enabled = true",
        "hub->spoke1.topics = elsewhere",
        "hub->spoke1.replication.policy.class = IdentityReplicationPolicy",
    )
    assert "round and round" in said
    assert "Set spoke1->hub.demux = prefixed" in said


def test_incidents_of_a_stage_are_its_own() -> None:
    found = flows(CHOSEN, "spoke1->hub.demux = original")
    topics = {name: policy.incidents_topic(policy.annals_of(flow)) for name, flow in found.items()}
    assert len(set(topics.values())) == 3
    assert all(policy.of(found["spoke1->hub"]).is_internal(topic) for topic in topics.values())

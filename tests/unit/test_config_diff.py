"""What an edited file changes: key by key, secrets masked; and what becomes of a flow for it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from heliograph.config.diff import differences
from heliograph.config.load import parse
from heliograph.flow import changes
from heliograph.flow.changes import Way, digest, way
from heliograph.types import Cap, Cluster, CountRule, Flow, Naming, Policies

BASE = """
clusters = us, eu
us.bootstrap.servers = a:1
eu.bootstrap.servers = b:1
us->eu.enabled = true
us->eu.topics = orders
"""
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="%s";'
FLOW = Flow(Cluster("us", {"bootstrap.servers": "a:1"}), Cluster("eu"))


def diff(old: str, new: str) -> dict[str, list[str]]:
    before, after = (parse(text.encode()) for text in (old, new))
    return {flow: [str(one) for one in found] for flow, found in differences(before, after).items()}


def test_the_same_file_differs_in_nothing_whatever_its_form() -> None:
    assert diff(BASE, BASE) == {}
    assert diff(BASE, BASE.replace(" = ", "=") + "# a comment\nus->eu.tasks.max.not = \n".replace("us->eu", "#")) == {}


def test_values_old_and_new() -> None:
    assert diff(BASE, BASE.replace("orders", "orders,bills")) == {"us->eu": ["topics: orders -> orders, bills"]}
    found = diff(BASE, BASE + "us->eu.on.refused = skip\nrefresh.topics.interval.seconds = 5\n")
    assert "on.refused: quarantine -> skip" in found["us->eu"]
    assert any(line.startswith("refresh.topics.interval.seconds: 600 -> 5") for line in found["us->eu"])


def test_a_secret_that_changed_is_named_and_not_shown() -> None:
    secure = BASE + "us.security.protocol = SASL_PLAINTEXT\nus.sasl.mechanism = PLAIN\nus.sasl.jaas.config = "
    found = diff(secure + JAAS % "one", secure + JAAS % "two")["us->eu"]
    assert found == ["source: sasl.jaas.config: *** -> *** (changed)"]
    added = "\n".join(diff(BASE, secure + JAAS % "hush")["us->eu"])
    assert "source: sasl.mechanism: (unset) -> PLAIN" in added
    assert "hush" not in added


def test_what_a_provider_answers_is_masked_and_its_change_is_named(tmp_path: Path) -> None:
    text = BASE.replace("= a:1", "= ${file:%s:address}").replace("= orders", "= ${file:%s:topics}")
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    text = f"config.providers = file\nconfig.providers.file.class = {provider}\n{text}"
    kept = tmp_path / "kept.properties"
    configs = []
    for address, topics in (("a:1", "orders"), ("c:1", "orders"), ("c:1", "bills")):
        kept.write_text(f"address={address}\ntopics={topics}\n")
        configs.append(parse((text % (kept, kept)).encode()))
    assert [str(one) for one in differences(configs[0], configs[1])["us->eu"]] == [
        "source: bootstrap.servers: *** -> *** (changed)"
    ]
    assert [str(one) for one in differences(configs[1], configs[2])["us->eu"]] == ["topics: *** -> *** (changed)"]


def test_flows_that_come_and_go_are_not_explained_by_keys() -> None:
    both = BASE + "eu->us.enabled = true\n"
    assert "eu->us" not in diff(BASE + "emit.heartbeats.enabled = false\n", both + "emit.heartbeats.enabled = false\n")


# ---- what becomes of the flow


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (FLOW, Way.SAME),
        (replace(FLOW, topics=("a",)), Way.ALIVE),
        (replace(FLOW, on=Policies(gap="stop")), Way.ALIVE),
        (replace(FLOW, tasks_max=3, emit_checkpoints_s=5.0), Way.ALIVE),
        (replace(FLOW, caps=(Cap(1_000_000),), target_partitions=(CountRule(3),)), Way.ALIVE),
        (replace(FLOW, source=Cluster("us", {"bootstrap.servers": "c:1"})), Way.ANEW),
        (replace(FLOW, naming=Naming(separator="_")), Way.ANEW),
        (replace(FLOW, topics=("a",), positions_topic="p"), Way.ANEW),
    ],
)
def test_the_way_of_a_change(new: Flow, expected: Way) -> None:
    assert way(FLOW, new) is expected


def test_every_field_of_a_flow_has_its_way() -> None:
    named = changes.ANEW | changes.ALIVE | changes.HOW
    assert named <= {one.name for one in fields(Flow)}
    assert changes.concerns_specialists(frozenset({"groups"}))
    assert changes.concerns_specialists(frozenset({"sync_topic_configs_s", "on"}))
    assert not changes.concerns_specialists(frozenset({"on", "topics", "tasks_max", "caps", "target_partitions"}))


def test_the_digest_is_of_what_is_done_and_not_of_how() -> None:
    same = [
        replace(FLOW, source=Cluster("us", {"bootstrap.servers": "other:1", "sasl.password": "x"})),
        replace(FLOW, tasks_max=7),
        replace(FLOW, admin_timeout_s=1.0),
    ]
    assert {digest(one) for one in same} == {digest(FLOW)}
    others = [
        replace(FLOW, topics=("orders",)),
        replace(FLOW, on=Policies(gap="stop")),
        replace(FLOW, naming=Naming(separator="_")),
        replace(FLOW, emit_checkpoints_s=5.0),
        Flow(Cluster("ap"), Cluster("eu")),
    ]
    assert len({digest(one) for one in [FLOW, *others]}) == 1 + len(others)

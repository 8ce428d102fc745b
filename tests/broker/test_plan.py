"""`heliograph plan`: it predicts exactly what `run` then makes, writes nothing, and afterwards says nothing to do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from heliograph.cli.main import run
from heliograph.config.load import load
from heliograph.embedded import Kafka, mm2_properties, running
from tests.broker.engine import Engine, topics_of
from tests.broker.processes import Run, write_file
from tests.kit import Record, alter_topic, create_topic, own_settings, produce, wait_until

Plan = Callable[..., tuple[int, dict[str, Any]]]
FLOW = "west->east"
NO_HEARTBEATS = {"emit.heartbeats.enabled": "false", "heartbeats.replication.enabled": "false"}  # of tests before


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Kafka, Kafka]]:
    """Fresh clusters: what others left behind would be planned too."""
    config = {"auto.create.topics.enable": "false"}
    with running(Kafka("west", config=config), Kafka("east", config=config)) as (west, east):
        yield west, east


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Plan:
    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run(["plan", *arguments, "--json"])
        said = capsys.readouterr()
        assert said.out, said.err
        return code, json.loads(said.out)

    return call


def deeds(document: dict[str, Any], what: str) -> list[dict[str, Any]]:
    return [deed for flow in document["flows"].values() for deed in flow["deeds"] if deed["what"] == what]


def shapes(kafka: Kafka) -> dict[str, int]:
    """Topic -> its partitions."""
    topics = AdminClient(kafka.confluent()).list_topics(timeout=10).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")}


def test_it_predicts_exactly_what_run_makes(pair: tuple[Kafka, Kafka], plan: Plan, tmp_path: Path) -> None:
    west, east = pair
    create_topic(west.confluent(), "orders", 3, config={"cleanup.policy": "compact", "retention.ms": "86400000"})
    create_topic(west.confluent(), "payments", 4)
    create_topic(west.confluent(), "left-out", 1)
    create_topic(east.confluent(), "west.payments", 2, config={"retention.ms": "1000"})  # short, and set otherwise
    produce(west.confluent(), "orders", [Record(b"%d" % n, b"v" * 100, partition=n % 3) for n in range(3000)])
    properties = mm2_properties(west.cluster(), east.cluster(), topics="orders, payments, absent")
    properties |= {"refresh.topics.interval.seconds": "1", f"{FLOW}.start": "payments=latest, earliest"}
    file = write_file(tmp_path / "mm2.properties", properties)
    before = shapes(west), shapes(east)

    code, first = plan(str(file))
    assert code == 3
    assert (shapes(west), shapes(east)) == before  # it wrote nothing
    made = {(deed["cluster"], deed["topic"]): deed for deed in deeds(first, "create topic")}
    assert ("east", "west.orders") in made
    assert ("east", "west.heartbeats") in made  # of the heartbeats that the other pair would write
    (grown,) = deeds(first, "add partitions")
    assert (grown["topic"], grown["partitions_now"], grown["partitions"]) == ("west.payments", 2, 4)
    (altered,) = deeds(first, "alter settings")
    assert (altered["topic"], altered["settings"]) == ("west.payments", {"retention.ms": None})
    copies = {copy["topic"]: copy for copy in first["flows"][FLOW]["copies"]}
    assert (copies["orders"]["records"], copies["payments"]["records"]) == (3000, 0)
    assert copies["orders"]["bytes"] > 3000 * 100 / 3  # incompressible it is not; but it was measured
    assert copies["orders"]["measured"] == "by the size of the logs"
    begins = {(one["topic"], one["why"]) for one in first["flows"][FLOW]["begins"]}
    assert begins == {("orders", "earliest"), ("payments", "latest"), ("heartbeats", "earliest")}

    with Run(file, tmp_path / "run") as process:
        predicted = {name for _, name in made}
        process.wait(lambda: predicted <= {*shapes(west), *shapes(east)}, what=f"{predicted}")
        process.wait(lambda: (process.status(FLOW).get("records") or 0) >= 3000, what="records copied")
        process.wait(lambda: shapes(east).get("west.payments") == 4, what="the grown topic")
        process.wait(lambda: "retention.ms" not in own_settings(east.confluent(), "west.payments"), what="the settings")
        process.wait(lambda: process.status(FLOW).get("partitions") == 8, what="all partitions begun")
        assert process.stop() == 0
    for kafka, was in ((west, before[0]), (east, before[1])):
        new = {name: count for name, count in shapes(kafka).items() if name not in was}
        assert new == {name: deed["partitions"] for (alias, name), deed in made.items() if alias == kafka.name}
        for name in new:
            assert own_settings(kafka.confluent(), name) == made[kafka.name, name]["settings"], name

    code, second = plan(str(file))
    assert (code, second["changes"]) == (0, False)
    assert [flow["deeds"] + flow["begins"] for flow in second["flows"].values()] == [[], []]
    assert second["missing"] == []

    # A copy that somebody deleted stands still, unless the file says otherwise.
    admin = AdminClient(east.confluent())
    admin.delete_topics(["west.orders"])["west.orders"].result(30)
    wait_until(lambda: "west.orders" not in shapes(east), what="its end")
    code, third = plan(str(file))
    (parked,) = third["flows"][FLOW]["parked"]
    assert (code, deeds(third, "create topic")) == (0, [])
    assert "west.orders was deleted from east" in parked["reason"]
    code, fourth = plan(str(write_file(file, properties | {"on.target.lost": "restart"})))
    (made_anew,) = deeds(fourth, "create topic")
    assert (code, made_anew["topic"]) == (3, "west.orders")
    begins = {(one["topic"], one["partition"], one["offset"]) for one in fourth["flows"][FLOW]["begins"]}
    assert begins == {("orders", partition, 0) for partition in range(3)}
    assert {copy["topic"]: copy["records"] for copy in fourth["flows"][FLOW]["copies"]}["orders"] == 3000
    assert "west.orders" not in shapes(east)


def test_a_hub_is_planned_and_shown_as_it_then_is(
    pair: tuple[Kafka, Kafka], plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    west, east = pair
    create_topic(west.confluent(), "calls", 3, config={"retention.ms": "86400000"})
    produce(west.confluent(), "calls", [Record(None, b"%d" % n, partition=n % 3) for n in range(300)])
    properties = mm2_properties(west.cluster(), east.cluster(), topics="none-is-called-so") | NO_HEARTBEATS
    properties |= {f"{FLOW}.mux.topics": "calls", f"{FLOW}.mux.topic": "together", f"{FLOW}.demux": "prefixed"}
    file = write_file(tmp_path / "mm2.properties", properties)
    mux, demux = f"{FLOW}.mux", "east->east.demux"
    before = shapes(west), shapes(east)

    code, first = plan(str(file))
    assert (code, shapes(west), shapes(east)) == (3, *before)
    made = {deed["topic"]: deed for deed in deeds(first, "create topic")}
    assert {"together", "west.calls"} <= made.keys()
    assert (made["west.calls"]["partitions"], made["west.calls"]["settings"]) == (3, {"retention.ms": "86400000"})
    assert {copy["topic"]: copy["records"] for copy in first["flows"][mux]["copies"]} == {"calls": 300}
    assert len(first["flows"][mux]["begins"]) == 3
    assert len(first["flows"][demux]["begins"]) == 4
    assert not first["flows"][demux]["parked"], "the shared topic would be there by then"

    with Run(file, tmp_path / "run") as process:
        process.wait(lambda: (process.status(demux).get("records") or 0) >= 300, what="records put back")
        assert process.stop() == 0
    new = {name: count for name, count in shapes(east).items() if name not in before[1]}
    assert new == {name: deed["partitions"] for name, deed in made.items()}
    code, second = plan(str(file))
    assert (code, second["changes"]) == (0, False), second
    alter_topic(west.confluent(), "calls", {"retention.ms": "3600000"})  # shorter: refused, and said
    code, shorter = plan(str(file))
    assert (code, deeds(shorter, "alter settings")) == (0, [])
    (note,) = [one for one in shorter["flows"][demux]["notes"] if one.startswith("west.calls")]
    assert "retention.ms = 3600000 instead of 86400000" in note
    assert f"{FLOW}.sync.topic.configs.shorten.retention = true" in note
    alter_topic(west.confluent(), "calls", {"retention.ms": "172800000"})
    code, third = plan(str(file))
    (altered,) = deeds(third, "alter settings")
    assert (code, altered["topic"], altered["settings"]) == (3, "west.calls", {"retention.ms": "172800000"})

    capsys.readouterr()
    assert run(["offsets", "list", str(file), "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    stands = {name: [(one["topic"], one["lag"]) for one in listed[name]["partitions"]] for name in (mux, demux)}
    assert stands == {mux: [("calls", 0)] * 3, demux: [("together", 0)] * 4}
    assert {one["remote_topic"] for one in listed[mux]["partitions"]} == {"together"}
    assert sum(one["next_offset"] for one in listed[demux]["partitions"]) == 300
    assert run(["offsets", "set", str(file), mux, "calls", "--to", "earliest"]) == 2
    assert "multiplexes or puts back" in capsys.readouterr().err


def test_topics_that_vanish_between_plan_and_run(pair: tuple[Kafka, Kafka], plan: Plan, tmp_path: Path) -> None:
    west, east = pair
    for topic in ("kept", "vanishing"):
        create_topic(west.confluent(), topic, 2)
    properties = mm2_properties(west.cluster("left"), east.cluster("right"), topics="kept, vanishing")
    properties |= NO_HEARTBEATS
    file = write_file(tmp_path / "mm2.properties", properties)
    code, first = plan(str(file), "left->right")
    assert code == 3
    assert {"left.kept", "left.vanishing"} <= {deed["topic"] for deed in deeds(first, "create topic")}
    admin = AdminClient(west.confluent())  # must live until it is done
    admin.delete_topics(["vanishing"])["vanishing"].result(30)
    produce(west.confluent(), "kept", [Record(b"k", b"v") for _ in range(10)])
    with Engine(load(file).flows[0]) as engine:
        engine.wait_copied("kept")
        assert engine.status().parked == ()
    assert "left.kept" in topics_of(east.confluent())
    assert "left.vanishing" not in topics_of(east.confluent())


def test_bytes_and_time_are_measured_or_reckoned(pair: tuple[Kafka, Kafka], plan: Plan, tmp_path: Path) -> None:
    west, east = pair
    create_topic(west.confluent(), "bulk", 1)
    produce(west.confluent(), "bulk", [Record(b"k", os.urandom(100_000)) for _ in range(80)])
    properties = mm2_properties(west.cluster("a"), east.cluster("b"), topics="bulk") | NO_HEARTBEATS
    file = write_file(tmp_path / "mm2.properties", properties)
    _, found = plan(str(file), "a->b")
    measured = found["flows"]["a->b"]["total"]
    assert measured["records"] == 80
    assert 8_000_000 < measured["bytes"] < 8_100_000
    assert measured["rate"] == "measured by reading from the source"
    assert measured["bytes_per_second"] > 1_000_000
    _, found = plan(str(file), "a->b", "--rate", "2")
    given = found["flows"]["a->b"]["total"]
    assert (given["rate"], given["seconds"]) == ("given", round(measured["bytes"] / 2e6, 1))


def test_permissions_to_add_and_permissions_that_lack(
    guarded_pair: tuple[Kafka, Kafka], plan: Plan, tmp_path: Path, topic_name: str
) -> None:
    """By an admin: what would be added on the copy. By alice, who may read the source and nothing else: what she lacks,
    and nothing of it was tried."""
    west, east = guarded_pair
    before = topics_of(east.confluent())
    create_topic(west.confluent(), topic_name, 1)
    rules = [AclOperation.READ, AclOperation.DESCRIBE_CONFIGS, AclOperation.WRITE]
    kind, literal, allowed = ResourceType.TOPIC, ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    admin = AdminClient(west.confluent())
    bindings = [AclBinding(kind, topic_name, literal, "User:alice", "*", rule, allowed) for rule in rules]
    # Of bob, whom a denial keeps out on the source: withheld.
    bindings.append(AclBinding(kind, topic_name, literal, "User:bob", "*", AclOperation.READ, allowed))
    prefixed, denied = ResourcePatternType.PREFIXED, AclPermissionType.DENY
    bindings.append(AclBinding(kind, topic_name, prefixed, "User:bob", "*", AclOperation.READ, denied))
    for future in admin.create_acls(bindings).values():
        future.result(30)
    file = tmp_path / "mm2.properties"
    write_file(file, mm2_properties(west.cluster("one"), east.cluster("two"), topics=topic_name) | NO_HEARTBEATS)
    code, found = plan(str(file), "one->two")
    assert (code, found["missing"]) == (3, [])
    assert {deed["acl"] for deed in deeds(found, "add permission")} == {
        f"ALLOW READ on one.{topic_name} to User:alice",
        f"ALLOW DESCRIBE_CONFIGS on one.{topic_name} to User:alice",
    }
    (note,) = found["flows"]["one->two"]["notes"]
    assert f"permission withheld: ALLOW READ on one.{topic_name} to User:bob" in note
    assert f"DENY READ on PREFIXED {topic_name} to User:bob" in note
    hers = west.cluster("one", user="alice"), east.cluster("two", user="alice")
    write_file(file, mm2_properties(*hers, topics=topic_name) | NO_HEARTBEATS)
    code, found = plan(str(file), "one->two")
    assert code == 2
    lacking = " ".join(finding["detail"] for finding in found["missing"])
    assert f"one.{topic_name}" in lacking
    assert "mm2-offsets.one.internal" in lacking
    assert any("User:alice" in finding["fix"] for finding in found["missing"])
    assert topics_of(east.confluent()) == before


def test_what_is_in_the_way_is_code_2(pair: tuple[Kafka, Kafka], plan: Plan, tmp_path: Path) -> None:
    west, east = pair
    create_topic(west.confluent(), "wide", 1)
    properties = mm2_properties(west.cluster("one"), east.cluster("two"), topics="wide")
    properties |= {"replication.factor": "5", "one->two.start": "wide:0=offset:7"} | NO_HEARTBEATS
    file = write_file(tmp_path / "mm2.properties", properties)
    before = shapes(east)
    code, found = plan(str(file), "one->two")
    assert code == 2
    (parked,) = found["flows"]["one->two"]["parked"]
    assert "one.wide cannot be created" in parked["reason"]
    assert any("INVALID_REPLICATION_FACTOR" in finding["detail"] for finding in found["missing"])
    assert shapes(east) == before
    properties["replication.factor"] = "1"
    code, found = plan(str(write_file(file, properties)), "one->two")
    (parked,) = found["flows"]["one->two"]["parked"]
    assert "(0 to 0 are there)" in parked["reason"]

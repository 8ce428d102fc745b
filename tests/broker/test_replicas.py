"""Replicas on a cluster of three brokers: one that is down lowers no factor; what was created with fewer is raised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from heliograph.cli.main import run as heliograph
from heliograph.embedded import Kafka
from heliograph.wire import Client, NewTopic
from tests.kit import SOON_BACK, create_topic, wait_until

OWN = ("mm2-offsets.us.internal", "heartbeats", "us.checkpoints.internal")


@pytest.fixture(scope="module")
def three() -> Iterator[Kafka]:
    config = {"auto.create.topics.enable": "false", "min.insync.replicas": "2", **SOON_BACK}
    with Kafka("three", brokers=3, config=config) as kafka:
        yield kafka


def replicas(kafka: Kafka, topic: str) -> set[int]:
    found = AdminClient({**kafka.confluent(), "log_level": "0"}).list_topics(topic, timeout=30).topics[topic]
    return {len(part.replicas) for part in found.partitions.values()}


def insync(kafka: Kafka, topic: str) -> str:
    admin = AdminClient(kafka.confluent())
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return str(admin.describe_configs([resource])[resource].result(30)["min.insync.replicas"].value)


def test_topics_that_were_created_on_one_broker_are_raised(
    three: Kafka, primary: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are after the cluster has grown. Those with as many as they should have are left alone."""
    for topic in OWN:
        create_topic(three.confluent(), topic, 3, config={"min.insync.replicas": "1"})
    create_topic(three.confluent(), "us.orders", 2)
    file = tmp_path / "mm2.properties"
    lines = [f"us.bootstrap.servers = {primary.bootstrap}", f"eu.bootstrap.servers = {three.bootstrap}"]
    file.write_text("\n".join(["clusters = us, eu", *lines, "us->eu.enabled = true", "topics = orders"]) + "\n")
    assert heliograph(["doctor", str(file), "-o", "json"]) == 0
    checks = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["flow us->eu: replicas"]["ok"] is None
    assert "More are possible now: heliograph replicas raise FILE" in checks["flow us->eu: replicas"]["detail"]
    assert heliograph(["replicas", "list", str(file), "--json"]) == 0
    listed = {one["topic"]: one for one in json.loads(capsys.readouterr().out)}
    assert {one: (listed[one]["replicas"], listed[one]["wanted"]) for one in OWN} == dict.fromkeys(OWN, (1, 3))
    assert heliograph(["replicas", "raise", str(file)]) == 0  # says what it would do
    assert {topic: replicas(three, topic) for topic in OWN} == {key: {1} for key in OWN}
    assert heliograph(["replicas", "raise", str(file), "--yes"]) == 0
    said = capsys.readouterr().out
    assert all(f"eu: {topic}: 1 become 3 replicas, 3 partitions" in said for topic in OWN)
    assert "eu: all 9 partitions have their new replicas" in said
    assert {topic: replicas(three, topic) for topic in OWN} == {key: {3} for key in OWN}
    for topic in OWN:
        wait_until(lambda t=topic: insync(three, t) == "2", what=f"min.insync.replicas of {topic}")  # type: ignore[misc]
    assert replicas(three, "us.orders") == {1}
    assert heliograph(["replicas", "raise", str(file), "--yes"]) == 0
    assert "eu: nothing to raise now" in capsys.readouterr().out


def test_a_broker_that_restarts_lowers_no_factor(three: Kafka) -> None:
    with Client(three.cluster()) as client:
        assert client.registered_brokers(3) == {1: True, 2: True, 3: True}
        three.brokers[2].kill()
        wait_until(lambda: client.registered_brokers(3).get(3) is False, what="the broker to be fenced")
        assert set(client.registered_brokers(0)) == {1, 2, 3}  # named as fenced, not only by replicas
        assert client.create_topics([NewTopic("late", 4, 3, lowerable=True)]) == {"late": None}
        found = client.metadata(["late"]).topics["late"]
        assert {len(part.replicas) for part in found.partitions.values()} == {3}
        (error,) = client.create_topics([NewTopic("more", 1, 4)]).values()
        assert error is not None
        assert not error.retriable
        assert client.create_topics([NewTopic("most", 1, 4, lowerable=True)]) == {"most": None}
        three.brokers[2].start()
    assert replicas(three, "most") == {3}

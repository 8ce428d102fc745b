"""`heliograph doctor FILE` against real clusters: what it finds, what it says to do, and that it writes nothing."""

from __future__ import annotations

import json
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
from heliograph.embedded import Kafka
from heliograph.types import Cluster
from tests.kit import create_topic


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    """A cluster that asks who you are and what you may: `alice` may nothing."""
    with Kafka("guarded", security=("SASL_PLAINTEXT", "SSL"), acls=True) as kafka:
        yield kafka


def properties(alias: str, cluster: Cluster) -> str:
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in cluster.properties.items()}
    return "".join(f"{alias}.{key} = {value}\n" for key, value in escaped.items())


def write(folder: Path, us: Cluster, eu: Cluster, *lines: str) -> str:
    file = folder / "mm2.properties"
    flow = ("us->eu.enabled = true", "replication.factor = 1", "offset.storage.replication.factor = 1")
    text = "clusters = us, eu\n" + properties("us", us) + properties("eu", eu) + "\n".join((*flow, *lines))
    file.write_text(text)
    return str(file)


def doctor(file: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    code = run(["doctor", file, "-o", "json"])
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is (code == 0)
    return code, {check["name"]: check for check in said["checks"]}


def topics_of(kafka: Kafka) -> set[str]:
    return set(AdminClient(dict(kafka.confluent())).list_topics(timeout=10).topics)


def test_all_is_well_and_nothing_is_written(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(primary.confluent(), topic_name, 3)
    before = topics_of(primary), topics_of(backup)
    code, checks = doctor(write(tmp_path, primary.cluster(), backup.cluster(), f"topics = {topic_name}"), capsys)
    assert code == 0, checks
    assert primary.cluster_id in checks["cluster us (source)"]["detail"]
    assert topic_name in checks["flow us->eu: source topics"]["detail"]
    assert "missing may be created" in checks["flow us->eu: target topics"]["detail"]
    assert before == (topics_of(primary), topics_of(backup))


def test_two_aliases_of_one_cluster(primary: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, checks = doctor(write(tmp_path, primary.cluster(), primary.cluster()), capsys)
    assert code == 2
    assert "eu and us are one cluster" in checks["cluster ids"]["detail"]
    assert "bootstrap.servers" in checks["cluster ids"]["fix"]


def test_a_cluster_that_is_not_there(
    primary: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.cli.clinic.TIMEOUT_S", 1.0)
    nowhere = Cluster("eu", {"bootstrap.servers": "127.0.0.1:1"})
    code, checks = doctor(write(tmp_path, primary.cluster(), nowhere), capsys)
    assert code == 2
    assert checks["cluster us (source)"]["ok"] is True
    assert "127.0.0.1:1" in checks["cluster eu (target)"]["detail"]


def test_a_wrong_password(primary: Kafka, guarded: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = guarded.cluster(user="alice", password="not hers")
    code, checks = doctor(write(tmp_path, primary.cluster(), wrong), capsys)
    assert code == 2
    assert checks["cluster eu (target)"]["detail"].startswith("LOGIN_FAILED")
    assert "not hers" not in str(checks)


def test_a_certificate_that_is_not_trusted(
    primary: Kafka, guarded: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = guarded.cluster(security="SSL")
    bad = {key: value for key, value in good.properties.items() if "truststore" not in key}
    code, checks = doctor(write(tmp_path, primary.cluster(), Cluster("eu", bad)), capsys)
    assert code == 2
    assert checks["cluster eu (target)"]["detail"].startswith("UNTRUSTED")


def test_no_permission_to_write(
    primary: Kafka, guarded: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(primary.confluent(), topic_name)
    alice = guarded.cluster(user="alice")
    code, checks = doctor(write(tmp_path, primary.cluster(), alice, f"topics = {topic_name}"), capsys)
    assert code == 2
    assert checks["cluster eu (target)"]["ok"] is True
    target = checks["flow us->eu: target topics"]
    assert f"us.{topic_name}" in target["detail"]
    assert "AUTHORIZATION_FAILED" in target["detail"]
    assert "CREATE" in target["fix"]


def test_no_permission_to_read(
    backup: Kafka,
    guarded: Kafka,
    new_topic: Callable[[], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    described, hidden = new_topic(), new_topic()
    for topic in (described, hidden):
        create_topic(guarded.confluent(), topic)
    admin = AdminClient(dict(guarded.confluent()))
    may_describe = AclBinding(
        ResourceType.TOPIC, described, ResourcePatternType.LITERAL, "User:alice", "*",
        AclOperation.DESCRIBE, AclPermissionType.ALLOW,
    )  # fmt: skip
    for created in admin.create_acls([may_describe]).values():
        created.result(10)
    alice = guarded.cluster(user="alice")
    code, checks = doctor(write(tmp_path, alice, backup.cluster(), f"topics = {described}, {hidden}"), capsys)
    assert code == 2
    source = checks["flow us->eu: source topics"]
    assert described in source["detail"]
    assert hidden in source["detail"]
    assert "READ" in source["fix"]


def test_a_copy_with_fewer_partitions(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(primary.confluent(), topic_name, 3)
    create_topic(backup.confluent(), f"us.{topic_name}", 1)
    code, checks = doctor(write(tmp_path, primary.cluster(), backup.cluster(), f"topics = {topic_name}"), capsys)
    assert code == 0
    assert f"us.{topic_name} has 1 of 3: the missing ones are added" in checks["flow us->eu: partitions"]["detail"]


def test_a_replication_factor_that_the_target_cannot_give(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(primary.confluent(), topic_name)
    lines = (f"topics = {topic_name}", "us->eu.replication.factor = 3")
    code, checks = doctor(write(tmp_path, primary.cluster(), backup.cluster(), *lines), capsys)
    assert code == 2
    assert "INVALID_REPLICATION_FACTOR" in checks["flow us->eu: target topics"]["detail"]


def test_a_bad_file_is_one_finding_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = us, eu\ntasks.max = x\n")
    assert run(["doctor", str(file)]) == 2
    said = capsys.readouterr().out
    assert said.count("✗ file:") == 3

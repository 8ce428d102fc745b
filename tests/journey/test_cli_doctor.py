"""`heliograph doctor FILE` against real clusters: what it finds, what it says to do, and that it writes nothing."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import pairwise
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
from heliograph.embedded.mirrormaker import SINGLE_COPIES
from heliograph.types import Cluster
from tests.kit import create_topic


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    """A cluster that asks who you are and what you may: `alice` may nothing."""
    with Kafka("guarded", security=("SASL_PLAINTEXT", "SSL"), acls=True) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Kafka]:
    """Another such cluster."""
    with Kafka("elsewhere", security=("SASL_PLAINTEXT",), acls=True) as kafka:
        yield kafka


def allow(kafka: Kafka, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    """To alice."""
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    admin = AdminClient(dict(kafka.confluent()))
    for created in admin.create_acls(bindings).values():
        created.result(10)


def properties(alias: str, cluster: Cluster) -> str:
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in cluster.properties.items()}
    return "".join(f"{alias}.{key} = {value}\n" for key, value in escaped.items())


def write(folder: Path, us: Cluster, eu: Cluster, *lines: str) -> str:
    file = folder / "mm2.properties"
    flow = ("us->eu.enabled = true", *(f"{key} = {value}" for key, value in SINGLE_COPIES.items()))
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


def test_what_is_multiplexed_and_put_back_is_asked_about_too(
    primary: Kafka, guarded: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alice may not write at the hub; the shared topic is not there yet."""
    create_topic(primary.confluent(), topic_name, 3)
    before = topics_of(primary), topics_of(guarded)
    muxed = (f"us->eu.mux.topics = {topic_name}, not-there-yet", "us->eu.demux = prefixed")
    code, checks = doctor(write(tmp_path, primary.cluster(), guarded.cluster(user="alice"), *muxed), capsys)
    assert code == 2
    assert checks["flow eu->eu.demux: records of us"]["ok"] is None
    assert "mux-replication_us" in checks["flow eu->eu.demux: records of us"]["detail"]
    assert f"us.{topic_name}" in checks["flow eu->eu.demux: target topics"]["detail"]
    settings = "flow eu->eu.demux: settings of us's topics"
    assert checks[f"{settings} in us"]["ok"] is True
    assert "AlterConfigs" in checks[f"{settings} in eu"]["detail"]
    assert f"us.{topic_name}" in checks[f"{settings} in eu"]["fix"]
    assert "us->eu.sync.topic.configs.enabled = false" in checks[f"{settings} in eu"]["fix"]
    assert "mux-replication_us" in checks["flow us->eu.mux: target topics"]["detail"]
    assert "kafka-acls" in checks["flow us->eu.mux: target topics"]["fix"]
    assert before == (topics_of(primary), topics_of(guarded))


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
    assert code == 75
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
    allow(guarded, ResourceType.TOPIC, described, AclOperation.DESCRIBE)
    alice = guarded.cluster(user="alice")
    code, checks = doctor(write(tmp_path, alice, backup.cluster(), f"topics = {described}, {hidden}"), capsys)
    assert code == 2
    source = checks["flow us->eu: source topics"]
    assert described in source["detail"]
    assert hidden in source["detail"]
    assert "READ" in source["fix"]


FEATURES = ("sync.group.offsets.enabled = true", "emit.offset-syncs.enabled = true", "groups = billing")


def test_what_the_features_may_not_do_and_the_lines_that_allow_it(
    guarded: Kafka, elsewhere: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alice may copy, and nothing beside it; then each line that doctor gives is followed, and all is well."""
    copy, flow = f"us.{topic_name}", "flow us->eu"
    for kafka, name in ((guarded, topic_name), (elsewhere, copy)):
        create_topic(kafka.confluent(), name)
    allow(guarded, ResourceType.TOPIC, topic_name, AclOperation.READ)
    for name in (copy, "mm2-offsets.us.internal"):
        allow(elsewhere, ResourceType.TOPIC, name, AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE)
    file = write(
        tmp_path, guarded.cluster(user="alice"), elsewhere.cluster(user="alice"), f"topics = {topic_name}", *FEATURES
    )
    before = topics_of(guarded), topics_of(elsewhere)
    code, checks = doctor(file, capsys)
    assert code == 2
    assert checks[f"{flow}: source topics"]["ok"] is checks[f"{flow}: target topics"]["ok"] is True
    lacking = {
        f"{flow}: topic settings in us": ("DescribeConfigs", f"--topic {topic_name}"),
        f"{flow}: topic settings in eu": ("DescribeConfigs, AlterConfigs", f"--topic {copy}"),
        f"{flow}: offset syncs": ("Write, Create", "--topic mm2-offset-syncs.eu.internal"),
        f"{flow}: checkpoints": ("Read, Write, Create", "--topic us.checkpoints.internal"),
        f"{flow}: groups in us": ("Describe", "--group billing"),
        f"{flow}: group offsets": ("Read", "--group billing"),
        f"{flow}: heartbeats": ("Write, Create", "--topic heartbeats"),
        f"{flow}: topic ACLs in us": ("Describe", "--cluster"),
        f"{flow}: topic ACLs in eu": ("Alter", "--cluster"),
        "flow eu->us: heartbeats": ("Write, Create", "--topic heartbeats"),
    }
    assert {name for name, check in checks.items() if check["ok"] is False} == set(lacking)
    for name, (operations, resource) in lacking.items():
        assert set(operations.split(", ")) <= set(re.findall(r"\w+", checks[name]["detail"])), name
        assert resource in checks[name]["fix"], name
    assert checks[f"{flow}: new partitions"]["ok"] is None  # it has enough of them today
    assert "--operation Alter --topic" in checks[f"{flow}: new partitions"]["fix"]
    for name in ("incidents", "quarantine"):  # nothing went wrong yet
        check = checks[f"{flow}: {name}"]
        assert check["ok"] is None
        assert "Read, Write, Create on topic" in check["detail"]
        assert "stops and waits" in check["detail"]
        assert f"--topic mm2-heliograph-{name}.us.internal" in check["fix"]
    assert "on.refused = stop" in checks[f"{flow}: quarantine"]["fix"]
    for check in checks.values():
        for line in re.findall(r"kafka-acls [^;]+", check["fix"]):
            follow(line, {kafka.bootstrap: kafka for kafka in (guarded, elsewhere)})
    code, checks = doctor(file, capsys)
    assert code == 0, {name: check for name, check in checks.items() if not check["ok"]}
    for name in ("new partitions", "incidents", "quarantine"):
        assert checks[f"{flow}: {name}"]["ok"] is True
    assert before == (topics_of(guarded), topics_of(elsewhere))


def test_what_is_switched_off_is_not_asked_about(
    guarded: Kafka, elsewhere: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    switches = ("emit.offset-syncs", "emit.checkpoints", "emit.heartbeats", "sync.topic.acls", "sync.topic.configs")
    off = [*(f"{switch}.enabled = false" for switch in switches), "on.refused = skip"]
    file = write(tmp_path, guarded.cluster(), elsewhere.cluster(), f"topics = {topic_name}", *off)
    code, checks = doctor(file, capsys)
    assert code == 0, checks
    asked = {name.removeprefix("flow us->eu: ") for name in checks if name.startswith("flow")}
    assert asked == {
        "source topics",
        "target topics",
        "partitions",
        "topic settings in us",
        "new partitions",
        "replicas",
        "incidents",
    }


def follow(line: str, clusters: dict[str, Kafka]) -> None:
    """What kafka-acls would do on this line, by confluent-kafka."""
    for command in line.split(" && "):
        words = shlex.split(command)
        assert words[words.index("--allow-principal") + 1] == "User:alice"
        kafka = clusters[words[words.index("--bootstrap-server") + 1]]
        pairs = list(pairwise(words))
        operations = [getattr(AclOperation, snake(word)) for option, word in pairs if option == "--operation"]
        for option, kind in (("--topic", ResourceType.TOPIC), ("--group", ResourceType.GROUP)):
            for name in [word for given, word in pairs if given == option]:
                allow(kafka, kind, name, *operations)
        if "--cluster" in words:
            allow(kafka, ResourceType.BROKER, "kafka-cluster", *operations)


def snake(word: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).upper()


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

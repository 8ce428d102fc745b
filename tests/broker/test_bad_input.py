"""What a user can get wrong, met as a user meets it: `heliograph run FILE` as a process.

Before anything is written: exit code 2 (75 where a cluster is away, see `test_waiting.py`), one message on stderr that
names the key or topic and the fix, and both clusters as they were. In a running flow: that topic or partition is parked
with its reason, and the others go on.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from heliograph.cli import main
from heliograph.embedded import Kafka
from heliograph.types import Cluster
from tests.broker.engine import assert_same, topics_of
from tests.broker.processes import Run, write_file
from tests.kit import Record, create_topic, end_offsets, produce, wait_until


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    """Logins, TLS and ACLs; `admin` may do everything, `alice` what she is allowed."""
    config = {"auto.create.topics.enable": "false"}
    with Kafka("guarded", security=("SASL_SSL",), acls=True, config=config) as kafka:
        yield kafka


def a_file(folder: Path, *flows: tuple[Cluster, Cluster], topics: str = ".*", **more: str) -> Path:
    """An mm2.properties of these flows."""
    clusters = {cluster.alias: cluster for flow in flows for cluster in flow}
    properties = {
        "clusters": ",".join(clusters),
        "topics": topics,
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        **{f"{one}.topic.replication.factor": "1" for one in ("offset-syncs", "checkpoints", "heartbeats")},
        "refresh.topics.interval.seconds": "1",
        "heartbeats.replication.enabled": "false",  # others leave heartbeats behind
    }
    for cluster in clusters.values():
        properties |= {f"{cluster.alias}.{key}": value for key, value in cluster.properties.items()}
    for source, target in flows:
        properties[f"{source.alias}->{target.alias}.enabled"] = "true"
    return write_file(folder / "mm2.properties", properties | {k.replace("_", "."): v for k, v in more.items()})


def refused(file: Path, *untouched: Kafka, within_s: float = 30, code: int = 2) -> str:
    """What a start says that must fail, and write nothing."""
    before = [topics_of(kafka.confluent()) for kafka in untouched]
    folder = file.with_name(f"run-{file.stem}")
    with Run(file, folder, "--wait", "0", verbose=False) as run:
        ended = run.wait_ended(100)
    said = run.said()
    print(f"{run.seconds:.1f} s\n{said}")  # pytest -s shows the words: they are part of what is tested
    assert ended == code, said
    assert said.count("error [") == 1
    assert said.startswith("error [")
    assert "Traceback" not in said
    assert [topics_of(kafka.confluent()) for kafka in untouched] == before
    assert run.seconds < within_s
    return said


def with_properties(cluster: Cluster, properties: Mapping[str, str]) -> Cluster:
    return Cluster(cluster.alias, {**cluster.properties, **properties})


# -------------------- before the start


def test_a_cluster_that_cannot_be_reached(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    """Nothing is written to the other clusters either, not even by flows that could start."""
    with socket.socket() as nobody:  # bound and not listening: refused for sure
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        lost = Cluster("lost", {"bootstrap.servers": address})
        good = (primary.cluster(), backup.cluster())
        said = refused(a_file(tmp_path, good, (primary.cluster(), lost)), primary, backup, code=75)
    assert "UNREACHABLE" in said
    assert "lost.bootstrap.servers" in said
    assert address in said


def test_a_wrong_password(primary: Kafka, backup: Kafka, guarded: Kafka, tmp_path: Path) -> None:
    mistaken = guarded.cluster(user="alice", password="guess")
    said = refused(a_file(tmp_path, (mistaken, backup.cluster())), guarded, backup)
    assert "LOGIN_FAILED" in said
    assert "guarded.sasl.jaas.config" in said
    assert "'alice'" in said
    assert "guess" not in said


def test_a_certificate_that_is_not_trusted(backup: Kafka, guarded: Kafka, tmp_path: Path) -> None:
    trusting = guarded.cluster()
    strict = Cluster("guarded", {k: v for k, v in trusting.properties.items() if not k.startswith("ssl.truststore")})
    said = refused(a_file(tmp_path, (strict, backup.cluster())), guarded, backup)
    assert "UNTRUSTED" in said
    assert "guarded.ssl.truststore.location" in said


def test_two_aliases_of_one_cluster(primary: Kafka, tmp_path: Path) -> None:
    said = refused(a_file(tmp_path, (primary.cluster("here"), primary.cluster("there"))), primary)
    assert "SAME_CLUSTER" in said
    assert "here.bootstrap.servers" in said
    assert "there.bootstrap.servers" in said


def test_a_flow_between_clusters_nobody_declared(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    file = a_file(tmp_path, (primary.cluster(), backup.cluster()), **{"primary->bakcup.enabled": "true"})
    said = refused(file, primary, backup)
    assert "CONFIG" in said
    assert "primary->bakcup.enabled" in said
    assert "backup" in said.replace("bakcup", "")


def test_a_malformed_file(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    """Every problem in the one message, each by its line."""
    file = a_file(tmp_path, (primary.cluster(), backup.cluster()), topics="orders(", tasks_max="many")
    with file.open("a") as more:
        more.write("backup.security.protocol = SASL_SLS\nname = \\u12x4\n")
    said = refused(file, primary, backup)
    for key in ("topics", "tasks.max", "backup.security.protocol"):
        assert key in said
    assert str(file) in said


def test_no_file_and_a_file_that_is_no_text(tmp_path: Path) -> None:
    assert "mm2.properties" in refused(tmp_path / "mm2.properties")
    (tmp_path / "noise.properties").write_bytes(os.urandom(4096))
    assert "noise.properties" in refused(tmp_path / "noise.properties")


def test_no_permission_for_the_positions(primary: Kafka, guarded: Kafka, tmp_path: Path, topic_name: str) -> None:
    """Without it nothing can be copied at all: the start says so."""
    create_topic(primary.confluent(), topic_name)
    file = a_file(tmp_path, (primary.cluster(), guarded.cluster(user="alice")), topics=topic_name)
    said = refused(file, primary, guarded, within_s=90)  # Spark is starting meanwhile
    assert "AUTHORIZATION_FAILED" in said
    assert "mm2-offsets.primary.internal" in said


# -------------------- while running


def allow(kafka: Kafka, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> None:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    bindings = [
        AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    admin = AdminClient(kafka.confluent())
    for future in admin.create_acls(bindings).values():
        future.result(30)


def parked(run: Run, flow: str) -> dict[tuple[str, int | None], str]:
    return {
        (one["topic"], one["partition"]): f"{one['reason']}. {one['fix']}" for one in run.status(flow).get("parked", [])
    }


def test_messages_looked_at_and_made_with_just_the_permissions_they_need(
    primary: Kafka, guarded: Kafka, tmp_path: Path, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`messages` with none, with DESCRIBE alone, with READ too; `events` without and with WRITE."""
    create_topic(guarded.confluent(), topic_name)
    produce(guarded.confluent(), topic_name, [Record(b"k", b"%d" % n) for n in range(5)])
    file = a_file(tmp_path, (primary.cluster(), guarded.cluster(user="alice")), topics=topic_name)

    def call(verb: str, code: int, *more: str) -> str:
        capsys.readouterr()
        found = main.run([verb, topic_name, str(file), "--cluster", "guarded", *more])
        said = capsys.readouterr()
        return said.out + said.err if found == code else ""

    def denied(verb: str) -> None:
        said = call(verb, 2)
        assert "TOPIC_AUTHORIZATION_FAILED (cluster guarded, topic " + topic_name in said
        assert "READ and DESCRIBE" in said

    denied("messages")
    allow(guarded, ResourceType.TOPIC, topic_name, AclOperation.DESCRIBE)
    wait_until(lambda: call("messages", 0, "--from", "end"), what="DESCRIBE")  # brokers hear of it a moment later
    denied("messages")
    allow(guarded, ResourceType.TOPIC, topic_name, AclOperation.READ)
    wait_until(lambda: call("messages", 0).count("\n") == 5, what="READ")
    assert "AUTHORIZATION_FAILED" in call("events", 2)
    assert end_offsets(guarded.confluent(), topic_name) == {0: 5}
    allow(guarded, ResourceType.TOPIC, topic_name, AclOperation.WRITE)
    wait_until(lambda: call("events", 0, "--count", "7"), what="WRITE")
    assert end_offsets(guarded.confluent(), topic_name) == {0: 12}


INTO, OUT_OF = "primary->guarded", "guarded->backup"


def test_no_permission_on_source_and_target_topics(
    primary: Kafka, guarded: Kafka, backup: Kafka, tmp_path: Path, new_topic: Callable[[], str]
) -> None:
    """Two flows of one process, both as alice: what she may not read, write or create is parked and the rest is copied;
    what she is allowed later is copied then."""
    read, copied = new_topic(), new_topic()
    seen = _some_are_hidden(guarded, read)
    kept = _some_may_not_be_copied(primary, guarded, copied)
    before = topics_of(guarded.confluent())
    alice = guarded.cluster(user="alice")
    topics = {f"{OUT_OF}.topics": f"{read}.*", f"{INTO}.topics": f"{copied}.*"}
    file = a_file(tmp_path, (primary.cluster(), alice), (alice, backup.cluster()), **topics)
    with Run(file, tmp_path / "run") as run:
        run.wait(lambda: (f"{read}-bad", 0) in parked(run, OUT_OF), what="the unreadable parked")
        reason = parked(run, OUT_OF)[f"{read}-bad", 0]
        run.wait(lambda: run.status(OUT_OF)["records"] == 100, what="the readable copied")
        assert list(parked(run, OUT_OF)) == [(f"{read}-bad", 0)]
        allow(guarded, ResourceType.TOPIC, f"{read}-bad", AclOperation.READ)
        run.wait(lambda: len(parked(run, INTO)) == 3, what="three parked")
        run.wait(lambda: run.status(INTO)["records"] == 100, what="the fourth copied")
        reasons = parked(run, INTO)
        run.wait(lambda: run.status(OUT_OF)["records"] == 200, what="the topic, allowed")
        run.wait(lambda: not parked(run, OUT_OF), what="nothing parked")
        run.stop()
    assert "TOPIC_AUTHORIZATION_FAILED" in reason
    assert "READ" in reason
    for name in seen:
        assert assert_same(guarded, backup, name, f"guarded.{name}") == {0: 100}
    assert set(reasons) == {(kept["unwritable"], 0), (kept["unreadable"], 0), (kept["uncreated"], None)}
    for word, partition, permission in (
        ("unwritable", 0, "WRITE"),
        ("unreadable", 0, "READ on"),
        ("uncreated", None, "CREATE"),
    ):
        assert f"primary.{kept[word]}" in reasons[kept[word], partition]
        assert permission in reasons[kept[word], partition]
    assert assert_same(primary, guarded, kept["good"], f"primary.{kept['good']}") == {0: 100}
    assert topics_of(guarded.confluent()) - before == {"mm2-offsets.primary.internal", f"primary.{kept['good']}"}
    for word in ("unwritable", "unreadable"):
        assert end_offsets(guarded.confluent(), f"primary.{kept[word]}") == {0: 0}


def _some_are_hidden(guarded: Kafka, prefix: str) -> list[str]:
    """Two topics that alice may see, one that she may read."""
    names = [f"{prefix}-good", f"{prefix}-bad"]
    for name in names:
        create_topic(guarded.confluent(), name)
        produce(guarded.confluent(), name, [Record(b"k%d" % n, b"v%d" % n) for n in range(100)])
    allow(guarded, ResourceType.TOPIC, names[0], AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)
    allow(guarded, ResourceType.TOPIC, names[1], AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    return names


def _some_may_not_be_copied(primary: Kafka, guarded: Kafka, prefix: str) -> dict[str, str]:
    """Four topics; alice may make and use the copy of one of them."""
    names = {word: f"{prefix}-{word}" for word in ("good", "unwritable", "unreadable", "uncreated")}
    for name in names.values():
        create_topic(primary.confluent(), name)
        produce(primary.confluent(), name, [Record(b"k%d" % n, b"v%d" % n) for n in range(100)])
    create_topic(guarded.confluent(), f"primary.{names['unwritable']}")
    create_topic(guarded.confluent(), f"primary.{names['unreadable']}")
    everything = (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
    allow(guarded, ResourceType.TOPIC, "mm2-offsets.primary.internal", *everything)
    allow(guarded, ResourceType.TOPIC, f"primary.{names['good']}", *everything)
    allow(guarded, ResourceType.TOPIC, f"primary.{names['unwritable']}", AclOperation.READ)
    allow(guarded, ResourceType.TOPIC, f"primary.{names['unreadable']}", AclOperation.WRITE)
    return names


# -------------------- ending


def test_a_target_with_fewer_partitions_gets_them_and_sigterm_ends_the_copy_within_five_seconds(
    primary: Kafka, backup: Kafka, tmp_path: Path, topic_name: str
) -> None:
    """(How Ctrl-C ends it: tests/journey/test_cli_run.py.)"""
    create_topic(primary.confluent(), topic_name, 4)
    create_topic(backup.confluent(), f"primary.{topic_name}", 2)
    produce(primary.confluent(), topic_name, [Record(b"k%d" % n, b"v%d" % n, partition=n % 4) for n in range(1000)])
    file = a_file(tmp_path, (primary.cluster(), backup.cluster()), topics=topic_name)
    with Run(file, tmp_path / "run") as run:
        flow = "primary->backup"
        run.wait(lambda: run.status(flow).get("records") == 1000, what="all partitions copied")
        status = run.status(flow)
        assert not parked(run, flow)
        assert run.stop(signal.SIGTERM) == 0
    print(f"ended in {run.stop_seconds:.1f} s")
    assert run.stop_seconds < 5
    assert (status["state"], status["partitions"], status["lag_records"]) == ("running", 4, 0)
    assert all(set(line) == {"time", "flows"} for line in run.lines())
    assert run.status(flow)["state"] == "stopped"
    assert assert_same(primary, backup, topic_name, f"primary.{topic_name}") == dict.fromkeys(range(4), 250)


def test_a_signal_while_it_starts(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    file = a_file(tmp_path, (primary.cluster(), backup.cluster()), topics="none-such")
    with Run(file, tmp_path / "run") as run:
        run.wait(run.lines, what="its first word")
        assert run.stop() == 0
    assert run.stop_seconds < 5

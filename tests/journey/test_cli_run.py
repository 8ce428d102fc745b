"""`heliograph run FILE` as a user meets it: it copies, it ends on a signal, and bad input is one message and code 2."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from heliograph.embedded import Kafka
from heliograph.types import Cluster
from tests.kit import Record, contents, create_topic, end_offsets, produce, read_all, wait_until

HELIOGRAPH = str(Path(sys.executable).with_name("heliograph"))


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    with Kafka("guarded", security=("SASL_PLAINTEXT", "SSL"), acls=True) as kafka:
        yield kafka


def write(folder: Path, us: Cluster, eu: Cluster, *lines: str) -> str:
    file = folder / "mm2.properties"
    parts = ["clusters = us, eu", "us->eu.enabled = true"]
    parts += ["replication.factor = 1", "offset.storage.replication.factor = 1", "refresh.topics.interval.seconds = 1"]
    for alias, cluster in (("us", us), ("eu", eu)):
        for key, value in cluster.properties.items():
            escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
            parts.append(f"{alias}.{key} = {escaped}")
    file.write_text("\n".join((*parts, *lines)) + "\n")
    return str(file)


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [HELIOGRAPH, "run", *arguments, "--report-seconds", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def refused(*arguments: str) -> str:
    done = subprocess.run([HELIOGRAPH, "run", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error [")]
    assert len(errors) == 1, done.stderr
    return errors[0] + done.stderr.split(errors[0])[1]


def topics_of(kafka: Kafka) -> set[str]:
    return set(AdminClient(dict(kafka.confluent())).list_topics(timeout=10).topics)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_copies_says_so_and_ends_on_a_signal(
    number: int, primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path
) -> None:
    create_topic(primary.confluent(), topic_name, 2)
    now_ms = int(time.time() * 1000)
    records = [
        Record(f"k{i}".encode(), f"v{i}".encode(), (("h", b"1"), ("h", None)), now_ms - i, i % 2) for i in range(500)
    ]
    produce(primary.confluent(), topic_name, records)
    file = write(tmp_path, primary.cluster(), backup.cluster(), f"topics = {topic_name}")
    remote = f"us.{topic_name}"
    with running(file) as process:
        wait_until(
            lambda: remote in topics_of(backup) and sum(end_offsets(backup.confluent(), remote).values()) == 500,
            what=f"500 records in {remote}",
            timeout_seconds=120,
        )
        assert process.stdout
        while True:  # each line stands for itself; one of them soon knows of all records
            status = json.loads(process.stdout.readline())["flows"][0]
            if status["records"] == 500:
                break
        assert (status["name"], status["topics"], status["partitions"]) == ("us->eu", 1, 2)
        begun = time.monotonic()
        process.send_signal(number)
        process.communicate(timeout=30)
        assert time.monotonic() - begun < 5
        assert process.returncode == 0
    assert contents(read_all(backup.confluent(), remote)) == contents(read_all(primary.confluent(), topic_name))


def test_a_signal_while_it_starts_ends_it_too(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    file = write(tmp_path, primary.cluster(), backup.cluster(), "topics = none-of-them")
    with running(file) as process:
        assert process.stdout
        assert json.loads(process.stdout.readline())["flows"][0]["state"] == "starting"
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert time.monotonic() - begun < 5
        assert process.returncode == 0


def test_an_unreachable_cluster(primary: Kafka, tmp_path: Path) -> None:
    nowhere = Cluster("eu", {"bootstrap.servers": "127.0.0.1:1"})
    said = refused(write(tmp_path, primary.cluster(), nowhere))
    assert "127.0.0.1:1" in said


def test_one_cluster_under_two_aliases(primary: Kafka, tmp_path: Path) -> None:
    before = topics_of(primary)
    said = refused(write(tmp_path, primary.cluster(), primary.cluster()))
    assert "error [SAME_CLUSTER]" in said
    assert "bootstrap.servers" in said
    assert topics_of(primary) == before


def test_a_wrong_password(primary: Kafka, guarded: Kafka, tmp_path: Path) -> None:
    said = refused(write(tmp_path, primary.cluster(), guarded.cluster(user="alice", password="not hers")))
    assert "error [LOGIN_FAILED]" in said
    assert "eu" in said
    assert "not hers" not in said


def test_a_certificate_that_is_not_trusted(primary: Kafka, guarded: Kafka, tmp_path: Path) -> None:
    properties = guarded.cluster(security="SSL").properties
    bad = {key: value for key, value in properties.items() if "truststore" not in key}
    said = refused(write(tmp_path, primary.cluster(), Cluster("eu", bad)))
    assert "error [UNTRUSTED]" in said
    assert "ssl.truststore" in said


def test_no_permission_on_the_target(
    primary: Kafka, guarded: Kafka, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create_topic(primary.confluent(), new_topic())
    before = topics_of(guarded)
    said = refused(write(tmp_path, primary.cluster(), guarded.cluster(user="alice"), f"topics = {topic}"))
    assert "AUTHORIZATION_FAILED" in said
    assert topics_of(guarded) == before


def test_the_reader_of_stdout_may_leave(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    file = write(tmp_path, primary.cluster(), backup.cluster(), "topics = none-of-them")
    command = f"{HELIOGRAPH} run {file} --seconds 3 --report-seconds 0.1 | head -1"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert json.loads(done.stdout)["flows"]
    assert "Traceback" not in done.stderr

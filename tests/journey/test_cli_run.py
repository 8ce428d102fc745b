"""`heliograph run FILE` as a user meets it: it copies, says so line by line, and ends on Ctrl-C.

What bad input does is in tests/broker/test_bad_input.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from heliograph.embedded import Kafka
from heliograph.types import Cluster
from tests.kit import Record, contents, create_topic, end_offsets, produce, read_all, wait_until

HELIOGRAPH = str(Path(sys.executable).with_name("heliograph"))


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


def topics_of(kafka: Kafka) -> set[str]:
    return set(AdminClient(dict(kafka.confluent())).list_topics(timeout=10).topics)


def test_it_copies_says_so_and_ends_on_ctrl_c(primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path) -> None:
    create_topic(primary.confluent(), topic_name, 2)
    now_ms = int(time.time() * 1000)
    records = [
        Record(f"k{i}".encode(), f"v{i}".encode(), (("h", b"1"), ("h", None)), now_ms - i, i % 2) for i in range(500)
    ]
    produce(primary.confluent(), topic_name, records)
    only = (f"topics = {topic_name}", "heartbeats.replication.enabled = false")  # others leave heartbeats behind
    file = write(tmp_path, primary.cluster(), backup.cluster(), *only)
    remote = f"us.{topic_name}"
    with running(file) as process:
        wait_until(
            lambda: remote in topics_of(backup) and sum(end_offsets(backup.confluent(), remote).values()) == 500,
            what=f"500 records in {remote}",
            timeout_seconds=240,
        )
        assert process.stdout
        status: dict[str, object] = {}
        deadline = time.monotonic() + 60
        while status.get("records") != 500:  # each line stands for itself; one of them soon knows of all records
            assert time.monotonic() < deadline, status
            status = json.loads(process.stdout.readline())["flows"][0]
        assert (status["name"], status["topics"], status["partitions"]) == ("us->eu", 1, 2)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert time.monotonic() - begun < 5
        assert process.returncode == 0
    assert contents(read_all(backup.confluent(), remote)) == contents(read_all(primary.confluent(), topic_name))


def test_the_reader_of_stdout_may_leave(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    file = write(tmp_path, primary.cluster(), backup.cluster(), "topics = none-of-them")
    command = f"{HELIOGRAPH} run {file} --seconds 3 --report-seconds 0.1 | head -1"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert json.loads(done.stdout)["flows"]
    assert "Traceback" not in done.stderr

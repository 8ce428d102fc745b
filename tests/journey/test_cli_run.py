"""`heliograph run FILE` as a user meets it: it copies, says so line by line, and ends on Ctrl-C.

What bad input does is in tests/broker/test_bad_input.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from heliograph.embedded import Kafka
from heliograph.formats import Heartbeat
from heliograph.types import Cluster
from tests.broker.engine import topics_of
from tests.broker.processes import COMMAND, Run
from tests.kit import Record, contents, create_topic, produce, read_all


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
    with Run(Path(file), tmp_path / "run") as process:
        process.wait(lambda: process.status("us->eu").get("records") == 500, what=f"500 records in {remote}")
        status = process.status("us->eu")
        assert (status["state"], status["topics"], status["partitions"]) == ("running", 1, 2)
        assert process.stop(signal.SIGINT) == 0
    assert process.stop_seconds < 5
    assert all(set(line) == {"time", "flows"} for line in process.lines())  # each line stands for itself
    assert process.status("us->eu")["state"] == "stopped"
    assert contents(read_all(backup.confluent(), remote)) == contents(read_all(primary.confluent(), topic_name))


def test_a_file_of_heartbeats_only(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    """As MM2 does for pairs that are not enabled: each way a sign of life, and no Spark for it."""
    file = Path(write(tmp_path, primary.cluster(), backup.cluster()))
    file.write_text(file.read_text().replace("us->eu.enabled = true", "heartbeats.topic.replication.factor = 1"))
    began_ms = int(time.time() * 1000)

    def beats(kafka: Kafka) -> list[Heartbeat]:
        """Those of this run: other tests leave some behind."""
        read = (Heartbeat.read(record.key, record.value) for record in read_all(kafka.confluent(), "heartbeats")[0])
        return [beat for beat in read if beat and beat.timestamp_ms >= began_ms]

    def beating(kafka: Kafka, source: str, target: str) -> bool:
        if "heartbeats" not in topics_of(kafka.confluent()):
            return False
        return sum((beat.source_alias, beat.target_alias) == (source, target) for beat in beats(kafka)) >= 2

    with Run(file, tmp_path / "run") as process:
        process.wait(lambda: beating(backup, "us", "eu") and beating(primary, "eu", "us"), what="heartbeats both ways")
        status = process.status("us->eu")
        assert (status["state"], status["partitions"]) == ("idle", 0)
        assert "heartbeats only" in status["reason"]
        assert [one.name() for one in process.family() if one.name() == "java"] == []
        assert process.stop() == 0
    assert "us->eu.enabled = true" in process.said()  # what to write if more was meant


def test_the_reader_of_stdout_may_leave(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    file = write(tmp_path, primary.cluster(), backup.cluster(), "topics = none-of-them")
    command = f"{COMMAND} run {file} --seconds 3 --report-seconds 0.1 | head -1"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert json.loads(done.stdout)["flows"]
    assert "Traceback" not in done.stderr

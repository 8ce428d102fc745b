"""`heliograph adopt` beside a real MirrorMaker 2: it says whether it runs, what it left, and where we would go on; and
that is where a run then goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.main import run
from heliograph.embedded import QUICK_MM2_JVM, Kafka, MirrorMaker, mm2_properties
from tests.broker.engine import assert_same, mirror, one_flow, topics_of
from tests.broker.processes import write_file
from tests.kit import Record, create_topic, end_offsets, produce, wait_until

RECORDS = 600


def test_a_running_and_a_former_mm2(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = primary.cluster("north"), backup.cluster("south")
    create_topic(primary.confluent(), topic_name, 2)
    properties = mm2_properties(source, target, topics=topic_name)
    properties |= {"south.offset.flush.interval.ms": "500", "emit.checkpoints.interval.seconds": "1"}
    file = write_file(tmp_path / "mm2.properties", properties)
    copy = f"north.{topic_name}"

    def adopt() -> tuple[int, dict[str, Any], str]:
        capsys.readouterr()
        code = run(["adopt", str(file), "-o", "json"])
        said = capsys.readouterr()
        (found,) = json.loads(said.out)
        return code, found, said.err

    def feed() -> None:
        produce(primary.confluent(), topic_name, [Record(b"k%d" % n, b"v", partition=n % 2) for n in range(RECORDS)])

    code, found, _ = adopt()
    assert (code, found["mm2_runs"]) == (0, None)
    ours = [one for one in found["partitions"] if one["topic"] == topic_name]
    assert [(one["offset"], one["why"]) for one in ours] == [(0, "no position: begins at earliest")] * 2

    feed()
    before = topics_of(backup.confluent())
    with MirrorMaker(properties, jvm=QUICK_MM2_JVM) as mm2:

        def copied() -> bool:
            there = copy in topics_of(backup.confluent())
            return there and sum(end_offsets(backup.confluent(), copy).values()) >= RECORDS

        wait_until(lambda: mm2.require_running() or copied(), what="MM2's copy", timeout_seconds=120)
        made = topics_of(backup.confluent())
        code, found, said = adopt()
        assert code == 3
        assert "north-mm2 has members" in found["mm2_runs"]
        assert "Stop it before" in said
        change = ["offsets", "set", str(file), "north->south", topic_name, "--to", "earliest", "--yes"]
        assert run(change) == 2  # MM2 would write over it
        assert "a MirrorMaker 2 (its group north-mm2 has members)" in capsys.readouterr().err
        assert mm2.stop()
    assert topics_of(backup.confluent()) == made  # adopt wrote nothing
    assert before < made

    feed()
    code, found, _ = adopt()
    assert (code, found["mm2_runs"]) == (0, None)
    ours = [one for one in found["partitions"] if one["topic"] == topic_name]
    assert [(one["offset"], one["lag"], one["why"]) for one in ours] == [(300, 300, "MM2's position")] * 2
    there = {topic["name"]: topic for topic in found["topics"] if topic["there"]}
    assert {"mm2-offsets.north.internal", "mm2-status.north.internal", "heartbeats"} <= set(there)
    assert "left alone" in there["mm2-status.north.internal"]["use"]
    assert found["last_heartbeat_ms"] is not None

    taking_over = one_flow(source, target, topic_name, heartbeats_replication=False)
    assert mirror(taking_over, topic_name).status().records == RECORDS
    assert_same(primary, backup, topic_name, copy)
    _, found, _ = adopt()
    ours = [one for one in found["partitions"] if one["topic"] == topic_name]
    assert {(one["offset"], one["why"]) for one in ours} == {(600, "Heliograph's own position")}

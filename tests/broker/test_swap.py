"""MirrorMaker 2 and Heliograph take turns on one flow, by one file: each record is copied once.

Both keep positions in the same topic on the target, in the same format; either goes on where the other stopped.
`heliograph adopt` says beforehand whether an MM2 runs, what it left, and where we would go on; and there we do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.main import run as command
from heliograph.embedded import QUICK_MM2_JVM, Kafka, MirrorMaker, mm2_properties
from tests.broker.engine import Engine, assert_same, one_flow, topics_of
from tests.broker.processes import Run, write_file
from tests.kit import Record, create_topic, end_offsets, produce, wait_until

PARTITIONS = 3
PART = 9_000  # records a turn
FLOW = "west->east"

Adopt = Callable[[Path], tuple[int, dict[str, Any], str]]


def part(turn: int) -> list[Record]:
    """What is produced before a turn."""
    return [
        Record(b"k%d-%d" % (turn, n), b"v%d" % n, (("n", b"%d" % n),), partition=n % PARTITIONS) for n in range(PART)
    ]


@pytest.fixture
def adopt(capsys: pytest.CaptureFixture[str]) -> Adopt:
    def call(file: Path) -> tuple[int, dict[str, Any], str]:
        """`heliograph adopt`: its code, what it found, what it said."""
        capsys.readouterr()
        code = command(["adopt", str(file), "-o", "json"])
        said = capsys.readouterr()
        (found,) = json.loads(said.out)
        return code, found, said.err

    return call


def places(found: dict[str, Any], topic: str) -> set[tuple[int, str]]:
    """Where each partition would go on, and why there."""
    return {(one["offset"], one["why"]) for one in found["partitions"] if one["topic"] == topic}


def test_each_record_once_when_mm2_and_heliograph_take_turns(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path, adopt: Adopt, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(primary.confluent(), topic_name, PARTITIONS)
    source, target = primary.cluster("west"), backup.cluster("east")
    properties = mm2_properties(source, target, topics=topic_name)
    # MM2 writes its positions only so often, and always when it is stopped in order.
    properties |= {"east.offset.flush.interval.ms": "500", "heartbeats.replication.enabled": "false"}
    properties["east->west.emit.heartbeats.enabled"] = "false"
    file = write_file(tmp_path / "mm2.properties", properties)
    copy = f"west.{topic_name}"
    produced = 0

    def next_part() -> None:
        nonlocal produced
        produce(primary.confluent(), topic_name, part(produced // PART), config={"compression.type": "lz4"})
        produced += PART

    def copied() -> bool:
        return copy in topics_of(backup.confluent()) and sum(end_offsets(backup.confluent(), copy).values()) >= produced

    def by_mm2(meanwhile: Callable[[], None] = lambda: None) -> None:
        with MirrorMaker(properties, jvm=QUICK_MM2_JVM) as mm2:
            wait_until(lambda: mm2.require_running() or copied(), what="MM2's turn", timeout_seconds=120)
            meanwhile()
            assert mm2.stop()
        assert_same(primary, backup, topic_name, copy)

    def while_it_runs() -> None:
        there = topics_of(backup.confluent())
        code, found, said = adopt(file)
        assert code == 3
        assert "west-mm2 has members" in found["mm2_runs"]
        assert "Stop it before" in said
        change = ["offsets", "set", str(file), FLOW, topic_name, "--to", "earliest", "--yes"]
        assert command(change) == 2  # MM2 would write over it
        assert "a MirrorMaker 2 (its group west-mm2 has members)" in capsys.readouterr().err
        assert topics_of(backup.confluent()) == there  # nothing of it wrote

    code, found, _ = adopt(file)
    assert (code, found["mm2_runs"]) == (0, None)
    assert places(found, topic_name) == {(0, "no position: begins at earliest")}
    next_part()
    by_mm2(while_it_runs)

    next_part()
    code, found, _ = adopt(file)
    assert (code, found["mm2_runs"]) == (0, None)
    assert places(found, topic_name) == {(PART // PARTITIONS, "MM2's position")}
    assert {one["lag"] for one in found["partitions"] if one["topic"] == topic_name} == {PART // PARTITIONS}
    there = {topic["name"]: topic for topic in found["topics"] if topic["there"]}
    assert {"mm2-offsets.west.internal", "mm2-status.west.internal", "heartbeats"} <= set(there)
    assert "left alone" in there["mm2-status.west.internal"]["use"]
    assert found["last_heartbeat_ms"] is not None
    with Run(file, tmp_path / "run", "--until-current", "--compare") as run:
        assert run.wait_ended(300) == 0, run.words()
    told = run.lines()[-1]["until_current"][FLOW]
    # It began where MM2 stopped, not at the beginning; what MM2 copied is in no map of ours, so not compared.
    assert (told["complete"], told["records"], told["compared"]) == (True, PART, PART)
    assert_same(primary, backup, topic_name, copy)
    _, found, _ = adopt(file)
    assert places(found, topic_name) == {(2 * PART // PARTITIONS, "Heliograph's own position")}

    next_part()
    by_mm2()
    next_part()  # a second take-over: MM2's positions void the claims of the first
    with Engine(one_flow(source, target, topic_name)) as engine:
        engine.wait_copied(topic_name)
        assert engine.status().records == PART
    assert assert_same(primary, backup, topic_name, copy) == dict.fromkeys(range(PARTITIONS), produced // PARTITIONS)

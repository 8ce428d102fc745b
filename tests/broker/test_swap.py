"""MirrorMaker 2 and Heliograph take turns on one flow, by one file: each record is copied once.

Both keep positions in the same topic on the target, in the same format; either goes on where the other stopped.
"""

from __future__ import annotations

from pathlib import Path

from heliograph.embedded import QUICK_MM2_JVM, Kafka, MirrorMaker, mm2_properties
from tests.broker.engine import Engine, assert_same, one_flow, topics_of
from tests.broker.processes import Run, write_file
from tests.kit import Record, create_topic, end_offsets, produce, wait_until

PARTITIONS = 3
PART = 9_000  # records a turn
FLOW = "west->east"


def part(turn: int) -> list[Record]:
    """What is produced before a turn."""
    return [
        Record(b"k%d-%d" % (turn, n), b"v%d" % n, (("n", b"%d" % n),), partition=n % PARTITIONS) for n in range(PART)
    ]


def test_each_record_once_when_mm2_and_heliograph_take_turns(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path
) -> None:
    create_topic(primary.confluent(), topic_name, PARTITIONS)
    source, target = primary.cluster("west"), backup.cluster("east")
    properties = mm2_properties(source, target, topics=topic_name)
    # MM2 writes its positions only so often, and always when it is stopped in order.
    properties |= {"east.offset.flush.interval.ms": "500", "emit.heartbeats.enabled": "false"}
    file = write_file(tmp_path / "mm2.properties", properties)
    copy = f"west.{topic_name}"
    produced = 0

    def next_part() -> None:
        nonlocal produced
        produce(primary.confluent(), topic_name, part(produced // PART), config={"compression.type": "lz4"})
        produced += PART

    def copied() -> bool:
        return copy in topics_of(backup.confluent()) and sum(end_offsets(backup.confluent(), copy).values()) >= produced

    def by_mm2() -> None:
        with MirrorMaker(properties, jvm=QUICK_MM2_JVM) as mm2:
            wait_until(lambda: mm2.require_running() or copied(), what="MM2's turn", timeout_seconds=120)
            assert mm2.stop()

    def by_heliograph() -> None:
        with Run(file, tmp_path / "run") as run:
            run.wait(lambda: run.status(FLOW).get("records", 0) >= PART, what="Heliograph's turn")
            assert run.status(FLOW)["records"] == PART  # it began where MM2 stopped, not at the beginning
            assert run.stop() == 0

    for turn in (by_mm2, by_heliograph, by_mm2):
        next_part()
        turn()
        assert_same(primary, backup, topic_name, copy)
    next_part()  # a second take-over: MM2's positions void the claims of the first
    with Engine(one_flow(source, target, topic_name)) as engine:
        engine.wait_copied(topic_name)
        assert engine.status().records == PART
    assert assert_same(primary, backup, topic_name, copy) == dict.fromkeys(range(PARTITIONS), produced // PARTITIONS)

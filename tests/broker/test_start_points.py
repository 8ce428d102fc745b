"""Where copying begins, and `heliograph offsets`: each start is the very record, and a position that is changed by hand
means exactly what the preview said, no more records and no fewer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.main import run
from heliograph.config.load import load
from heliograph.embedded import Kafka, mm2_properties
from heliograph.flow.presence import holders
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client
from tests.broker.engine import Engine, mirror
from tests.broker.processes import write_file
from tests.kit import Record, create_topic, produce, read_all, wait_until

QUIET = {
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "emit.offset-syncs.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "heartbeats.replication.enabled": "false",
    "refresh.topics.interval.seconds": "1",
}
TEN_PAST_MS = 1_760_000_600_000


class Stage:
    """One topic, one flow between clusters under aliases of this test's own, so that its positions are its own too."""

    def __init__(self, primary: Kafka, backup: Kafka, topic: str, folder: Path, partitions: int = 2) -> None:
        self.primary, self.backup, self.topic, self.folder = primary, backup, topic, folder
        self.source, self.target = primary.cluster(f"from-{topic}"), backup.cluster(f"to-{topic}")
        self.name = f"{self.source.alias}->{self.target.alias}"
        self.partitions = partitions
        self.sent = dict.fromkeys(range(partitions), 0)
        create_topic(primary.confluent(), topic, partitions, config={"retention.ms": "-1"})  # its records are old
        self.file = self.write()

    def write(self, **more: str) -> str:
        properties = mm2_properties(self.source, self.target, topics=self.topic) | QUIET
        properties |= {f"{self.name}.{key}": value for key, value in more.items()}
        return str(write_file(self.folder / "mm2.properties", properties))

    @property
    def flow(self) -> Flow:
        return load(self.file).flows[0]

    def feed(self, count: int, *partitions: int) -> None:
        """So many records to each partition: a second apart, counted in their values."""
        for partition in partitions or range(self.partitions):
            first = self.sent[partition]
            produce(
                self.primary.confluent(),
                self.topic,
                [
                    Record(b"k", b"%d" % n, timestamp_ms=TEN_PAST_MS - 600_000 + n * 1000, partition=partition)
                    for n in range(first, first + count)
                ],
            )
            self.sent[partition] += count

    def copied(self) -> dict[int, list[int]]:
        """The numbers of the records in the copy."""
        found = read_all(self.backup.confluent(), f"{self.source.alias}.{self.topic}")
        return {partition: [int(r.value or b"-1") for r in records] for partition, records in found.items()}

    def translated(self, partition: int, *offsets: int) -> list[int | None]:
        """Where the target has the records at these source offsets, by what is durable."""
        with Client(self.target) as target:
            positions, offset_map = PositionsLog(target, self.flow), OffsetMap(target, self.flow)
            assert positions.find()
            assert offset_map.find()
            known = positions.catch_up()
            offset_map.catch_up()
            tp = TopicPartition(self.topic, partition)
            return [offset_map.translate(tp, offset, known) for offset in offsets]


@pytest.fixture
def stage(primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path) -> Stage:
    return Stage(primary, backup, topic_name, tmp_path)


@pytest.fixture
def offsets(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any, str]]:
    """`heliograph offsets …`: exit code, the JSON document (None if there is none), what it said."""

    def call(*arguments: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = run(["offsets", *arguments, "-o", "json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else None, said.err

    return call


def test_offsets_and_timestamps_lead_to_the_very_record(stage: Stage) -> None:
    stage.feed(1000)
    stage.file = stage.write(start=f"{stage.topic}:0=offset:300, {stage.topic}=timestamp:{TEN_PAST_MS - 1500}")
    mirror(stage.flow, stage.topic)
    assert stage.copied() == {0: list(range(300, 1000)), 1: list(range(599, 1000))}
    # A start never moves what has a position.
    stage.feed(10)
    stage.file = stage.write(start="earliest")
    mirror(stage.flow, stage.topic)
    stage.file = stage.write(start="latest")
    mirror(stage.flow, stage.topic)
    assert stage.copied() == {0: list(range(300, 1010)), 1: list(range(599, 1010))}


def test_latest_and_a_time_that_no_record_has_reached(stage: Stage) -> None:
    stage.feed(50)
    stage.file = stage.write(start=f"{stage.topic}:0=latest, timestamp:2099-01-01T00:00:00Z")
    with Engine(stage.flow) as engine:
        engine.wait_copied(stage.topic)
        stage.feed(20)
        engine.wait_copied(stage.topic)
    assert stage.copied() == {0: list(range(50, 70)), 1: list(range(50, 70))}


def test_a_start_behind_the_end_is_parked_with_the_numbers_until_the_source_gets_there(stage: Stage) -> None:
    stage.feed(10)
    stage.file = stage.write(start=f"{stage.topic}:0=offset:15, earliest")
    with Engine(stage.flow, epoch_seconds=1) as engine:
        engine.wait(lambda: engine.reached(TopicPartition(stage.topic, 1)) == 10, what="the other partition")
        status = engine.status()
        (parked,) = status.parked
        assert (parked.topic, parked.partition) == (stage.topic, 0)
        assert "(0 to 10 are there)" in parked.reason
        assert status.state == "parked"
        stage.feed(10)
        engine.wait_copied(stage.topic)
        assert engine.status().parked == ()
    assert stage.copied() == {0: list(range(15, 20)), 1: list(range(20))}


def test_set_back_set_forward_and_reset_mean_what_the_preview_said(
    stage: Stage, offsets: Callable[..., tuple[int, Any, str]]
) -> None:
    stage.feed(100)
    mirror(stage.flow, stage.topic)
    _, listed, _ = offsets("list", stage.file, stage.name)
    rows = listed[stage.name]["partitions"]
    assert [(r["partition"], r["next_offset"], r["source_end"], r["lag"], r["target_end"]) for r in rows] == [
        (0, 100, 100, 0, 100),
        (1, 100, 100, 0, 100),
    ]
    first_id = rows[0]["producer_id"]
    assert first_id is not None

    back = ("set", stage.file, stage.name, f"{stage.topic}:0", "--to", "offset:40")
    code, shown, said = offsets(*back)
    assert (code, shown["written"], shown["partitions"][0]["again"]) == (0, 0, 60)
    _, listed, _ = offsets("list", stage.file, stage.name)
    assert listed[stage.name]["partitions"][0]["next_offset"] == 100  # it was only shown
    code, shown, said = offsets(*back, "--yes")
    assert (code, shown["written"]) == (0, 1), said
    assert mirror(stage.flow, stage.topic).status().records == 60
    assert stage.copied() == {0: [*range(100), *range(40, 100)], 1: list(range(100))}
    _, listed, _ = offsets("list", stage.file, stage.name, f"{stage.topic}:0")
    (row,) = listed[stage.name]["partitions"]
    assert row["producer_id"] != first_id  # a new era: its sequences count from zero
    assert (row["sequence"], row["target_end"]) == (60, 160)
    # To the new copies; what lies before them is still where the copy before put it.
    assert stage.translated(0, 10, 40, 99, 100) == [10, 100, 159, 160]

    stage.feed(50)
    code, shown, _ = offsets("set", stage.file, stage.name, stage.topic, "--to", "latest", "--yes")
    assert [(one["to"], one["never"], one["again"]) for one in shown["partitions"]] == [(150, 50, 0), (150, 50, 0)]
    stage.feed(5)
    assert mirror(stage.flow, stage.topic).status().records == 10
    assert stage.copied()[1] == [*range(100), *range(150, 155)]
    assert stage.translated(1, 99, 120, 150, 155) == [99, 100, 100, 105]  # what was passed over: the next record

    stage.file = stage.write(start="offset:153")
    code, shown, _ = offsets("reset", stage.file, stage.name, f"{stage.topic}:1", "--yes")
    assert (code, shown["partitions"][0]["to"], shown["partitions"][0]["again"]) == (0, 153, 2)
    assert mirror(stage.flow, stage.topic).status().records == 2
    assert stage.copied()[1] == [*range(100), *range(150, 155), 153, 154]


def test_offsets_that_the_source_does_not_have_are_refused(
    stage: Stage, offsets: Callable[..., tuple[int, Any, str]]
) -> None:
    stage.feed(10)
    mirror(stage.flow, stage.topic)
    code, _, said = offsets("set", stage.file, stage.name, stage.topic, "--to", "offset:11", "--yes")
    assert code == 2
    for partition in (0, 1):
        assert f"{stage.topic}-{partition} is behind its end (0 to 10 are there)" in said
    code, _, said = offsets("set", stage.file, stage.name, "nothing-like-it:3", "--to", "earliest", "--yes")
    assert code == 2
    assert "nothing-like-it:3" in said
    code, _, said = offsets("set", stage.file, "no->flow", "--to", "earliest", "--yes")
    assert code == 2
    assert stage.name in said
    assert run(["offsets", "set", stage.file, stage.name, "--to", "someday"]) == 2
    assert mirror(stage.flow, stage.topic).status().records == 0


def test_records_behind_a_position_come_once_when_it_is_set_to_where_it_is(
    stage: Stage, offsets: Callable[..., tuple[int, Any, str]]
) -> None:
    """A task was killed before its first position: the target holds more than the position says (rule D)."""
    stage.feed(500)
    with Engine(stage.flow, crash_after=200) as engine:
        engine.wait_ended()
    assert engine.crashes
    _, listed, _ = offsets("list", stage.file, stage.name)
    rows = listed[stage.name]["partitions"]
    assert sum(row["beyond"] for row in rows) >= 200
    assert [row["next_offset"] for row in rows] == [0, 0]
    wait_until(lambda: not _held(stage), what="nobody runs it")
    code, shown, said = offsets("set", stage.file, stage.name, "--to", "offset:0", "--yes")
    assert (code, shown["written"]) == (0, 0), said  # nothing to change, so nothing is written
    mirror(stage.flow, stage.topic)
    assert stage.copied() == {0: list(range(500)), 1: list(range(500))}


def _held(stage: Stage) -> list[str]:
    with Client(stage.target) as target:
        return [str(one) for one in holders(stage.flow, target)]


def test_a_flow_that_runs_is_not_changed_unless_somebody_insists(
    stage: Stage, offsets: Callable[..., tuple[int, Any, str]]
) -> None:
    stage.feed(10)
    change = ("set", stage.file, stage.name, "--to", "earliest", "--yes")
    with Engine(stage.flow) as engine:
        engine.wait_copied(stage.topic)
        wait_until(lambda: _held(stage), what="its presence")
        code, _, said = offsets(*change)
        assert code == 2
        assert "HELD" in said
        assert _held(stage)[0] in said
        _, listed, _ = offsets("list", stage.file, stage.name)
        assert listed[stage.name]["run_by"] == _held(stage)
    assert _held(stage) == []  # it took it back when it ended
    code, shown, said = offsets(*change)
    assert (code, shown["written"]) == (0, 2), said


def test_a_start_before_the_first_run(stage: Stage, offsets: Callable[..., tuple[int, Any, str]]) -> None:
    """Nothing has run yet: the positions topic is made for it, and the flow begins there."""
    stage.feed(30)
    code, shown, said = offsets("set", stage.file, stage.name, f"{stage.topic}:1", "--to", "offset:25", "--yes")
    assert (code, shown["written"]) == (0, 1), said
    mirror(stage.flow, stage.topic)
    assert stage.copied() == {0: list(range(30)), 1: list(range(25, 30))}

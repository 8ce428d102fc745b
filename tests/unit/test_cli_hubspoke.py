"""The hub-spoke demo: its file, its rows, and what it demands of a hub."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from heliograph.batch.labels import Stamp, write
from heliograph.cli import compare, homecoming, hubspoke, hubtable
from heliograph.cli.homecoming import Spoke
from heliograph.config.load import parse
from heliograph.health.status import FlowReport, FlowStatus, PartitionStatus
from heliograph.mirror.timing import Spread
from heliograph.types import MUX_HEADERS, TopicPartition

SPOKE = Spoke("spoke1", "127.0.0.1:9092", "mux-replication_spoke1", "abcdefghijklmnopqrstuv")


class Cluster:
    """As much of an embedded one as the file needs."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


CLUSTERS: Any = {"hub": Cluster("127.0.0.1:1"), "spoke1": Cluster("127.0.0.1:2"), "spoke2": Cluster("127.0.0.1:3")}


class Message:
    def __init__(self, headers: list[tuple[str, bytes | None]] | None, timestamp_ms: int = 1_790_000_000_007) -> None:
        self._headers, self._timestamp_ms = headers, timestamp_ms

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp_ms

    def topic(self) -> str:
        return "topic2"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 41


@pytest.mark.parametrize(
    ("via", "names"),
    [
        ("straight", {"spoke1->hub.mux", "spoke2->hub.mux", "hub->hub.demux"}),
        (
            "intermediate",
            {"spoke1->spoke1.mux", "spoke2->spoke2.mux", "spoke1->hub", "spoke2->hub", "hub->hub.demux"},
        ),
    ],
)
def test_its_file_is_one_that_run_takes(via: str, names: set[str]) -> None:
    config = parse(hubspoke.file_of(CLUSTERS, via).encode())
    assert config.warnings == ()
    assert config.heartbeat_only == ()
    flows = {flow.name: flow for flow in config.flows}
    assert names <= set(flows)
    steps = hubtable.steps_of(config.flows)
    assert [one.spoke for one in steps] == ["spoke1", "spoke2"]
    assert {name for one in steps for name in (one.mux, one.link, one.demux) if name} == names
    shared = "mux-replication_spoke1" if via == "straight" else "spoke1.mux-replication_spoke1"
    assert steps[0].shared == shared


def test_the_labels_that_are_demanded_are_those_that_are_specified() -> None:
    message: Any = Message([("own", b"1")])
    stamp = Stamp(TopicPartition("topic2", 3), SPOKE.bootstrap, SPOKE.shared, SPOKE.name, SPOKE.cluster_id)
    assert tuple(homecoming.labels(message, SPOKE)) == write(stamp, 1_790_000_000_007, 41)


def test_a_record_that_came_home_is_the_one_expected_with_its_labels() -> None:
    own: list[tuple[str, bytes | None]] = [("own", b"1"), (MUX_HEADERS[5], b"not this one"), ("none", None)]
    at_the_spoke: Any = Message(own)
    labels = homecoming.labels(at_the_spoke, SPOKE)
    at_the_hub: Any = Message([*own, *labels])
    wanted = compare.digest(at_the_spoke, labels)
    assert compare.digest(at_the_hub) == wanted
    assert homecoming.whose_is(at_the_hub) == "spoke1"
    for wrong in (Message([*own, *labels[:-1]]), Message([*labels, *own]), Message([*own, *labels], 5)):
        assert compare.digest(wrong) != wanted  # type: ignore[arg-type]


def test_a_record_without_labels_is_nobodys() -> None:
    for headers in (None, [("own", b"1")]):
        assert homecoming.whose_is(Message(headers)) is None  # type: ignore[arg-type]


STEPS = hubtable.Steps("spoke1", "spoke1->spoke1.mux", "spoke1->hub", "hub->hub.demux", "spoke1.mux-replication_spoke1")


def reports(lag: int | None = 4, state: str = "running") -> list[FlowReport]:
    return [
        FlowReport("spoke1", "spoke1", FlowStatus(STEPS.mux, "idle", records=100, lag_records=0, lag_seconds=0.0)),
        FlowReport("spoke1", "hub", FlowStatus(STEPS.link, state, records=90, lag_records=10, lag_seconds=3.5)),
        FlowReport(
            *("hub", "hub", FlowStatus(STEPS.demux, "running", records=500)),
            partitions=(partition(STEPS.shared, 0, 50, lag), partition(STEPS.shared, 1, 30, 2), partition("x", 0, 420)),
            latencies_p99_ms={STEPS.shared: 12.0, "x": 900.0},
        ),
    ]


def partition(topic: str, number: int, records: int, lag: int | None = 0) -> PartitionStatus:
    return PartitionStatus(
        *(topic, number, topic, "flowing", "", "", 0.0, 0, 0, 0, lag, 0, 0.0, {"records": records}, 5.0, 1.0),
        *(Spread(), Spread()),
    )


def test_a_row_is_put_together_from_three_flows() -> None:
    row = hubtable.row(STEPS, 120, reports())
    assert row == hubtable.Row("spoke1", "running", 120, 100, 90, 80, 10.0, 2.0, 16, 3.5, 12.0)
    assert hubtable.row(STEPS, 120, reports(lag=None)).behind is None
    assert hubtable.row(STEPS, 120, reports(state="parked")).state == "parked"
    assert hubtable.row(STEPS, 0, []) == hubtable.Row("spoke1", "starting", 0, 0, 0, 0, 0.0, 0.0, None, None, None)


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_its_terminal(width: int) -> None:
    rows = [hubtable.row(STEPS, 12_345_678, reports()), hubtable.row(STEPS, 1, reports(state="restarting"))]
    console = Console(width=width, record=True, file=io.StringIO())
    board = hubtable.Board(lambda: rows)
    console.print(board.draw([], width))
    text = console.export_text()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert ("carried over" in text) == (width == 120)
    for word in ("spoke1", "restarting", "12.3M", "put back", "lag", "3.5s", "12ms"):
        assert word in text
    header, *said = board.rows()([]).splitlines()
    assert header.split()[1:3] == ["spoke", "state"]
    assert [line.split()[1:4] for line in said] == [["spoke1", "running", "12.3M"], ["spoke1", "restarting", "1"]]
    assert {len(line) for line in (header, *said)} == {len(header)}
    document = json.loads(board.line([]))
    assert [one["put_back"] for one in document["spokes"]] == [80, 80]

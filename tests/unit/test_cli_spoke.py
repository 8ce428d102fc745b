"""`heliograph spoke` in the small: words for a state, files written whole or put back, draining watched, hubs that
begin without a spoke."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli import edited, spokes
from heliograph.cli.main import run as heliograph
from heliograph.cli.spokes import Drain, Left, row, state_of, table
from heliograph.config.load import parse
from heliograph.config.spokes import spokes_of
from heliograph.control import client
from heliograph.control.client import Answered
from heliograph.errors import ConfigError, ControlError, Unreachable
from heliograph.flow import reach
from heliograph.flow.outline import outline
from heliograph.health.status import FlowReport, FlowStatus, Order, ParkedPartition
from heliograph.mirror.positions import Position
from heliograph.review.spokes import Waiting, count
from heliograph.types import Flow, TopicPartition
from tests.unit.test_config_spokes import DATA

FIRST, SECOND = spokes_of(parse(DATA))
DEMUX = "hub->hub.demux"
FLOWS = (FIRST.mux, SECOND.mux, SECOND.own, FIRST.demux)


def said(state: str = "running", reason: str = "", ordered: str = "", **more: Any) -> dict[str, Any]:
    figures = {"lag_records": 7, "records_per_s": 10.0, "bytes_per_s": 2e6, "topics": {}, "parked": {}}
    healthy = state in ("running", "idle")
    return {"state": state, "reason": reason, "healthy": healthy, "ordered": ordered, **figures, **more}


def a_topic(reason: str = "") -> dict[str, Any]:
    return {"lag_records": 3, "records_per_s": 5.0, "bytes_per_s": 1e6, "unhealthy": bool(reason), "reason": reason}


# ---------------------------------------------------------------- list


@pytest.mark.parametrize(
    ("outlines", "dead", "expected"),
    [
        ({}, "", ("not running", "")),
        ({}, "no broker", ("dead", "no broker")),
        ({FIRST.mux.name: said("stalled", "no answer")}, "no broker", ("dead", "no broker")),
        ({FIRST.mux.name: said("stalled", "no answer")}, "", ("stalled", "no answer")),
        ({FIRST.mux.name: said("stopped", "stopped by kim", "stopped")}, "", ("stopped", "stopped by kim")),
        ({FIRST.mux.name: said("idle"), DEMUX: said()}, "", ("idle", "")),
        ({FIRST.mux.name: said(), DEMUX: said("paused", "by kim")}, "", ("paused", f"{DEMUX}: by kim")),
        ({FIRST.mux.name: said(), DEMUX: said("stalled", "another's")}, "", ("running", "")),
        ({DEMUX: said()}, "", ("elsewhere", "spoke1->hub.mux is not run here")),
    ],
)
def test_a_state_in_words(outlines: Mapping[str, Any], dead: str, expected: tuple[str, str]) -> None:
    assert state_of(FIRST, outlines, dead) == expected


def test_trouble_of_its_own_shared_topic_is_its_own_and_not_the_others() -> None:
    topics = {"mux-replication_spoke1": a_topic("the disk is full"), "spoke2.mux-replication_spoke2": a_topic()}
    whole = {name: said() for name in (FIRST.mux.name, SECOND.mux.name)} | {DEMUX: said("stalled", topics=topics)}
    assert state_of(FIRST, whole, "") == ("stalled", f"{DEMUX}: the disk is full")
    assert state_of(SECOND, whole, "") == ("running", "")


def test_a_row_has_lag_rate_weight_and_cap() -> None:
    topics = {"spoke2.mux-replication_spoke2": a_topic()}
    whole = {SECOND.mux.name: said(), DEMUX: said(topics=topics)}
    one = row(SECOND, whole, "", Left(2, 40))
    assert (one.lag_records, one.waiting_records, one.records_per_s, one.bytes_per_s) == (7, 42, 5.0, 1e6)
    assert (one.weight, one.cap_bytes_per_s, one.shared_topic) == (3, 5_000_000, "mux-replication_spoke2")
    gone = row(SECOND, whole, "no broker", Left(None, 40, "what spoke2 still holds cannot be known"))
    assert (gone.state, gone.lag_records, gone.waiting_records) == ("dead", None, None)
    lines = table([one, gone]).splitlines()
    assert lines[1].split() == ["spoke2", "hub", "running", "7", "42", "5", "1", "3", "5"]
    assert lines[2].split()[:5] == ["spoke2", "hub", "dead", "?", "?"]
    assert lines[2].endswith("no broker")


def test_an_outline_has_sums_by_topic_and_whole_orders() -> None:
    order = Order(None, None, "stopped", "kim", 0)
    parked = (ParkedPartition("t", None, "not allowed", ""),)
    told = outline(FlowReport("a", "b", FlowStatus("a->b", "stopped", "by kim", orders=(order,), parked=parked)))
    assert (told["ordered"], told["healthy"], told["parked"]) == ("stopped", True, {"t": "not allowed"})
    json.dumps(told)


def test_list_asks_clusters_and_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f"
    file.write_bytes(DATA)
    monkeypatch.setattr("heliograph.review.spokes.dead", lambda cluster: "gone" if cluster.alias == "spoke2" else "")
    monkeypatch.setattr(spokes, "left_of", lambda spoke, dead: Left(0, 9))
    monkeypatch.setattr(client, "processes", lambda file: [])
    assert heliograph(["spoke", "list", str(file), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["spoke"], one["state"], one["waiting_records"]) for one in found] == [
        ("spoke1", "not running", 9),
        ("spoke2", "dead", 9),
    ]


# ---------------------------------------------------------------- the file


class Place:
    pid = 7


class FakeProcess:
    place = Place()
    flows = tuple(flow.name for flow in FLOWS if flow)

    def __str__(self) -> str:
        return "process 7"


def test_a_file_is_replaced_whole_with_its_mode_and_through_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    edited.replace(link, b"old", b"new")
    assert (real.read_bytes(), real.stat().st_mode & 0o777, link.is_symlink()) == (b"new", 0o640, True)
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]
    with pytest.raises(ConfigError, match="somebody else"):
        edited.replace(link, b"old", b"newer")


@pytest.mark.parametrize("refused", [Answered("UNREACHABLE", "no broker", ""), ControlError("does not answer")])
def test_a_file_that_a_process_refuses_is_put_back_and_one_that_it_may_have_taken_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: ControlError
) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"old")

    def speak(*_: Any) -> Mapping[str, Any]:
        assert file.read_bytes() == b"new", "it is there before anybody is asked to read it"
        raise refused

    monkeypatch.setattr(client, "speak", speak)
    with pytest.raises(ControlError):
        edited.take_up(file, b"old", b"new", [FakeProcess()])  # type: ignore[list-item]
    assert file.read_bytes() == (b"old" if isinstance(refused, Answered) else b"new")


def test_without_yes_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f"
    file.write_bytes(DATA)
    wish = ["spoke", "add", str(file), "spoke3", "--bootstrap-servers", "s:1", "--topics", "t", "--weight", "2"]
    assert heliograph(wish) == 0
    assert "+spoke3->hub.demux.weight = 2" in capsys.readouterr().out
    monkeypatch.setattr("heliograph.review.spokes.dead", lambda cluster: "")
    monkeypatch.setattr(spokes, "left_of", lambda spoke, dead: Left(0, 9))
    assert heliograph(["spoke", "remove", str(file), "spoke1"]) == 0
    told = capsys.readouterr()
    assert "9 records of mux-replication_spoke1 wait to be put back" in told.err
    assert "-spoke1->hub.enabled = true" in told.out
    assert file.read_bytes() == DATA


def test_with_nobody_to_drain_it_a_spoke_is_not_removed_unless_told_to_leave_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f"
    file.write_bytes(DATA)
    monkeypatch.setattr("heliograph.review.spokes.dead", lambda cluster: "")
    monkeypatch.setattr(spokes, "left_of", lambda spoke, dead: Left(0, 9))
    monkeypatch.setattr(client, "processes", lambda file: [])
    assert heliograph(["spoke", "remove", str(file), "spoke1", "--yes"]) == 2
    assert "--leave-records" in capsys.readouterr().err
    assert file.read_bytes() == DATA
    assert heliograph(["spoke", "remove", str(file), "spoke1", "--yes", "--leave-records"]) == 0
    assert b"spoke1" not in file.read_bytes()


# ---------------------------------------------------------------- what is left


def test_what_is_behind_a_position_and_still_in_the_log_is_left() -> None:
    tps = [TopicPartition("m", n) for n in range(4)]
    positions = {tps[0]: Position(10), tps[1]: Position(2), tps[3]: Position(99)}
    starts = {tps[0]: 0, tps[1]: 5, tps[2]: 3, tps[3]: 0}
    ends = dict(zip(tps, (12, 9, 7, 50), strict=True))
    assert count(positions, starts, ends).records == 2 + 4 + 4 + 0


class Looks(Drain):
    """What is found at each look: on the spoke, and on the hub, with the end there."""

    def __init__(self, dead: str, found: Sequence[tuple[int, int, int]]) -> None:
        super().__init__(SECOND, dead)
        self.found, self.looks = list(found), 0

    def _watch(self, key: str, flow: Any, topic: str) -> Waiting:
        on_spoke, on_hub, end = self.found[min(self.looks, len(self.found) - 1)]
        if key == "demux":
            self.looks += 1
        return Waiting(on_hub if key == "demux" else on_spoke, {TopicPartition(topic, 0): end})


def test_drained_is_what_was_seen_empty_twice_with_nothing_come_in_between() -> None:
    told: list[Left] = []
    drain = Looks("", [(5, 0, 10), (0, 5, 15), (0, 0, 15), (0, 0, 18), (0, 0, 18), (0, 0, 99)])
    assert drain.wait(60, told.append, pause=lambda s: None) == Left(0, 0)
    assert drain.looks == 5
    assert told[:2] == [Left(5, 0), Left(0, 5)]


def test_of_a_dead_spoke_what_the_hub_has_is_drained() -> None:
    drain = Looks("no broker", [(0, 3, 10), (0, 0, 10), (0, 0, 10)])
    left = drain.wait(60, lambda one: None, pause=lambda s: None)
    assert (left.on_spoke, left.on_hub) == (None, 0)
    assert "what spoke2 still holds cannot be known: no broker" in left.why


def test_what_is_not_drained_in_time_is_told() -> None:
    assert Looks("", [(0, 3, 10)]).wait(0, lambda one: None, pause=lambda s: None).on_hub == 3


# ---------------------------------------------------------------- a hub begins


def living(monkeypatch: pytest.MonkeyPatch, *dead: str) -> None:
    def ask(cluster: Any, timeout_s: float) -> str:
        if cluster.alias in dead:
            raise Unreachable(f"no broker at {cluster.bootstrap}")
        return f"id-{cluster.alias}"

    monkeypatch.setattr(reach, "_cluster_id", ask)


def begins() -> Sequence[Flow]:
    return [flow for flow in FLOWS if flow is not None]


def test_a_hub_begins_without_a_dead_spoke(monkeypatch: pytest.MonkeyPatch) -> None:
    living(monkeypatch)
    assert reach.check_begin(begins()) == frozenset()
    living(monkeypatch, "spoke2")
    assert reach.check_begin(begins()) == {"spoke2->spoke2.mux", "spoke2->hub"}


@pytest.mark.parametrize("dead", [("hub",), ("spoke1", "spoke2"), ("spoke1", "hub")])
def test_without_hub_or_any_spoke_nothing_begins(monkeypatch: pytest.MonkeyPatch, dead: tuple[str, ...]) -> None:
    living(monkeypatch, *dead)
    with pytest.raises(Unreachable):
        reach.check_begin(begins())

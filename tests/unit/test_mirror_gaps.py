"""Retention is faster than a divided partition: what becomes of its strands, in a real task over a source that begins
later than one of them stands."""

from __future__ import annotations

import types
from typing import Any

import pytest

from heliograph.batch import Record, encode
from heliograph.mirror import task
from heliograph.mirror.assignment import Assignment, Coordinates, LaneSpec
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.positions import Position
from heliograph.types import Cluster, Policies, TopicPartition
from heliograph.wire.codes import OFFSET_OUT_OF_RANGE
from heliograph.wire.fetched import FetchAnswer, Fetched
from tests.model_task import NODE, TOPIC_ID, TP, patch_task

EARLIEST, LATEST, SESSION = 300, 600, 5
LATER = 1e12  # by this time every pause is over


class Divided:
    """Two strands; the source has records from EARLIEST to LATEST."""

    def __init__(self, patched: pytest.MonkeyPatch, *places: int, **on: str) -> None:
        patch_task(patched)
        specs = tuple(
            LaneSpec(
                *(TP, TOPIC_ID, TopicPartition("us.t", q), Position(at, 100 + q, 0, 0, TOPIC_ID, 0), 1 << 20),
                strands=len(places),
            )
            for q, at in enumerate(places)
        )
        self.task = task.Task(
            Assignment(
                *("us->eu", Cluster("us"), Cluster("eu"), "read_committed", "p", 1, "", 0, 1, 0, 60.0, specs),
                Coordinates("127.0.0.1", 1, b""),
                on=Policies(**on),  # type: ignore[arg-type]
            )
        )
        self.written: list[str] = []
        self.task._halts.active = True
        self.task._incidents._append = lambda incident, keep: self.written.append(incident.kind)  # type: ignore[method-assign]
        self.task._target.push = lambda now: None  # type: ignore[method-assign]  # what is fetched stays where it is
        self.source: Any = self.task._source
        ends = {"earliest": EARLIEST, "latest": LATEST}
        self.source.brokers.client = types.SimpleNamespace(list_offsets=lambda tps, at: dict.fromkeys(tps, ends[at]))
        self.source.opened(NODE, self.source.brokers.the_connection)
        for lane in self.lanes:
            self.found(lane)

    @property
    def lanes(self) -> list[Lane]:
        return self.task._lanes

    def found(self, lane: Lane) -> None:
        """The probe's answer."""
        lane.found(0)
        self.source.reopen(lane)

    def go_on(self) -> None:
        """Every fetch is answered, and every blocking call, until nothing more happens."""
        for _ in range(10):
            self._answer_fetch()
            self.task._dispatch()
            for calls in (self.source.brokers.errands, self.task._incidents._beside()):
                while calls.todo or calls.done:
                    calls.work()
                    calls.settle()
                    self.task._dispatch()
            self.source.tick(LATER)

    def _answer_fetch(self) -> None:
        puller = self.source._pullers[NODE]
        if not puller.outstanding:
            return
        want = puller.session._sent.get(TP)
        parts = [] if want is None else [(TOPIC_ID, _part(want.offset))]
        self.source.received(NODE, None, FetchAnswer(0, 0, SESSION, parts))


def _part(offset: int) -> Fetched:
    if offset < EARLIEST:
        return Fetched("", TP.partition, OFFSET_OUT_OF_RANGE, -1, -1, -1, (), b"")
    records = encode([Record(at, 1, b"%d" % at, b"x") for at in range(offset, LATEST)]) if offset < LATEST else b""
    return Fetched("", TP.partition, 0, LATEST, LATEST, EARLIEST, (), records)


def test_a_strand_that_stops_at_a_gap_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    divided = Divided(monkeypatch, 100, 500, gap="stop")
    behind, other = divided.lanes
    divided.go_on()
    assert (behind.state, behind.fetch_offset) == (State.PARKED, 100)
    assert other.fetch_offset == LATEST

    behind.unpark()  # tried again, as every parked one
    divided.found(behind)
    other.discard()
    other.fetch_offset = 550
    divided.go_on()
    assert behind.state is State.PARKED
    assert other.fetch_offset == LATEST
    assert divided.written == ["gap"]


def test_strands_that_are_all_before_a_gap_all_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    divided = Divided(monkeypatch, 100, 200, gap="stop")
    divided.go_on()
    assert [lane.state for lane in divided.lanes] == [State.PARKED] * 2


def test_strands_go_on_behind_a_gap_that_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    divided = Divided(monkeypatch, 100, 200, 500, gap="skip")
    divided.go_on()
    assert [lane.fetch_offset for lane in divided.lanes] == [LATEST] * 3
    assert divided.written == ["gap"]

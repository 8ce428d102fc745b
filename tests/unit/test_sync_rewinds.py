"""A lower offset counts when it lasts: for checkpoints of the source's groups, and for groups on the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from heliograph.errors import BrokerError
from heliograph.formats import Checkpoint
from heliograph.mirror.positions import Position
from heliograph.sync.checkpoints import Checkpoints
from heliograph.sync.groups import GroupSync
from heliograph.sync.marks import Mark
from heliograph.sync.rewinds import Rewinds
from heliograph.types import Cluster, Flow, TopicPartition
from heliograph.wire import Committed

TP, REMOTE = TopicPartition("orders", 0), TopicPartition("a.orders", 0)
FLOW = Flow(Cluster("a"), Cluster("b"))


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("heliograph.sync.checkpoints.time", clock)
    monkeypatch.setattr("heliograph.sync.groups.time", clock)
    monkeypatch.setattr(Rewinds, "seen_s", 12.0)
    return clock


class Positions:
    known: Mapping[TopicPartition, Position] = {TP: Position(1000, 1, 0, 1000, None, 1000)}

    def catch_up(self) -> Mapping[TopicPartition, Position]:
        return self.known


class Offsets:
    def catch_up(self) -> None: ...

    def translate(self, tp: TopicPartition, offset: int, known: object) -> int:
        return offset

    limit = translate

    def generations(self, tp: TopicPartition, position: Position, remote: int) -> frozenset[int]:
        return frozenset([position.producer_id])


class OneGroup(Checkpoints):
    """Its committed offset is what the test says; the topic is a list."""

    def __init__(self) -> None:
        nobody: Any = None
        offsets: Any = Offsets()
        positions: Any = Positions()
        super().__init__(FLOW, nobody, nobody, offsets, positions)
        self.at = 0
        self.written: list[int] = []
        self._log.news = lambda: iter(())  # type: ignore[method-assign]

    def _append(self, fresh: Mapping[Checkpoint, Mark], now_ms: int) -> None:
        self.written += [one.downstream for one in fresh]

    def ensure(self) -> None: ...

    def _refresh_groups(self) -> None: ...

    def _committed(self) -> dict[str, dict[TopicPartition, Committed]]:
        return {"g": {TP: Committed(self.at)}}

    def _starts(self, committed: object) -> dict[TopicPartition, int]:
        return {}

    def read(self, *offsets: int) -> list[int]:
        """A round for each; what it wrote."""
        self.written = []
        for self.at in offsets:
            self.emit()
        return self.written


def test_one_stale_answer_is_no_rewind(clock: Clock) -> None:
    group = OneGroup()
    assert group.read(500) == [500]
    clock.now_s += 60
    assert group.read(300) == []  # a coordinator that died
    clock.now_s += 60
    assert group.read(500, 501) == [501]
    clock.now_s += 60
    assert group.read(400) == []  # another one, much later: the first is forgotten


def test_stale_answers_for_as_long_as_a_session_lasts_are_none_either(clock: Clock) -> None:
    group = OneGroup()
    group.read(500)
    for _ in range(11):
        clock.now_s += 1
        assert group.read(300) == []
    assert group.read(510) == [510]


def test_a_group_that_was_set_back_is_followed(clock: Clock) -> None:
    group = OneGroup()
    group.read(500)
    assert group.read(300, 301) == []  # it reads on from there
    clock.now_s += 12
    assert group.read(310) == [310]
    assert group.read(320) == [320]


class Target:
    """The group's coordinator on the target: what it says, and what was committed."""

    def __init__(self) -> None:
        self.says: int | None = None
        self.commits: list[int] = []

    def describe_groups(self, groups: Mapping[str, object]) -> dict[str, str]:
        return dict.fromkeys(groups, "Empty")

    def group_offsets(self, groups: list[str]) -> dict[str, dict[TopicPartition, Committed]]:
        return {group: {} if self.says is None else {REMOTE: Committed(self.says)} for group in groups}

    def commit_group_offsets(
        self, group: str, wanted: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, BrokerError | None]:
        self.commits += [at.offset for at in wanted.values()]
        self.says = self.commits[-1]
        return dict.fromkeys(wanted)


class Known:
    known: Mapping[tuple[str, TopicPartition], Checkpoint] = {}

    def __init__(self) -> None:
        self.withdrawn: dict[tuple[str, TopicPartition], list[int]] = {}

    def stands(self, downstream: int) -> None:
        self.known = {("g", REMOTE): Checkpoint("g", REMOTE, downstream, downstream)}


def synced(target: Any, checkpoints: Any) -> GroupSync:
    return GroupSync(FLOW, target, checkpoints)


def test_a_stale_answer_of_the_target_sets_no_group_back(clock: Clock) -> None:
    target, known = Target(), Known()
    sync = synced(target, known)
    target.says = 500  # the group has read on the target
    known.stands(400)
    assert sync.sync() == 0
    for stale in (300, None):
        target.says = stale
        clock.now_s += 1
        assert sync.sync() == 0
    target.says = 500
    assert sync.sync() == 0
    known.stands(501)
    assert sync.sync() == 1
    assert target.commits == [501]


def test_a_group_that_was_reset_on_the_target_is_brought_forward_again(clock: Clock) -> None:
    target, known = Target(), Known()
    sync = synced(target, known)
    known.stands(400)
    assert sync.sync() == 1
    target.says = 100
    assert sync.sync() == 0
    clock.now_s += 12
    assert sync.sync() == 1
    assert target.commits == [400, 400]

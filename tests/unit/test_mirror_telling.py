"""What a task reports: partitions of which something changed, and no others, without a look at each of ten thousand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from heliograph.errors import Unreachable
from heliograph.mirror import hindrance, telling
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.hindrance import QUIET_S
from heliograph.mirror.lane import Lane
from heliograph.mirror.pace import Pace
from heliograph.mirror.positions import Position
from heliograph.mirror.protocol import Report
from heliograph.mirror.telling import Telling
from heliograph.mirror.timing import Tellings
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Address, Metadata
from heliograph.wire.metadata import PartitionMeta, TopicMeta

NUMBERS = range(3)
BROKER = Address("b1", 9092)


class Brokers:
    """Broker 1 leads everything and is connected, unless the test says otherwise."""

    def __init__(self, alias: str, topic: str) -> None:
        self.cluster, self.trouble, self.topic = Cluster(alias), None, topic
        self.open: dict[int, Any] = {1: SimpleNamespace(oldest_sent_at=None)}
        self.metadata: Metadata | None = None
        self.learn()

    def learn(self, *leaderless: int) -> None:
        parts = {n: PartitionMeta(-1 if n in leaderless else 1, 0, (1,), (1,), 0) for n in NUMBERS}
        self.metadata = Metadata({1: BROKER}, {self.topic: TopicMeta(self.topic, UUID(int=1), False, 0, parts)}, 1, "c")

    @property
    def connections(self) -> list[Any]:
        return list(self.open.values())

    def connected(self, node: int) -> Any:
        return self.open.get(node)

    def failure(self, node: int) -> Unreachable:
        return Unreachable("b1 is not there")

    def trying_since(self, node: int) -> None:
        return None


class Scene:
    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.now, self.heard, self.looks = 1_000.0, True, 0
        self.throttled = 0
        self.reports: list[Report] = []
        self.lanes = []
        for n in NUMBERS:
            position = Position(10, n + 1, 0, 10, UUID(int=1), 10)
            spec = LaneSpec(TopicPartition("t", n), UUID(int=1), TopicPartition("us.t", n), position, 1 << 20)
            lane = Lane.of(spec)
            lane.found(0)
            lane.high_watermark = 10
            self.lanes.append(lane)
        self.source: Any = SimpleNamespace(
            brokers=Brokers("us", "t"),
            budget=SimpleNamespace(told=list),
            key_of=lambda lane: 1,
            is_stalled=lambda lane: False,
            held_back=lambda lane: "",
            throttled_ms=lambda lane: self.throttled,
        )
        self.target: Any = SimpleNamespace(
            brokers=Brokers("eu", "us.t"), latencies=Tellings(), pace=Pace(), key_of=lambda lane: 1
        )
        patched.setattr(telling.time, "monotonic", lambda: self.now)
        looked = hindrance.of_lane

        def look(*args: Any) -> hindrance.Hindrance:
            self.looks += 1
            return looked(*args)

        patched.setattr(hindrance, "of_lane", look)
        self.telling = Telling(self, self.lanes, self.source, self.target)  # type: ignore[arg-type]

    def tell(self, report: Report, *, wait_s: float = 0.0) -> bool:
        """As the link to the driver."""
        self.reports.append(report)
        return self.heard

    def told(self, *, last: bool = False) -> dict[int, str]:
        """Of the partitions in the next report: what is in their way."""
        self.source.is_throttled = bool(self.throttled)
        self.now, self.looks = self.now + 1.0, 0
        self.telling.tell(last=last)
        return {row.partition: row.why for row in self.reports[-1].lanes}

    def connection(self, side: Any) -> Any:
        return side.brokers.open[1]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene(monkeypatch)
    assert scene.told() == dict.fromkeys(NUMBERS, "")
    return scene


def test_partitions_that_stand_still_are_not_looked_at_again(scene: Scene) -> None:
    assert scene.told() == {}
    assert scene.looks == 0


def test_one_that_moved_is_told_alone(scene: Scene) -> None:
    scene.lanes[1].high_watermark = 12
    assert scene.told() == {1: ""}
    scene.lanes[1].jump(12)
    assert scene.told() == {1: ""}
    assert scene.told() == {}
    assert scene.looks == 0


def test_one_that_lost_track_is_told(scene: Scene) -> None:
    scene.lanes[2].lose_track()
    assert set(scene.told()) == {2}
    scene.lanes[2].found(0)
    assert scene.told() == {2: ""}


def test_what_the_source_says_of_one_is_told(scene: Scene) -> None:
    scene.lanes[0].read_trouble = "us gives no records"
    assert scene.told() == {0: "us gives no records"}
    scene.lanes[0].read_trouble = ""
    assert scene.told() == {0: ""}


def test_a_broker_that_is_gone_is_in_everybodys_way(scene: Scene) -> None:
    gone = scene.source.brokers.open.pop(1)
    assert scene.told() == dict.fromkeys(NUMBERS, "b1 is not there; tried again within 2 s")
    scene.source.brokers.open[1] = gone
    assert scene.told() == dict.fromkeys(NUMBERS, "")


def test_a_broker_that_does_not_answer_is_in_everybodys_way_and_comes_back(scene: Scene) -> None:
    scene.connection(scene.source).oldest_sent_at = scene.now
    assert scene.told() == {}, "not yet"
    scene.now += QUIET_S
    assert all("does not answer" in why for why in scene.told().values())
    assert scene.told() == {}
    scene.connection(scene.source).oldest_sent_at = None
    assert scene.told() == dict.fromkeys(NUMBERS, "")


def test_a_partition_without_a_leader_is_told(scene: Scene) -> None:
    scene.source.brokers.learn(1)
    found = scene.told()
    assert set(found) == {1}
    assert "has no leader" in found[1]
    scene.source.brokers.learn()
    assert scene.told() == {1: ""}


def test_a_quota_is_told_and_its_end(scene: Scene) -> None:
    scene.throttled = 200
    assert all("throttles" in why for why in scene.told().values())
    scene.throttled = 0
    assert scene.told() == dict.fromkeys(NUMBERS, "")


def test_a_report_that_nobody_heard_is_told_again(scene: Scene) -> None:
    scene.heard = False
    assert scene.told() == {}
    scene.heard = True
    assert set(scene.told()) == set(NUMBERS)


def test_the_last_report_says_everything(scene: Scene) -> None:
    assert set(scene.told(last=True)) == set(NUMBERS)

"""What is in a lane's way, in words, by what a task can see without asking."""

from __future__ import annotations

from uuid import UUID

import pytest

from heliograph.batch import Piece
from heliograph.errors import HeliographError, Unreachable
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.hindrance import NONE, QUIET_S, Hindrance, of_lane, of_partition
from heliograph.mirror.lane import Lane, Sent, State
from heliograph.mirror.positions import Position
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Address, Metadata
from heliograph.wire.metadata import PartitionMeta, TopicMeta

TP, REMOTE = TopicPartition("orders", 0), TopicPartition("us.orders", 0)
NOW = 1_000.0
ONE = Address("b1", 9092)
ON_ITS_WAY = Sent(Piece(bytearray(), 1, 0, 1, 0, ((0, 1),)), 0)


class Connected:
    def __init__(self, oldest_sent_at: float | None = None) -> None:
        self.oldest_sent_at = oldest_sent_at


class Brokers:
    """Broker 1 leads everything and is connected, unless the test says otherwise."""

    def __init__(self, alias: str, tp: TopicPartition) -> None:
        self.cluster = Cluster(alias)
        self.trouble: HeliographError | None = None
        self.connection: Connected | None = Connected()
        self.failed: HeliographError | None = None
        self.tried: float | None = None
        self.metadata: Metadata | None = None
        self.led(tp, 1)

    def led(self, tp: TopicPartition, leader: int, offline: tuple[int, ...] = ()) -> None:
        part = PartitionMeta(leader, 0, (1, 2), (), 0, offline)
        topic = TopicMeta(tp.topic, UUID(int=1), False, 0, {tp.partition: part})
        self.metadata = Metadata({1: ONE}, {tp.topic: topic}, 1, "c")

    def connected(self, node: int) -> Connected | None:
        return self.connection

    def failure(self, node: int) -> HeliographError | None:
        return self.failed

    def trying_since(self, node: int) -> float | None:
        return self.tried


class Side:
    """The reading or the writing side of a task."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.stalled = False
        self.throttle = 0
        self.cap = ""

    def is_stalled(self, lane: Lane) -> bool:
        return self.stalled

    def throttled_ms(self, lane: Lane) -> int:
        return self.throttle

    def key_of(self, lane: Lane) -> int:
        return 1

    def held_back(self, lane: Lane) -> str:
        return self.cap


class Scene:
    def __init__(self) -> None:
        self.source, self.target = Side(Brokers("us", TP)), Side(Brokers("eu", REMOTE))
        self.lane = Lane.of(LaneSpec(TP, UUID(int=1), REMOTE, Position(0, 1, 0, 0, UUID(int=1)), 1_000_000))
        self.lane.found(0)
        self.lane.high_watermark = 10

    def look(self) -> Hindrance:
        return of_lane(self.lane, self.source, self.target, NOW)  # type: ignore[arg-type]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nothing_is_in_the_way(scene: Scene) -> None:
    assert scene.look() == NONE
    assert of_partition(scene.source.brokers, TP, NOW) == ""  # type: ignore[arg-type]


def test_no_leader_names_where_the_replicas_are(scene: Scene) -> None:
    scene.source.brokers.led(TP, -1)
    found = scene.look()
    assert found.why.startswith("orders-0 has no leader on us: its replicas are on broker 1, 2")
    assert found.blind


def test_a_replica_that_is_offline_on_a_broker_that_is_up_lost_its_disk(scene: Scene) -> None:
    scene.source.brokers.led(TP, -1, offline=(2,))  # broker 2 is down: nothing is known of its disks
    assert "its replicas are on broker 1, 2, and none of them that is up may lead" in scene.look().why
    scene.source.brokers.led(TP, -1, offline=(1, 2))
    found = scene.look()
    assert found.why.startswith(
        "orders-0 has no leader on us: broker 1 is up and its log directory with this partition"
    )
    assert "a disk failed or is full. Make room, then restart the broker" in found.why


def test_what_a_broker_said_of_its_disk_is_remembered_when_it_is_gone(scene: Scene) -> None:
    scene.lane.in_flight.append(ON_ITS_WAY)
    scene.lane.write_trouble = "eu takes no records now: KAFKA_STORAGE_ERROR. A disk of the broker failed or is full"
    scene.target.brokers.connection = None
    scene.target.brokers.failed = Unreachable("eu broker b1:9092: refused")
    assert scene.look().why == (
        "eu broker b1:9092: refused; tried again within 2 s; "
        "before that, eu takes no records now: KAFKA_STORAGE_ERROR. A disk of the broker failed or is full"
    )
    scene.lane.lose_track()  # asked by rule D, it says nothing either
    assert "before that, eu takes no records now: KAFKA_STORAGE_ERROR" in scene.look().why
    scene.target.brokers.led(REMOTE, -1, offline=(1,))  # nor need it, where what is seen says it already
    assert "before that" not in scene.look().why


def test_a_leader_that_is_not_in_the_cluster_is_none(scene: Scene) -> None:
    scene.source.brokers.led(TP, 7)
    assert "has no leader on us" in scene.look().why


def test_a_broker_that_refuses_connections(scene: Scene) -> None:
    scene.source.brokers.connection = None
    assert scene.look().why == "us broker b1:9092 is being connected to"
    scene.source.brokers.failed = Unreachable("us broker b1:9092: refused", fix="Is it up?")
    assert scene.look() == Hindrance("us broker b1:9092: refused; tried again within 2 s", blind=True)


def test_what_a_broker_said_last_time_gives_way_to_its_silence_now(scene: Scene) -> None:
    scene.source.brokers.connection = None
    scene.source.brokers.failed = Unreachable("us broker b1:9092: refused", fix="Is it up?")
    scene.source.brokers.tried = NOW - QUIET_S
    assert "refused" in scene.look().why
    scene.source.brokers.tried = NOW - QUIET_S - 0.1
    assert scene.look() == Hindrance("us broker b1:9092 does not answer; it is being connected to", blind=True)


def test_a_broker_that_is_silent_for_long(scene: Scene) -> None:
    scene.source.brokers.connection = Connected(oldest_sent_at=NOW - QUIET_S)
    assert scene.look() == NONE  # a long poll is silent too, for half a second
    scene.source.brokers.connection = Connected(oldest_sent_at=NOW - QUIET_S - 0.1)
    assert scene.look().why.startswith("us broker b1:9092 does not answer")
    assert scene.look().blind


def test_a_cluster_that_cannot_be_asked_at_all(scene: Scene) -> None:
    scene.source.brokers.metadata = None
    assert scene.look().why == "us has not said yet who leads orders-0"
    scene.source.brokers.trouble = Unreachable("us: no broker can be reached (b1:9092: refused)")
    assert scene.look().why == "us: no broker can be reached (b1:9092: refused)"


def test_the_target_matters_only_when_something_is_to_be_written(scene: Scene) -> None:
    scene.target.brokers.led(REMOTE, -1)
    assert scene.look() == NONE
    scene.lane.in_flight.append(ON_ITS_WAY)
    found = scene.look()
    assert "us.orders-0 has no leader on eu" in found.why
    assert not found.blind  # the source is seen all the while


def test_what_is_seen_now_stands_before_what_was_said_last(scene: Scene) -> None:
    scene.lane.in_flight.append(ON_ITS_WAY)
    scene.lane.write_trouble = "eu takes no records now: NOT_LEADER_OR_FOLLOWER"
    scene.target.brokers.led(REMOTE, -1)
    assert "us.orders-0 has no leader on eu" in scene.look().why


def test_a_broker_that_answers_and_refuses_is_quoted(scene: Scene) -> None:
    scene.lane.in_flight.append(ON_ITS_WAY)
    scene.lane.write_trouble = "eu takes no records now: NOT_ENOUGH_REPLICAS"
    assert scene.look().why == "eu takes no records now: NOT_ENOUGH_REPLICAS"
    scene.lane.read_trouble = "us gives no records: KAFKA_STORAGE_ERROR"
    assert scene.look().why == "us gives no records: KAFKA_STORAGE_ERROR"


def test_a_lane_that_holds_enough_does_not_complain_of_its_source(scene: Scene) -> None:
    scene.source.stalled = True
    scene.source.brokers.led(TP, -1)
    assert scene.look() == NONE


def test_rule_d_waits_for_the_target(scene: Scene) -> None:
    scene.lane.lose_track()
    assert scene.lane.state is State.LOST
    assert scene.look() == Hindrance("eu is being asked what it holds", blind=True, vague=True)
    scene.target.brokers.led(REMOTE, -1)
    found = scene.look()
    assert "has no leader on eu" in found.why
    assert found.blind
    assert not found.vague


def test_a_cap_is_a_reason(scene: Scene) -> None:
    scene.source.cap = "held back by max.bytes.per.second = 1000"
    assert scene.look() == Hindrance("held back by max.bytes.per.second = 1000", blind=True)


def test_parked_throttled_and_not_seen_yet(scene: Scene) -> None:
    scene.source.throttle = 900
    assert scene.look().why == "us throttles this client: a quota is used up"
    scene.source.throttle = 0
    scene.lane.high_watermark = -1
    assert scene.look() == Hindrance("us is being asked", blind=True, vague=True)
    scene.lane.park("no permission")
    assert scene.look() == Hindrance("no permission", blind=True)

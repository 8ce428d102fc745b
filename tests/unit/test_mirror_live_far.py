"""A live partition with small batches and a target far away, by a clock of the test's: it must not fall behind."""

from __future__ import annotations

import os
import selectors
from collections import deque
from typing import Any, cast

import pytest

from heliograph.batch import Chunk, Header, Record, encode, warm
from heliograph.mirror import append
from heliograph.mirror.append import Target
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.ledger import IN_FLIGHT
from heliograph.mirror.pace import Pace
from heliograph.mirror.positions import Position
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Produced
from tests.unit.test_mirror_fetch import NODE, Brokers
from tests.unit.test_mirror_turns import ID, Wire


class Far:
    """One lane to a target, whose answers take a round trip."""

    def __init__(self, selector: selectors.BaseSelector, round_trip_ms: int) -> None:
        position = Position(0, 1, 0, 0, ID, 0)
        self.lane = Lane.of(LaneSpec(TopicPartition("t", 0), ID, TopicPartition("a.t", 0), position, 1 << 20))
        self.lane.state = State.FLOWING
        self.target = Target(
            Cluster("far"), [self.lane], set(), selector, events=deque(),
        )  # fmt: skip
        self.wire = Wire()
        self.wire.round_trip_s = round_trip_ms / 1000
        self.target.opened(NODE, cast(Any, self.wire))
        self.target.pace = Known(round_trip_ms / 1000)
        self.round_trip_ms = round_trip_ms
        self.under_way: deque[tuple[int, int, list[Any]]] = deque()
        self.sizes: list[int] = []  # records of each batch that was sent
        self.seen = self.end = 0
        self.late_ms: list[int] = []  # of each record, by its acknowledgement

    def arrives(self, now_ms: int, size: int, codec: int = 0) -> None:
        """A batch in an answer of its own, as a source near by gives it."""
        data = encode([Record(self.lane.fetch_offset, now_ms, None, bytes(size))], codec=codec)
        limits = self.target.pace.limits(1 << 20)
        self.lane.push(Chunk(data, wanted=self.lane.fetch_offset, limits=limits))
        self.target.wake(self.lane)

    def turn(self, now_ms: int, every_ms: int) -> None:
        while self.under_way and self.under_way[0][0] <= now_ms:
            _, base, parts = self.under_way.popleft()
            before = self.lane.acked.next_offset
            self.target.received(NODE, None, [Produced(topic, part, 0, base, -1, 0) for topic, part, _ in parts])
            self.late_ms += [now_ms - every_ms * offset for offset in range(before, self.lane.acked.next_offset)]
        self.target.push(float(now_ms))
        for parts in self.wire.requests[self.seen :]:
            ((_, _, data),) = parts
            self.under_way.append((now_ms + self.round_trip_ms, self.end, parts))
            self.sizes.append(Header.parse(data).count)
            self.end += self.sizes[-1]
            self.seen += 1


class Known(Pace):
    """A round trip that nothing changes: the test's answers take no time of ours."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def answered(self, seconds: float) -> None: ...

    @property
    def round_trip_s(self) -> float:
        return self._seconds


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Any:
    warm()
    monkeypatch.setattr(append, "Brokers", Brokers)
    monkeypatch.setattr(append, "produce_request", lambda version, parts: parts)
    monkeypatch.setattr(append, "produced", lambda response: response)
    with selectors.DefaultSelector() as selector:
        yield lambda round_trip_ms: Far(selector, round_trip_ms)


@pytest.mark.parametrize("codec", [0, 4])
def test_a_kilobyte_every_ten_milliseconds_over_a_hundred_stays_as_late_as_it_was(far: Any, codec: int) -> None:
    """Five batches are in flight, ten come in a round trip: 0.1 sent them one by one and fell behind for ever."""
    stage = far(100)
    for now_ms in range(30_000):
        if now_ms % 10 == 0:
            stage.arrives(now_ms, 1000, codec)
        stage.turn(now_ms, 10)
    third = len(stage.late_ms) // 3
    assert len(stage.late_ms) > 2_900
    assert max(stage.late_ms) < 400
    assert max(stage.late_ms[2 * third :]) <= max(stage.late_ms[:third]), "it does not grow"


def test_a_batch_waits_for_no_other_while_there_is_a_place_in_flight(far: Any) -> None:
    stage = far(100)
    stage.lane.proven = True
    for now_ms in range(2_000):
        if now_ms % 50 == 0:
            stage.arrives(now_ms, 1000)
        stage.turn(now_ms, 50)
    assert set(stage.sizes) == {1}
    assert max(stage.late_ms) == 100


def test_packed_batches_of_a_near_target_are_not_unpacked_to_be_joined(far: Any) -> None:
    """At half a millisecond five of 16 KiB a round trip are 160 MB/s: merging would cost more than it saves."""
    stage = far(1)
    stage.target.pace = Known(0.0005)
    for _ in range(3 * IN_FLIGHT):
        wanted = stage.lane.fetch_offset
        data = encode([Record(wanted + n, 1, None, os.urandom(2000)) for n in range(8)], codec=4)
        stage.lane.push(Chunk(data, wanted=wanted, limits=stage.target.pace.limits(1 << 20)))
    stage.target.wake(stage.lane)
    for now_ms in range(50):
        stage.turn(now_ms, 1)
    assert set(stage.sizes) == {8}


def test_what_is_joined_keeps_its_records_their_order_and_the_account(far: Any) -> None:
    stage = far(100)
    lane = stage.lane
    for n in range(20):
        stage.arrives(n, 100 * n, codec=n % 5)
    queued_bytes = lane.queued_bytes
    lane.join(12)
    assert len(lane.chunks) == 9
    assert lane.queued_bytes == queued_bytes == sum(chunk.remaining_bytes for chunk in lane.chunks)
    sent = lane.next_batch(lambda *_: True)
    assert sent is not None
    assert sent.piece.runs == ((0, 12),)
    assert lane.queued_bytes == sum(chunk.remaining_bytes for chunk in lane.chunks)

"""The reading side of a task against a broker that answers what the test says."""

from __future__ import annotations

import selectors
import struct
import time
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from heliograph.batch import Limits, Record, encode
from heliograph.mirror import fetch
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.fetch import LANE_BYTES, LONG_POLL_MS, SHORT_POLL_MS, Source
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.pace import BACKOFF_MOST_S, backoff_s
from heliograph.mirror.positions import Position
from heliograph.types import Cluster, TopicPartition
from heliograph.wire.fetched import FetchAnswer, Fetched

TOPIC_ID = uuid.UUID(int=7)
BACKLOG, IDLE = TopicPartition("t", 0), TopicPartition("t", 1)
NODE = 1
SESSION = 5
NOT_LEADER = 6


class Connection:
    """Keeps what was asked."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def version(self, api: str, *, at_most: int | None = None) -> int:
        return 17

    def send(self, request: Any, tag: object = None) -> None:
        self.requests.append(request)

    @property
    def last_wait_ms(self) -> float:
        return float(self.requests[-1].max_wait_ms)


class Brokers:
    """One broker that leads everything."""

    def __init__(self, cluster: Cluster, topics: set[str], selector: Any, owner: Any) -> None:
        self.cluster, self.the_connection = cluster, Connection()

    def leader(self, tp: TopicPartition) -> int:
        return NODE

    def connection(self, node: int) -> Connection:
        return self.the_connection

    def refresh(self) -> None: ...
    def watch(self, node: int) -> None: ...
    def tick(self, now: float) -> None: ...


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    monkeypatch.setattr(fetch, "Brokers", Brokers)
    lanes = [
        Lane.of(LaneSpec(tp, TOPIC_ID, TopicPartition("a.t", tp.partition), Position(0, 1, 0, 0, TOPIC_ID), 1 << 20))
        for tp in (BACKLOG, IDLE)
    ]
    for lane in lanes:
        lane.state = State.FLOWING
    with selectors.DefaultSelector() as selector:
        yield Source(
            Cluster("a"), lanes, selector, isolation="read_committed", limits=lambda most: Limits(max_batch_bytes=most),
            events=deque(),
        )  # fmt: skip


def answer(source: Source, tp: TopicPartition, records: bytes = b"") -> None:
    part = Fetched("", tp.partition, 0, 1 << 40, 1 << 40, 0, (), records)
    source.received(NODE, None, FetchAnswer(0, 0, SESSION, [(TOPIC_ID, part)]))
    source.pull(NODE)  # as the task's loop does when what came is sent


def test_a_lane_that_stalls_does_not_wait_behind_idle_partitions_long_poll(source: Source) -> None:
    connection: Any = source.brokers.connection(NODE)
    source.opened(NODE, connection)
    assert connection.last_wait_ms == LONG_POLL_MS
    lane = source._bundles[BACKLOG].lanes[0]
    while lane.queued_bytes < LANE_BYTES:
        answer(source, BACKLOG, encode([Record(lane.fetch_offset, 1, None, bytes(900_000))]))
    assert connection.requests[-1].forgotten_topics_data, "a lane that holds enough is fetched no more"
    assert connection.last_wait_ms == SHORT_POLL_MS

    answer(source, IDLE)  # nothing came, the lane is still full
    assert connection.last_wait_ms == SHORT_POLL_MS

    before = len(connection.requests)
    lane.chunks.clear()
    lane.queued_bytes = 0
    source.drained(lane)
    answer(source, IDLE)
    assert len(connection.requests) > before
    assert [p.partition for t in connection.requests[-1].topics for p in t.partitions] == [BACKLOG.partition]
    assert connection.last_wait_ms == LONG_POLL_MS


def refuse(source: Source, tp: TopicPartition, code: int) -> None:
    part = Fetched("", tp.partition, code, -1, -1, -1, (), b"")
    source.received(NODE, None, FetchAnswer(0, 0, SESSION, [(TOPIC_ID, part)]))


def lane_of(source: Source, tp: TopicPartition) -> Lane:
    return source._bundles[tp].lanes[0]


def test_an_answer_of_the_source_does_not_end_the_backoff_of_the_target(source: Source) -> None:
    source.opened(NODE, source.brokers.connection(NODE))  # type: ignore[arg-type]  # a fake
    lane = lane_of(source, BACKLOG)
    lane.failures = 7
    answer(source, BACKLOG, encode([Record(0, 1, None, b"x")]))
    assert lane.fetch_offset == 1
    assert lane.failures == 7


def test_a_partition_that_is_refused_again_and_again_is_asked_ever_more_rarely(source: Source) -> None:
    connection: Any = source.brokers.connection(NODE)
    source.opened(NODE, connection)
    refuse(source, BACKLOG, NOT_LEADER)
    assert BACKLOG in source._homeless, "the first time at once: its leader has changed"
    for failures in range(2, 40):
        source._homeless.add(BACKLOG)
        source.tick(time.monotonic())
        answer(source, IDLE)  # the next request names it
        refuse(source, BACKLOG, NOT_LEADER)
        assert BACKLOG not in source._homeless
        wait_s = source._later.pop(BACKLOG) - time.monotonic()
        assert wait_s <= backoff_s(failures - 1)
    assert wait_s > BACKOFF_MOST_S / 2
    assert lane_of(source, BACKLOG).failures == 0, "which is about writing"
    source._homeless.add(BACKLOG)
    source.tick(time.monotonic())
    answer(source, IDLE)
    answer(source, BACKLOG, encode([Record(0, 1, None, b"x")]))
    assert source._bundles[BACKLOG].read_failures == 0


@pytest.mark.parametrize("more", [1 << 30, 1 << 25, 1 << 21, 200_000])
def test_a_length_field_that_is_too_large_parks_its_partition_and_no_other(source: Source, more: int) -> None:
    """It lies outside the CRC. 0.1 took the batch for one that was cut off and asked for it again at once, for ever."""
    connection: Any = source.brokers.connection(NODE)
    source.opened(NODE, connection)
    lane = lane_of(source, BACKLOG)
    answer(source, BACKLOG, encode([Record(0, 1, None, b"good")]))
    bad = bytearray(encode([Record(1, 1, None, bytes(3000))]))
    struct.pack_into(">i", bad, 8, len(bad) - 12 + more)
    tail = b"".join(encode([Record(n, 1, None, bytes(3000))]) for n in range(2, 50))
    asked = len(connection.requests)
    for _ in range(2000):
        answer(source, BACKLOG, bytes(bad) + tail)
    named = [p.partition for request in connection.requests[asked:] for t in request.topics for p in t.partitions]
    assert named.count(BACKLOG.partition) <= 1, "once more, with room for it"
    assert not source._pullers[NODE].session.wanted(BACKLOG), "and then no more until it is tried again"
    assert lane.state is State.PARKED
    assert "t-0 at offset 1 " in lane.reason
    assert "kafka-dump-log" in lane.fix
    other = lane_of(source, IDLE)
    answer(source, IDLE, encode([Record(0, 1, None, b"x")]))
    assert (other.state, other.fetch_offset) == (State.FLOWING, 1), "the others go on"


def test_a_batch_that_was_cut_off_is_asked_for_with_room_for_it(source: Source) -> None:
    connection: Any = source.brokers.connection(NODE)
    source.opened(NODE, connection)
    lane = lane_of(source, BACKLOG)
    whole = encode([Record(0, 1, None, bytes(6 << 20))])
    answer(source, BACKLOG, whole[: 4 << 20])
    assert lane.state is State.FLOWING
    (asked,) = [p for t in connection.requests[-1].topics for p in t.partitions if p.partition == BACKLOG.partition]
    assert min(asked.partition_max_bytes, connection.requests[-1].max_bytes) >= len(whole)
    answer(source, BACKLOG, whole)
    assert lane.fetch_offset == 1

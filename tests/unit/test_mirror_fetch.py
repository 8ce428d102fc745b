"""The reading side of a task against a broker that answers what the test says."""

from __future__ import annotations

import selectors
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
from heliograph.mirror.positions import Position
from heliograph.types import Cluster, TopicPartition
from heliograph.wire.fetched import FetchAnswer, Fetched

TOPIC_ID = uuid.UUID(int=7)
BACKLOG, IDLE = TopicPartition("t", 0), TopicPartition("t", 1)
NODE = 1
SESSION = 5


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
        return float(self.requests[-1].max_wait.total_seconds() * 1000)


class Brokers:
    """One broker that leads everything."""

    def __init__(self, cluster: Cluster, topics: set[str], selector: Any, owner: Any) -> None:
        self.the_connection = Connection()

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

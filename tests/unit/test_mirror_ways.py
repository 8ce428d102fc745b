"""Live lanes and history on connections of their own, and caps held by not asking: both sides of a task against
brokers that answer what the test says, by a clock of the test's."""

from __future__ import annotations

import selectors
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from heliograph.batch import Chunk, Limits, Record, encode
from heliograph.mirror import append, fetch, sizes, ways
from heliograph.mirror.append import Target
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.budget import Budget
from heliograph.mirror.fetch import FETCH_BYTES, Source
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.positions import Position
from heliograph.types import Cap, Cluster, TopicPartition
from heliograph.wire.fetched import FetchAnswer, Fetched

TOPIC_ID = uuid.UUID(int=7)
OLD, NEW = TopicPartition("t", 0), TopicPartition("t", 1)
NODE = 1
HISTORY_KEY = ways.key_of(NODE, ways.HISTORY)
SESSION = 5
FAR = 1 << 40  # an end that will not be reached


class Connection:
    round_trip_s = 0.0

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def version(self, api: str, *, at_most: int | None = None) -> int:
        return {"fetch": 17, "produce": 9}[api]

    def send(self, request: Any, tag: object = None) -> None:
        self.requests.append(request)

    @property
    def partitions(self) -> list[int]:
        return [p.partition for t in self.requests[-1].topics for p in t.partitions]


class Brokers:
    """One broker that leads everything; connections open when the test says so."""

    def __init__(self, cluster: Cluster, topics: set[str], selector: Any, owner: Any) -> None:
        self.wanted: list[int] = []
        self.open: dict[int, Connection] = {}

    def leader(self, tp: TopicPartition) -> int:
        return NODE

    def connection(self, key: int) -> Connection | None:
        if key not in self.open and key not in self.wanted:
            self.wanted.append(key)
        return self.open.get(key)

    def refresh(self) -> None: ...
    def watch(self, key: int) -> None: ...
    def tick(self, now: float) -> None: ...


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(fetch, "Brokers", Brokers)
    monkeypatch.setattr(append, "Brokers", Brokers)
    monkeypatch.setattr(fetch, "time", found)
    return found


def a_lane(tp: TopicPartition) -> Lane:
    position = Position(0, 1, 0, 0, TOPIC_ID)
    lane = Lane.of(LaneSpec(tp, TOPIC_ID, TopicPartition("a.t", tp.partition), position, 1 << 20))
    lane.state = State.FLOWING
    return lane


def a_strand(q: int, strands: int) -> Lane:
    """Of OLD, which is divided."""
    place = (OLD, TOPIC_ID, TopicPartition("a.t", q), Position(0, 100 + q, 0, 0, TOPIC_ID), 1 << 20)
    lane = Lane.of(LaneSpec(*place, strands=strands))
    lane.state = State.FLOWING
    return lane


@contextmanager
def a_source(*caps: Cap, divided: int = 0) -> Iterator[Source]:
    lanes = [*(a_strand(q, divided) for q in range(divided)), *([] if divided else [a_lane(OLD)]), a_lane(NEW)]
    with selectors.DefaultSelector() as selector:
        yield Source(
            Cluster("a"), lanes, selector, isolation="read_committed", limits=lambda most: Limits(max_batch_bytes=most),
            events=deque(),
            budget=Budget(caps),
        )  # fmt: skip


def lanes_of(source: Source) -> list[Lane]:
    return [lane for bundle in source._bundles.values() for lane in bundle.lanes]


def lane_of(source: Source, tp: TopicPartition) -> Lane:
    (lane,) = source._bundles[tp].lanes
    return lane


def open_(source: Source | Target, key: int) -> Connection:
    brokers = cast(Brokers, source.brokers)
    connection = brokers.open[key] = Connection()
    source.opened(key, cast(Any, connection))
    return connection


def answer(source: Source, key: int, tp: TopicPartition, size: int, end: int = FAR) -> None:
    """One batch of about this size, and where the log ends."""
    records = encode([Record(lane_of(source, tp).fetch_offset, 1, None, bytes(size))]) if size else b""
    part = Fetched("", tp.partition, 0, end, end, 0, (), records)
    source.received(key, None, FetchAnswer(0, 0, SESSION, [(TOPIC_ID, part)]))
    source.pull(key)  # as the task's loop does when what came is sent


def sent_on(source: Source) -> None:
    """Everything fetched goes out."""
    for lane in lanes_of(source):
        lane.chunks.clear()
        lane.queued_bytes = 0
        source.drained(lane)


# -------------------- reading


def test_a_lane_far_behind_gets_a_session_of_its_own_and_comes_back(clock: Clock) -> None:
    with a_source() as source:
        live = open_(source, NODE)
        answer(source, NODE, OLD, 100_000)
        assert lane_of(source, OLD).history
        assert source.brokers.wanted[-1] == HISTORY_KEY, "a second connection is dialled"
        assert OLD.partition in live.partitions, "until there is one it goes with the others"

        history = open_(source, HISTORY_KEY)
        answer(source, NODE, OLD, 100_000)
        assert history.partitions == [OLD.partition]
        assert [p for t in live.requests[-1].forgotten_topics_data for p in t.partitions] == [OLD.partition]
        before = len(live.requests)
        answer(source, HISTORY_KEY, OLD, 100_000)
        assert len(live.requests) == before, "history does not touch the live session"

        answer(source, NODE, NEW, 1_000, end=1)
        assert not lane_of(source, NEW).history
        answer(source, HISTORY_KEY, OLD, 100_000, end=lane_of(source, OLD).fetch_offset + 2)
        assert not lane_of(source, OLD).history, "it is at its end"
        answer(source, NODE, NEW, 1_000, end=2)
        assert OLD.partition in live.partitions


def test_what_is_lost_with_the_connection_of_history_goes_on_with_the_others(clock: Clock) -> None:
    with a_source() as source:
        live = open_(source, NODE)
        open_(source, HISTORY_KEY)
        answer(source, NODE, OLD, 100_000)
        assert source._fetched_at == {OLD: HISTORY_KEY, NEW: NODE}
        source.lost(HISTORY_KEY, cast(Any, None))
        source.tick(clock.now)
        assert source._fetched_at == {OLD: NODE, NEW: NODE}
        answer(source, NODE, NEW, 1_000, end=1)
        assert OLD.partition in live.partitions


def test_a_lane_between_the_bounds_stays_what_it_was() -> None:
    lane = a_lane(OLD)
    for behind, expected in ((4 << 20, False), (9 << 20, True), (4 << 20, True), (1 << 19, False), (4 << 20, False)):
        lane.high_watermark = lane.fetch_offset + behind
        ways.judge(lane, 1000, 1000)
        assert lane.history is expected


def test_stalled_history_does_not_take_the_memory_of_live_lanes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "LANE_BYTES", 1 << 20)
    monkeypatch.setattr(fetch, "TASK_BYTES", 3 << 19)  # two answers fill it
    with a_source() as source:
        open_(source, NODE)
        open_(source, HISTORY_KEY)
        for _ in range(3):
            answer(source, source._fetched_at.get(OLD, NODE), OLD, 900_000)
        assert source.is_stalled(lane_of(source, OLD))
        answer(source, NODE, NEW, 1_000, end=1)
        assert not source.is_stalled(lane_of(source, NEW))


# -------------------- caps


def pump(source: Source, clock: Clock, seconds: float, keys: dict[int, TopicPartition]) -> int:
    """A broker with records without end answers every session at once; how much came."""
    came, until = 0, clock.now + seconds
    while clock.now < until:
        busy = [key for key in keys if (p := source._pullers.get(key)) and p.outstanding and keys[key] in p.bundles]
        for key in busy:
            size = max(source._pullers[key].session.max_bytes - 100, 10_000)
            answer(source, key, keys[key], min(size, 900_000))
            came += min(size, 900_000)
        sent_on(source)
        clock.now = max(clock.now + 0.001, min(source.due, clock.now + 0.01) if not busy else 0)
        source.tick(clock.now)
    return came


def test_a_cap_is_held_over_both_sessions(clock: Clock) -> None:
    with a_source(Cap(10_000_000)) as source:
        open_(source, NODE)
        open_(source, HISTORY_KEY)
        pump(source, clock, 1, {NODE: OLD})
        came = pump(source, clock, 30, {NODE: NEW, HISTORY_KEY: OLD})
        assert came == pytest.approx(300e6, rel=0.03)


def test_without_budget_nothing_is_asked_until_it_is_due(clock: Clock) -> None:
    with a_source(Cap(1_000_000)) as source:
        live = open_(source, NODE)
        assert not live.requests, "a bucket is empty at first"
        assert clock.now < source.due < clock.now + 0.05
        clock.now = source.due
        source.tick(clock.now)
        assert len(live.requests) == 1
        assert live.requests[-1].max_bytes == pytest.approx(20_000, rel=0.01)
        answer(source, NODE, OLD, 900_000)
        assert len(live.requests) == 1
        assert source.held_back(lane_of(source, OLD)) == "held back by max.bytes.per.second = 1000000"
        assert source.due == pytest.approx(clock.now + 0.9, rel=0.01)


def test_topics_under_a_cap_have_a_connection_of_their_own(clock: Clock) -> None:
    with a_source(Cap(1_000_000, "t")) as source:
        key = ways.key_of(NODE, 2)
        source.tick(clock.now)
        assert source.brokers.wanted == [key]
        open_(source, NODE)
        assert not source._pullers[NODE].bundles
        open_(source, key)
        assert set(source._pullers[key].bundles) == {OLD, NEW}


def test_without_caps_an_answer_is_as_large_as_ever(clock: Clock) -> None:
    with a_source() as source:
        live = open_(source, NODE)
        assert live.requests[-1].max_bytes == FETCH_BYTES


# -------------------- a divided partition


def answer_divided(source: Source, key: int, end: int = FAR) -> int:
    """Thirty records of as many keys in one packed batch; how many bytes came."""
    at = min(lane.fetch_offset for lane in source._bundles[OLD].reading or source._bundles[OLD].lanes)
    records = encode([Record(at + n, 1, b"%d" % n, bytes(20_000)) for n in range(30)], codec=1)
    part = Fetched("", OLD.partition, 0, end, end, 0, (), records)
    source.received(key, None, FetchAnswer(0, 0, SESSION, [(TOPIC_ID, part)]))
    return len(records)


def test_one_fetch_for_several_lanes_goes_one_way_by_the_one_least_far(clock: Clock) -> None:
    with a_source(divided=3) as source:
        slow, *others = source._bundles[OLD].lanes
        open_(source, NODE)
        open_(source, HISTORY_KEY)
        answer_divided(source, NODE)
        assert [lane.history for lane in (slow, *others)] == [True, True, True]
        assert source._fetched_at == {OLD: HISTORY_KEY, NEW: NODE}

        source.leave(slow)  # it holds enough
        source._stalled.add(slow)
        answer_divided(source, HISTORY_KEY, end=60)
        assert [lane.history for lane in (slow, *others)] == [True, False, False]
        assert source._fetched_at[OLD] == NODE, "those that are read are at the end"

        source.reopen(slow)
        assert source._fetched_at[OLD] == HISTORY_KEY, "the fetch goes back to where the slow one stood"
        assert source._pullers[HISTORY_KEY].session.wanted(OLD) == slow.fetch_offset == 30
        assert OLD not in source._pullers[NODE].bundles
        assert not any(lane.history for lane in others), "what the others hold goes on, live"


def test_what_a_fetch_for_several_lanes_brings_counts_once_as_it_came(clock: Clock) -> None:
    with a_source(Cap(10_000_000), divided=3) as source:
        open_(source, NODE)
        clock.now = source.due
        source.tick(clock.now)
        came = answer_divided(source, NODE)
        assert all(lane.queued_bytes > came for lane in source._bundles[OLD].lanes), "unpacked"
        assert source.budget.told()[0][0] == came


def test_what_is_halted_takes_nothing_of_a_cap(clock: Clock) -> None:
    with a_source(Cap(10_000_000), divided=3) as source:
        live = open_(source, NODE)
        source.leave(lane_of(source, NEW))
        clock.now = source.due
        source.tick(clock.now)
        assert len(live.requests) == 1
        source.budget.told()
        for lane in source._bundles[OLD].lanes:
            source.leave(lane)
            lane.halt()
        answer_divided(source, NODE)
        clock.now += 1
        source.tick(clock.now)
        assert source.budget.told() == [(0, False)], "nothing taken, and nobody waits"
        assert len(live.requests) == 1
        assert source.due == float("inf")


# -------------------- writing


@contextmanager
def a_target(lanes: list[Lane]) -> Iterator[Target]:
    with selectors.DefaultSelector() as selector:
        yield Target(
            Cluster("b"), lanes, set(), selector, events=deque(),
        )  # fmt: skip


def fill(lane: Lane, batches: int) -> None:
    for _ in range(batches):
        data = encode([Record(lane.fetch_offset, 1, None, b"x" * 100)])
        lane.push(Chunk(data, wanted=lane.fetch_offset, limits=Limits(max_batch_bytes=1 << 20)))


def acknowledge(target: Target, key: int, clock: Clock) -> None:
    request = target._pushers[key].requests.popleft()
    for lane, sent in request.batches:
        lane.acknowledged(sent, lane.next_target if lane.next_target >= 0 else 0)


def test_live_batches_do_not_stand_behind_history(clock: Clock) -> None:
    old, new = a_lane(OLD), a_lane(NEW)
    old.history = True
    with a_target([old, new]) as target:
        live, history = open_(target, NODE), open_(target, HISTORY_KEY)
        for lane in (old, new):
            fill(lane, 1)
            target.wake(lane)
        target.push(clock.now)
        assert [len(c.requests) for c in (live, history)] == [1, 1]
        assert target._pushers[NODE].requests[0].batches[0][0] is new
        assert target._pushers[HISTORY_KEY].requests[0].batches[0][0] is old


def test_a_lane_changes_its_connection_only_when_no_answer_is_due(clock: Clock) -> None:
    lane = a_lane(OLD)
    with a_target([lane]) as target:
        live, history = open_(target, NODE), open_(target, HISTORY_KEY)
        fill(lane, 2)
        target.wake(lane)
        target.push(clock.now)
        assert len(live.requests) == 1
        lane.history = lane.proven = True
        target.push(clock.now)
        assert not history.requests, "its batch on the other connection is not acknowledged"
        acknowledge(target, NODE, clock)
        target.push(clock.now)
        assert len(history.requests) == 1
        assert target.key_of(lane) == HISTORY_KEY


def test_on_the_target_each_strand_goes_its_own_way(clock: Clock) -> None:
    old, new = a_strand(0, 2), a_strand(1, 2)
    old.history = True
    with a_target([old, new]) as target:
        open_(target, NODE)
        open_(target, HISTORY_KEY)
        for lane in (old, new):
            fill(lane, 1)
            target.wake(lane)
        target.push(clock.now)
        assert (target.key_of(old), target.key_of(new)) == (HISTORY_KEY, NODE)
        assert target._pushers[NODE].requests[0].batches[0][0] is new
        assert sizes.decided(target.pace, [old, new]).history == 1
        assert sizes.decided(target.pace, [old, new]).live == 0, "it is one partition of the source"


def test_history_goes_with_the_others_until_its_connection_is_there(clock: Clock) -> None:
    lane = a_lane(OLD)
    lane.history = True
    with a_target([lane]) as target:
        live = open_(target, NODE)
        fill(lane, 1)
        target.wake(lane)
        target.push(clock.now)
        assert len(live.requests) == 1
        assert HISTORY_KEY in cast(Brokers, target.brokers).wanted

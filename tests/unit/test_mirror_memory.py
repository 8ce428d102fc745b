"""The memory of a task: a thousand partitions with a backlog and a target that is slower than the source."""

from __future__ import annotations

import selectors
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from heliograph.batch import Chunk, Limits, Record, encode
from heliograph.mirror import fetch, memory
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.events import LostTrack
from heliograph.mirror.fetch import Source
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.memory import PATIENCE_FIRST_S, Memory
from heliograph.mirror.positions import Position
from heliograph.types import Cluster, TopicPartition
from heliograph.wire.fetched import FetchAnswer, Fetched
from tests.unit.test_mirror_ways import HISTORY_KEY, NODE, SESSION, TOPIC_ID, Brokers, Clock, open_

END = 1 << 40

# Everything at a sixteenth, so that a thousand partitions are quickly filled.
SCALE = 16
TASK_BYTES = fetch.TASK_BYTES // SCALE
FETCH_BYTES = fetch.FETCH_BYTES // SCALE
FETCH_PARTITION_BYTES = fetch.FETCH_PARTITION_BYTES // SCALE
LEAST_PARTITION_BYTES = fetch.LEAST_PARTITION_BYTES // SCALE
LEAST_ROOM_BYTES = memory.LEAST_ROOM_BYTES // SCALE
BATCH_BYTES = 4_000


def a_lane(partition: int, *, history: bool = True) -> Lane:
    remote, position = TopicPartition("a.t", partition), Position(0, 1, 0, 0, TOPIC_ID)
    lane = Lane.of(LaneSpec(TopicPartition("t", partition), TOPIC_ID, remote, position, 4 << 20, history=history))
    lane.state, lane.proven = State.FLOWING, True
    return lane


def a_batch(offset: int, size: int = BATCH_BYTES) -> bytes:
    return encode([Record(offset, 1, None, bytes(size))])


class Leader:
    """Answers fetches as a broker does: a partition's records up to its max_bytes, the response's up to its own, the
    first batch whole whatever its size, and a partition that was served goes to the end of the line."""

    def __init__(self, source: Source, lanes: list[Lane], batch_bytes: dict[int, int] | None = None) -> None:
        self.source, self.batch_bytes = source, batch_bytes or {}
        self.line = [lane.spec.tp for lane in lanes]
        self.served: set[int] = set()

    def answer(self, key: int) -> bool:
        """The fetch that is under way in this session, if one is."""
        puller = self.source._pullers[key]
        if not puller.outstanding:
            return False
        parts: list[tuple[uuid.UUID | None, Fetched]] = []
        left = puller.session.max_bytes
        for tp in [tp for tp in self.line if tp in puller.session._sent and tp in puller.bundles]:
            want = puller.session._sent[tp]
            records, offset = b"", want.offset
            while True:
                batch = a_batch(offset, self.batch_bytes.get(tp.partition, BATCH_BYTES))
                fits = len(records) + len(batch) <= min(want.max_bytes, left)
                if not fits and (parts or records):
                    break
                records, offset = records + batch, offset + 1
                if not fits:
                    break
            if not records:
                break
            left -= len(records)
            parts.append((TOPIC_ID, Fetched("", tp.partition, 0, END, END, 0, (), records)))
            self.line.remove(tp)
            self.line.append(tp)
            self.served.add(tp.partition)
        self.source.received(key, None, FetchAnswer(0, 0, SESSION, parts))
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(fetch, "Brokers", Brokers)
    monkeypatch.setattr(fetch, "time", found)
    for module, name in (
        *((fetch, name) for name in ("TASK_BYTES", "LANE_BYTES", "FETCH_BYTES", "FETCH_PARTITION_BYTES")),
        *((fetch, name) for name in ("LEAST_PARTITION_BYTES", "PROBE_BYTES", "LEAST_ROOM_BYTES")),
        (memory, "LEAST_ROOM_BYTES"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name) // SCALE)
    return found


@contextmanager
def a_source(lanes: list[Lane], batch_bytes: dict[int, int] | None = None) -> Iterator[tuple[Source, Leader]]:
    with selectors.DefaultSelector() as selector:
        source = Source(
            Cluster("a"), lanes, selector, isolation="read_committed",
            limits=lambda most: Limits(max_batch_bytes=most), events=deque(),
        )  # fmt: skip
        for key in (NODE, HISTORY_KEY):
            open_(source, key)
        yield source, Leader(source, lanes, batch_bytes)


def pump(source: Source, leader: Leader, clock: Clock, turns: int) -> int:
    """The source answers as fast as it is asked; how much the lanes held at most."""
    most = 0
    for _ in range(turns):
        for key in (NODE, HISTORY_KEY):
            leader.answer(key)
            source.pull(key)  # as the task's loop does when what came is sent
        most = max(most, held(source))
        clock.now += 0.02
        source.tick(clock.now)
    return most


def held(source: Source) -> int:
    return sum(lane.held_bytes for bundle in source._bundles.values() for lane in bundle.lanes)


def send(source: Source, lane: Lane, batches: int = 1) -> int:
    """The target takes this many batches of a lane; how many bytes those were."""
    sent_bytes = 0
    for _ in range(batches):
        if lane.state is State.FLOWING and lane.waiting and (sent := lane.next_batch(lambda *_: True)) is not None:
            lane.acknowledged(sent, max(lane.next_target, 0))
            sent_bytes += len(sent.piece.data)
            source.drained(lane)
    return sent_bytes


# -------------------- the bound


@pytest.mark.parametrize("partitions", [10, 100, 1000])
def test_what_all_partitions_hold_is_bounded_however_many_there_are(clock: Clock, partitions: int) -> None:
    lanes = [a_lane(n) for n in range(partitions)]
    with a_source(lanes) as (source, leader):
        most = pump(source, leader, clock, 100)
        assert TASK_BYTES // 2 < most <= TASK_BYTES + BATCH_BYTES
        assert not source._pullers[HISTORY_KEY].outstanding, "and no broker is asked meanwhile"


def test_also_partitions_that_turn_out_to_be_history_while_they_are_read_with_the_live_ones(clock: Clock) -> None:
    lanes = [a_lane(n, history=False) for n in range(300)]
    with a_source(lanes) as (source, leader):
        assert pump(source, leader, clock, 200) <= 2 * TASK_BYTES + 2 * BATCH_BYTES


def test_what_is_under_way_is_reserved(clock: Clock) -> None:
    lanes = [a_lane(n, history=bool(n % 2)) for n in range(200)]
    with a_source(lanes) as (source, leader):
        for _ in range(50):
            reserved = sum(puller.session.max_bytes for puller in source._pullers.values() if puller.outstanding)
            assert held(source) + reserved <= 2 * TASK_BYTES + 2 * BATCH_BYTES
            pump(source, leader, clock, 1)


def test_a_slow_target_gives_every_partition_its_turn(clock: Clock) -> None:
    """A tenth of the source's speed: what has room goes to those that have had nothing."""
    lanes = [a_lane(n) for n in range(300)]
    copied = dict.fromkeys(range(300), 0)
    with a_source(lanes) as (source, leader):
        for turn in range(600):
            most = pump(source, leader, clock, 1)
            assert most <= TASK_BYTES + FETCH_PARTITION_BYTES + BATCH_BYTES
            for n in range(20):
                lane = lanes[(turn * 20 + n) % 300]
                sent_bytes = send(source, lane, 4)
                copied[lane.spec.tp.partition] += sent_bytes if turn > 100 else 0  # the first fetches are larger
        assert max(copied.values()) <= 2 * min(copied.values()), "none starves"
        assert source._partition_bytes == LEAST_PARTITION_BYTES


def test_a_partition_alone_is_fetched_as_much_at_a_time_as_ever(clock: Clock) -> None:
    lanes = [a_lane(0), *(a_lane(n, history=False) for n in range(1, 500))]
    with a_source(lanes) as (source, leader):
        leader.line = [lanes[0].spec.tp]
        pump(source, leader, clock, 3)
        assert source._partition_bytes == FETCH_PARTITION_BYTES


def test_a_batch_larger_than_what_is_left_makes_progress(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TASK_BYTES", 1 << 20)
    lanes = [a_lane(n) for n in range(4)]
    with a_source(lanes, {2: 3 << 20}) as (source, leader):  # one batch of it is thrice as much as all may hold
        for turn in range(60):
            pump(source, leader, clock, 1)
            send(source, lanes[turn % 4], 2)
        assert all(lane.acked.next_offset > 3 for lane in lanes)


def test_a_backlog_does_not_keep_live_partitions_from_being_read(clock: Clock) -> None:
    lanes = [*(a_lane(n) for n in range(100)), a_lane(100, history=False)]
    with a_source(lanes) as (source, leader):
        leader.line = [lane.spec.tp for lane in lanes[:100]]
        pump(source, leader, clock, 60)
        assert held(source) > TASK_BYTES - LEAST_ROOM_BYTES
        live = source._pullers[NODE]
        assert live.outstanding
        assert list(live.bundles) == [lanes[100].spec.tp]
        assert live.session.max_bytes == FETCH_BYTES


def comes_back(source: Source, leader: Leader, clock: Clock, lane: Lane, others: list[Lane]) -> bool:
    """Whether it is fetched and sent again within some turns, beside the others."""
    for _ in range(50):
        for _ in range(5):
            pump(source, leader, clock, 1)
            while source._events:
                event = source._events.popleft()
                if isinstance(event, LostTrack):
                    source.leave(event.lane)
                    if event.lane is lane:  # the probe's answer
                        lane.found(2)
                        source.reopen(lane)
        send(source, lane, 3)
        for other in others:
            send(source, other, 8)
        if lane.acked.next_offset:
            return True
    return False


def test_partitions_whose_target_takes_nothing_give_up_memory_that_others_need(clock: Clock) -> None:
    """A target broker is away: its partitions must not fill the memory for good."""
    lanes = [a_lane(n) for n in range(40)]
    stuck, others = lanes[:20], lanes[20:]
    with a_source(lanes) as (source, leader):
        leader.line = [lane.spec.tp for lane in stuck]
        pump(source, leader, clock, 60)
        assert held(source) > TASK_BYTES - LEAST_ROOM_BYTES, "all of it is theirs"
        leader.line = [lane.spec.tp for lane in lanes]
        for _ in range(int(PATIENCE_FIRST_S * 50) * 8):
            pump(source, leader, clock, 1)
            for lane in others:
                send(source, lane, 8)
        assert min(lane.acked.next_offset for lane in others) > 100, "the others go on"
        assert all(lane.acked.next_offset == 0 for lane in stuck)
        for back, lane in enumerate(stuck):  # one after the other is back
            assert comes_back(source, leader, clock, lane, [*others, *stuck[:back]])
        assert all(lane.acked.sequence == lane.acked.next_offset for lane in lanes), "each record once, in order"


def test_also_those_that_have_passed_over_what_is_stored_and_sent_nothing_yet(clock: Clock) -> None:
    """Their positions do not have what they passed over, so they go through the probe again."""
    lanes = [a_lane(n) for n in range(40)]
    stuck, others = lanes[:20], lanes[20:]
    for lane in stuck:
        lane.lose_track()
        lane.found(2)
    with a_source(lanes) as (source, leader):
        leader.line = [lane.spec.tp for lane in stuck]
        pump(source, leader, clock, 60)
        assert held(source) > TASK_BYTES - LEAST_ROOM_BYTES, "all of it is theirs"
        assert not any(lane.can_discard for lane in stuck)
        leader.line = [lane.spec.tp for lane in lanes]
        for _ in range(int(PATIENCE_FIRST_S * 50) + 100):
            pump(source, leader, clock, 1)
            while source._events:
                event = source._events.popleft()
                if isinstance(event, LostTrack):
                    source.leave(event.lane)
            for lane in others:
                send(source, lane, 8)
        assert min(lane.acked.next_offset for lane in others) > 10, "the others go on"
        assert all(lane.acked.next_offset == lane.acked.sequence == 0 for lane in stuck)
        lost = next(lane for lane in stuck if lane.state is State.LOST)
        lost.found(2)  # its target is back
        source.reopen(lost)
        assert comes_back(source, leader, clock, lost, others)
        assert lost.acked.sequence == lost.acked.next_offset > 2, "each record once, in order"


# -------------------- the account itself


def fill(lane: Lane, size: int) -> None:
    data = a_batch(lane.fetch_offset, size)
    lane.push(Chunk(data, wanted=lane.fetch_offset, limits=Limits()))


def test_the_account_follows_what_lanes_hold_and_is_put_right_after_acknowledgements() -> None:
    live, old = a_lane(0, history=False), a_lane(1)
    account = Memory([live, old])
    for lane in (live, old, old):
        fill(lane, 1000)
        account.note(lane)
    assert account.held(history=False) == live.held_bytes
    assert account.held(history=True) == old.held_bytes
    sent = old.next_batch(lambda *_: False)
    assert sent is not None
    account.note(old)
    assert account.held(history=True) == old.held_bytes == 2 * len(sent.piece.data), "in flight, and the other chunk"
    old.acknowledged(sent, 0)
    account.recount()
    assert account.held(history=True) == old.held_bytes == len(sent.piece.data)
    old.history = False
    account.recount()
    assert (account.held(history=True), account.held(history=False)) == (0, old.held_bytes + live.held_bytes)


def test_a_chunk_counts_as_a_whole_until_it_is_gone() -> None:
    """Its buffer stays in memory for the sake of its last batch."""
    lane = a_lane(0)
    lane.push(Chunk(b"".join(a_batch(n, 1000) for n in range(4)), wanted=0, limits=Limits()))
    whole = lane.held_bytes
    sent = lane.next_batch(lambda *_: False)
    assert sent is not None
    lane.acknowledged(sent, 0)
    assert lane.queued_bytes < whole == lane.held_bytes


def test_with_nothing_held_there_is_room_whatever_the_size() -> None:
    account = Memory([a_lane(0)])
    assert account.room(0, history=True) == memory.LEAST_ROOM_BYTES
    account.reserve(10, history=False)
    assert account.room(0, history=True) == 0


def test_what_was_passed_over_as_stored_is_not_dropped() -> None:
    """The position does not have it yet: fetched again, it would be sent a second time."""
    lane = a_lane(0)
    lane.lose_track()
    lane.found(2)
    lane.push(Chunk(b"".join(a_batch(n, 100) for n in range(4)), wanted=0, limits=Limits()))
    account = Memory([lane])
    account.note(lane)
    assert not lane.can_discard
    sent = lane.next_batch(lambda *_: False)
    assert sent is not None
    assert lane.can_discard
    lane.discard()
    assert lane.fetch_offset == sent.piece.next_offset == 3


def test_with_nothing_moving_all_give_up_ever_more_rarely() -> None:
    lanes = [a_lane(n) for n in range(3)]
    account = Memory(lanes)
    for lane in lanes:
        fill(lane, 1000)
        account.note(lane)
    given_up = [second for second in range(40) if account.stuck(1, float(second), history=True)]
    assert given_up == [5, 15, 35]
    assert account.stuck(1 << 30, 1000.0, history=True) == [], "there is room"

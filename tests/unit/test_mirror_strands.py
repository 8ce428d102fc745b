"""Copies with another number of partitions, in the small: positions with strands, one fetch for several lanes, and
several lanes that write to one partition."""

from __future__ import annotations

import json
import math
import random
import selectors
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import pytest

from heliograph.batch import Limits, Record, decode, encode, sharing, warm
from heliograph.batch.split import target_of
from heliograph.mirror import append, fetch
from heliograph.mirror.append import Target
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.fetch import LANE_BYTES, Source
from heliograph.mirror.lane import POINT_EVERY, Lane, State
from heliograph.mirror.positions import Position, fold, join
from heliograph.mirror.positions import decode as read_position
from heliograph.mirror.positions import encode as write_position
from heliograph.mirror.strands import Brought, position_of, share_of, together
from heliograph.mirror.telling import _of_lane
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Produced
from heliograph.wire.fetched import FetchAnswer, Fetched
from tests.unit.test_mirror_fetch import NODE, SESSION, Brokers

ID = UUID(int=7)
TP = TopicPartition("t", 0)
N = 3


def strand(q: int, next_offset: int = 0, sequence: int = 0, target: int = 0) -> Position:
    return Position(next_offset, 100 + q, 0, sequence, ID, target)


def lane_of(q: int, tp: TopicPartition = TP, strands: int = N) -> Lane:
    lane = Lane.of(LaneSpec(tp, ID, TopicPartition("a.t", q), strand(q), 1 << 20, strands=strands))
    lane.state = State.FLOWING
    return lane


# ---------------------------------------------------------------- positions


def test_a_divided_position_round_trips_and_mm2_goes_on_from_the_strand_least_far() -> None:
    position = join([strand(0, 40, 12, 30), strand(1, 38, 9, -1), strand(2, 41, 7, 2**62)])
    value = write_position(position)
    assert read_position(value) == position
    fields = json.loads(value)
    assert fields["offset"] == 37
    assert all(isinstance(field, int | str) for field in fields.values()), "Connect takes flat fields only"
    assert (position.producer_id, position.sequence, position.target) == (100, 28, -1)


def test_positions_of_before_are_read_as_ever() -> None:
    old = (
        b'{"offset":99,"producerId":7,"producerEpoch":0,"sequence":5,"topicId":"%s","targetOffset":8}'
        % str(ID).encode()
    )
    assert read_position(old) == Position(100, 7, 0, 5, ID, 8)
    assert read_position(b'{"offset":99}') == Position(100)


@pytest.mark.parametrize(
    "strands",
    ['""', '"x"', "[]", "3", '"100:0:1:2"', '"100:0:1:2:3 "', '"9:0:1:2:3"', '"100:99999:1:2:3"', '"-1:0:0:0:0"'],
)
def test_strands_that_make_no_sense_are_no_position(strands: str) -> None:
    value = b'{"offset":1,"producerId":100,"producerEpoch":0,"sequence":1,"strands":%s}' % strands.encode()
    assert read_position(value) is None
    known = join([strand(0, 9), strand(1, 9)])
    assert fold(known, value) == known


def test_of_two_writers_each_strand_is_where_it_came_furthest() -> None:
    claim = join([strand(0), strand(1)])
    one, other = join([strand(0, 9, 5), strand(1, 3, 2)]), join([strand(0, 4, 3), strand(1, 8, 6)])
    folded = None
    for position in (claim, one, other):
        folded = fold(folded, write_position(position))
    assert folded == join([strand(0, 9, 5), strand(1, 8, 6)])
    assert folded.next_offset == 8


def test_the_first_claim_of_an_era_decides_its_shape() -> None:
    claim, plain = join([strand(0), strand(1)]), Position(5, 100, 0, 5, ID, 5)
    assert fold(claim, write_position(plain)) == claim
    assert fold(plain, write_position(claim)) == plain
    assert fold(claim, write_position(Position(3))) == Position(3)  # a new era


def test_a_new_era_may_say_where_each_strand_goes_on() -> None:
    era = join([Position(9), Position(4)])
    assert not era.claimed
    assert fold(join([strand(0, 9, 5), strand(1, 4, 2)]), write_position(era)) == era
    for nonsense in (b'"9:0:0:9:-1"', b'"-1:-1:0:9:-1"', b"7"):  # claimed; not where the offset is; no text
        assert read_position(b'{"offset":3,"strands":%s}' % nonsense) == Position(4)


def test_a_lane_takes_only_its_own_of_a_position_of_its_shape() -> None:
    divided, plain = join([strand(0, 4), strand(1, 6), strand(2, 5)]), Position(9, 100, 0, 9, ID, 9)
    spec = lane_of(1).spec
    assert share_of(divided, spec) == strand(1, 6)
    assert share_of(plain, spec) is None
    assert share_of(divided, LaneSpec(TP, ID, TP, plain, 1)) is None
    assert share_of(plain, LaneSpec(TP, ID, TP, plain, 1)) == plain


# ---------------------------------------------------------------- one fetch for several lanes


class Log:
    """A source partition, answered from by the offset that the fetch asks for."""

    def __init__(self, source: Source, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._source = source
        self.records: list[Record] = []
        self._batches: list[tuple[int, bytes]] = []

    def grow(self, batches: int, value_bytes: int = 10) -> None:
        for _ in range(batches):
            offset = len(self.records)
            keys = [self._random.choice([None, b"%d" % self._random.randrange(40)]) for _ in range(9)]
            fresh = [Record(offset + n, 1_000, key, bytes(value_bytes)) for n, key in enumerate(keys)]
            self.records += fresh
            self._batches.append((offset + len(fresh), encode(fresh)))

    @property
    def asked(self) -> int | None:
        return self._source._pullers[NODE].session.wanted(TP)

    def answer(self, batches: int = 2) -> None:
        """To the fetch that is under way, if there is one."""
        wanted = self.asked
        if wanted is None or not self._source._pullers[NODE].outstanding:
            return
        data = b"".join([batch for end, batch in self._batches if end > wanted][:batches])
        part = Fetched("", 0, 0, len(self.records), len(self.records), 0, (), data)
        self._source.received(NODE, None, FetchAnswer(0, 0, SESSION, [(ID, part)]))
        self._source.pull(NODE)  # as the task's loop does when what came is sent


class Stage:
    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.lanes = [lane_of(q) for q in range(N)]
        self.source = Source(
            Cluster("a"),
            self.lanes,
            selector,
            isolation="read_committed",
            limits=lambda most: Limits(max_batch_bytes=most),
            events=deque(),
        )
        self.source.opened(NODE, cast(Any, self.source.brokers.connection(NODE)))
        self.log = Log(self.source)
        self.copied: list[list[int]] = [[] for _ in self.lanes]

    def drain(self, lane: Lane) -> None:
        """Append all it holds, and have it acknowledged."""
        while (sent := lane.next_batch(lambda *_: False)) is not None:
            q = lane.spec.remote.partition
            assert len(decode(bytes(sent.piece.data))) == sent.piece.records
            offsets = [at + n for at, length in sent.piece.runs for n in range(length)]
            assert len(self.copied[q]) == sent.sequence  # rule B
            lane.acknowledged(sent, len(self.copied[q]))
            self.copied[q] += offsets
        self.source.drained(lane)

    def store_unanswered(self, lane: Lane) -> None:
        """The target has the next batch; nobody will hear of it."""
        sent = lane.next_batch(lambda *_: False) if lane.waiting and not lane.in_flight else None
        if sent is not None:
            assert len(self.copied[lane.spec.remote.partition]) == sent.sequence
            self.copied[lane.spec.remote.partition] += [at + n for at, k in sent.piece.runs for n in range(k)]

    def due(self, q: int) -> list[int]:
        return [r.offset for r in self.log.records if target_of(r.key, r.offset, N) == q]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(fetch, "Brokers", Brokers)
    with selectors.DefaultSelector() as selector:
        yield Stage(selector)


def test_one_fetch_serves_all_and_each_gets_its_own_once_in_order(stage: Stage) -> None:
    warm()  # else the first batch takes as long as a response may
    stage.log.grow(20)
    for _ in range(10):
        stage.log.answer()
    for lane in stage.lanes:
        stage.drain(lane)
    assert stage.copied == [stage.due(q) for q in range(N)]
    assert all(stage.copied)
    assert [lane.acked.next_offset for lane in stage.lanes] == [len(stage.log.records)] * N
    assert position_of(stage.lanes).next_offset == len(stage.log.records)


def test_one_response_of_many_partitions_is_unpacked_in_part_and_no_partition_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them alone would be within the bound."""
    partitions, batches, batch_bytes, most_bytes = 8, 4, 90_000, 200_000
    monkeypatch.setattr(fetch, "Brokers", Brokers)
    monkeypatch.setattr(fetch, "MOST_BYTES", most_bytes)
    lanes = [lane_of(q, TopicPartition("t", p)) for p in range(partitions) for q in range(N)]
    data = [
        encode([Record(9 * n + i, 1_000, b"%d" % i, bytes(batch_bytes // 9)) for i in range(9)]) for n in range(batches)
    ]
    with selectors.DefaultSelector() as selector:
        source = Source(
            *(Cluster("a"), lanes, selector),
            isolation="read_committed",
            limits=lambda most: Limits(max_batch_bytes=most),
            events=deque(),
        )
        source.opened(NODE, cast(Any, source.brokers.connection(NODE)))

        def respond() -> None:
            wanted = source._pullers[NODE].session.wanted
            parts = []
            for p in range(partitions):
                at = wanted(TopicPartition("t", p))
                if at is not None:
                    parts.append((ID, Fetched("", p, 0, 9 * batches, 9 * batches, 0, (), b"".join(data[at // 9 :]))))
            source.received(NODE, None, FetchAnswer(0, 0, SESSION, parts))
            source.pull(NODE)

        responses = 0
        while any(lane.fetch_offset < 9 * batches for lane in lanes):
            before = sum(lane.queued_bytes for lane in lanes)
            respond()
            responses += 1
            came = sum(lane.queued_bytes for lane in lanes) - before
            assert 0 < came <= most_bytes + 2 * batch_bytes, "one batch beyond the bound, and its headers"
            assert responses < 100
    total = partitions * batches * batch_bytes
    assert responses >= total // (most_bytes + 2 * batch_bytes)


def test_thousands_of_small_batches_are_divided_in_bites(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that takes seconds to divide would stop the task for as long: no reports, no other partition, and at
    an epoch's end all of it in vain."""
    clock = [0.0]

    def tick() -> float:
        clock[0] += 0.001  # every look at the clock, so every batch
        return clock[0]

    monkeypatch.setattr(sharing.time, "monotonic", tick)
    stage.log.grow(3_000)
    longest, answers = 0.0, 0
    while min(lane.fetch_offset for lane in stage.lanes) < len(stage.log.records):
        began = clock[0]
        stage.log.answer(3_000 if stage.source._bundles[TP].bite_bytes == 0 else 200)
        longest, answers = max(longest, clock[0] - began), answers + 1
        for lane in stage.lanes:
            stage.drain(lane)
        assert answers < 500
    assert longest < 2 * fetch.DIVIDE_S
    assert stage.copied == [stage.due(q) for q in range(N)]


def test_less_is_fetched_of_a_partition_that_takes_long_to_divide_and_more_again(stage: Stage) -> None:
    bundle = stage.source._bundles[TP]
    part = Fetched("", 0, 0, 9, 9, 0, (), bytes(100_000), offset=0)
    stage.source._fit(bundle, part, Brought([], 50_000, 60_000, is_late=True))
    assert bundle.bite_bytes == 50_000
    stage.source._place(bundle)
    asked = stage.source._pullers[NODE].session._wants[TP]
    assert asked.max_bytes == 50_000
    for _ in range(20):
        stage.source._fit(bundle, replace(part, records=bytes(max(bundle.bite_bytes, 1))), Brought([], 1, 1))
    assert bundle.bite_bytes == 0


def test_of_a_strand_the_map_gets_a_point_now_and_then(stage: Stage) -> None:
    stage.log.grow(1_200)
    for _ in range(1_200):
        stage.log.answer(1)
        for lane in stage.lanes:
            stage.drain(lane)
    for q, lane in enumerate(stage.lanes):
        assert len(points_of(stage, q, lane)) >= 3


def test_and_also_where_the_target_had_the_records_before_a_position_said_so(stage: Stage) -> None:
    """Killed in the middle of a long copy: rule D passes over what is there, and groups are behind it all the same."""
    stage.log.grow(1_200)
    there = [due[:-300] for due in map(stage.due, range(N))]
    for q, lane in enumerate(stage.lanes):
        stage.copied[q] += there[q]
        half = len(there[q]) // 2
        lane.lose_track()
        lane.found(len(there[q]), [(0, half), (half, len(there[q]) - half)])
    for _ in range(1_200):
        stage.log.answer(1)
        for lane in stage.lanes:
            stage.drain(lane)
    assert stage.copied == [stage.due(q) for q in range(N)]
    for q, lane in enumerate(stage.lanes):
        points = points_of(stage, q, lane)
        assert points[0] == 0
        assert sum(point < len(there[q]) for point in points) >= 3


def points_of(stage: Stage, q: int, lane: Lane) -> list[int]:
    """The target offsets that the lane wrote down, each of which must be the source offset's beside it."""
    (points,) = lane.map.take()
    places = {span.target: span.source for span in points}
    assert [stage.copied[q][target] for target in places] == list(places.values())
    assert all(b - a >= POINT_EVERY for a, b in pairwise(places))
    return list(places)


def test_a_strand_that_holds_enough_holds_up_nobody_and_comes_back_at_its_own_place(stage: Stage) -> None:
    slow, *others = stage.lanes
    stage.log.grow(40, value_bytes=100_000)
    while not stage.source.is_stalled(slow):
        stage.log.answer(4)
        for lane in others:
            stage.drain(lane)
        if slow.queued_bytes > LANE_BYTES // 8:
            slow.queued_bytes = LANE_BYTES  # full, long before it is
    at = slow.fetch_offset
    for _ in range(20):
        stage.log.answer(4)
        for lane in others:
            stage.drain(lane)
    assert slow.fetch_offset == at < min(lane.fetch_offset for lane in others)
    assert stage.copied[1:] == [stage.due(1), stage.due(2)], "the others went on to the end"
    slow.queued_bytes = sum(chunk.remaining_bytes for chunk in slow.chunks)
    stage.drain(slow)
    assert stage.log.asked == at, "fetched from where the slow one stood"
    for _ in range(20):
        stage.log.answer(4)
        for lane in stage.lanes:
            stage.drain(lane)
    assert stage.copied == [stage.due(q) for q in range(N)], "and the others took nothing twice"


@pytest.mark.parametrize("seed", range(12))
def test_whatever_strands_stall_lose_track_or_are_parked_each_record_comes_once(stage: Stage, seed: int) -> None:
    dice = random.Random(seed)
    source = stage.source
    for _ in range(120):
        lane = dice.choice(stage.lanes)
        match dice.choice(["grow", "answer", "answer", "drain", "drain", "stall", "lose", "park", "back"]):
            case "grow":
                stage.log.grow(dice.randrange(3))
            case "answer":
                stage.log.answer(dice.randrange(1, 4))
            case "drain" if lane.state is State.FLOWING:
                stage.drain(lane)
            case "stall" if lane in source._bundles[TP].reading:
                source.leave(lane)
                source._stalled.add(lane)
            case "lose" if lane.state is State.FLOWING:
                stage.store_unanswered(lane)
                lane.lose_track()
                source.leave(lane)
            case "park" if lane.state is State.FLOWING:
                source.leave(lane)
                lane.park("no reason")
            case "back":
                _back(stage, lane)
        asked = stage.log.asked
        reading = [one.fetch_offset for one in source._bundles[TP].reading]
        assert asked == (min(reading) if reading else None), "invariant a of strands"
    for lane in stage.lanes:
        _back(stage, lane)
    for _ in range(len(stage.log.records) + 5):
        stage.log.answer(5)
        for lane in stage.lanes:
            stage.drain(lane)
    assert stage.copied == [stage.due(q) for q in range(N)]
    assert [lane.acked.next_offset for lane in stage.lanes] == [len(stage.log.records)] * N


def _back(stage: Stage, lane: Lane) -> None:
    if lane.state is State.PARKED:
        lane.unpark()
    if lane.state is State.LOST:
        lane.found(len(stage.copied[lane.spec.remote.partition]) - lane.acked.sequence)  # rule D
        stage.source.reopen(lane)
    elif stage.source.is_stalled(lane):
        stage.source.reopen(lane)


def test_the_world_sees_one_row_the_worst_of_its_strands(stage: Stage) -> None:
    from heliograph.mirror.hindrance import NONE, Hindrance

    stage.log.grow(20)
    for _ in range(10):
        stage.log.answer()
    for lane in stage.lanes:
        stage.drain(lane)
    stage.lanes[1].park("the disk is full", "buy another")
    hindrances = [NONE, Hindrance("the disk is full", blind=True), NONE]
    rows = [_of_lane(lane, hindered) for lane, hindered in zip(stage.lanes, hindrances, strict=True)]
    row = together(stage.lanes, rows)
    assert (row["topic"], row["partition"], row["producer"]) == ("t", 0, 100)
    assert row["records"] == len(stage.log.records) == row["sequence"]
    assert row["next"] == row["end"] == len(stage.log.records)
    assert (row["state"], row["fix"]) == ("parked", "buy another")
    assert row["reason"] == row["why"] == "to a.t-1: the disk is full"
    assert row["strands"].count(":") == 4 * N
    assert row["run"] is None
    assert not row["history"]


def test_a_halted_partition_is_seen_whatever_its_strands_did(stage: Stage) -> None:
    from heliograph.mirror.hindrance import NONE

    stage.lanes[0].lose_track()  # asked about, not answered yet
    stage.lanes[1].history = True
    for lane in stage.lanes[1:]:
        lane.halt()
    row = together(stage.lanes, [_of_lane(lane, NONE) for lane in stage.lanes])
    assert (row["state"], row["reason"]) == ("halted", "")
    assert row["history"], "one strand that is far behind is enough"


# ---------------------------------------------------------------- several lanes, one partition


class Wire:
    def __init__(self) -> None:
        self.round_trip_s = 0.0
        self.requests: list[list[tuple[str, int, bytes]]] = []

    def version(self, api: str) -> int:
        return 9

    def send(self, parts: Any) -> None:
        self.requests.append(parts)


def test_what_waits_of_a_strand_goes_together() -> None:
    warm()
    lane = lane_of(0, strands=1)
    batches = b"".join(encode([Record(n, 1, b"k", b"v")], codec=3) for n in range(40))
    lane.push(append.Chunk(batches, wanted=0, limits=Limits(max_batch_bytes=1 << 20)))
    sent = lane.next_batch(lambda one, chunk: Target._merge(cast(Any, None), one, chunk))
    assert sent is not None
    assert sent.piece.records == 40  # else each of twelve partitions would send one record at a time


def test_lanes_that_write_to_one_partition_take_turns_and_never_share_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append, "Brokers", Brokers)
    monkeypatch.setattr(append, "produce_request", lambda version, parts: parts)
    monkeypatch.setattr(append, "produced", lambda response: response)
    lanes = [lane_of(0, TopicPartition("t", p), strands=1) for p in range(12)]
    for p, lane in enumerate(lanes):
        lane.acked = Position(0, 500 + p, 0, 0, ID, 0)
        lane.proven = True
        batches = b"".join(encode([Record(n, 1, b"k", bytes(600_000))]) for n in range(4))
        lane.push(append.Chunk(batches, wanted=0, limits=Limits(max_batch_bytes=1 << 20)))
    with selectors.DefaultSelector() as selector:
        target = Target(
            Cluster("b"),
            lanes,
            set(),
            selector,
            events=deque(),
        )
        wire = Wire()
        target.opened(NODE, cast(Any, wire))
        for lane in lanes:
            target.wake(lane)
        answered, firsts = 0, []
        while answered < 48:
            target.push(0.0)
            assert answered < len(wire.requests), "somebody is left behind"
            parts = wire.requests[answered]
            assert len(parts) == 1, "two batches of one partition in one request"
            firsts.append(int.from_bytes(parts[0][2][43:51], "big") - 500)  # the producer id
            target.received(NODE, None, [Produced("a.t", 0, 0, answered, -1, 0)])
            answered += 1
    assert sorted(firsts) == sorted(list(range(12)) * 4)
    assert sorted(firsts[:12]) == list(range(12)), "each had a turn before any had two"
    for p in range(12):
        assert lanes[p].acked.sequence == 4
    assert all(a != b for a, b in pairwise(firsts))


def test_an_answer_that_does_not_reach_the_strands_that_are_further_is_no_sign_of_a_corrupt_batch(stage: Stage) -> None:
    """It was asked for by a strand that is not read any more when it comes."""
    slow, *others = stage.lanes
    stage.log.grow(6, value_bytes=100)
    bundle = stage.source._bundles[slow.spec.tp]
    stage.source.leave(slow)
    for lane in others:
        lane.fetch_offset = 1 << 30
    part = Fetched("t", 0, 0, 10, 10, 0, (), encode([Record(0, 1, b"k", b"v")]), offset=0)
    for _ in range(5):
        stage.source._take(bundle, others, part, 1 << 20, math.inf)
    assert all(lane.state is State.FLOWING for lane in others)


def test_one_batch_that_grows_a_thousandfold_does_not_make_all_fetches_small_for_good(stage: Stage) -> None:
    """Memory is reserved for what an answer unpacks to, by the last ones."""
    puller = stage.source._pullers[NODE]
    puller.unpacked(70_000, 100_000_000, is_small=False)
    stage.log.grow(40, value_bytes=1_000)
    asked = []
    for _ in range(20):
        stage.log.answer(1)
        for lane in stage.lanes:
            stage.drain(lane)
        asked.append(puller.session.max_bytes)
    assert asked[0] < 70_000
    assert asked[-1] == fetch.FETCH_BYTES
    puller.unpacked(100, 100_000_000, is_small=True)
    assert puller.expansion < 1.1, "a small answer never raises it"

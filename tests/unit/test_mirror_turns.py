"""Spokes that share a hub: whose turn it is, in the small and by the appender itself, turn by turn."""

from __future__ import annotations

import selectors
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID

import pytest

from heliograph.batch import Chunk, Limits, Record, encode, warm
from heliograph.mirror import append
from heliograph.mirror.append import REQUESTS_IN_FLIGHT, Target
from heliograph.mirror.assignment import LaneSpec, PutBack
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.pace import BACKOFF_MOST_S, backoff_s
from heliograph.mirror.positions import Position
from heliograph.mirror.turns import Party, Turns, party_of, shares
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Produced
from tests.unit.test_mirror_fetch import NODE, Brokers

ID = UUID(int=7)
MOST = 1000  # bytes of a request in the small
BATCH = 100
REQUEST_BYTES = 10_000  # of the appender


def requests_of(turns: Turns, queues: dict[Party, deque[int]], most: int = MOST) -> Iterator[list[str]]:
    """Requests of at most so many bytes, until nobody has anything to send: whose batches are in each."""
    while any(queues.values()):
        first, ahead = turns.order([party for party, queue in queues.items() if queue], most)
        taken: list[str] = []
        size = 0
        for name in first or ahead:
            party = next(one for one in queues if one.name == name)
            while queues[party] and size < most:
                size += (batch := queues[party].popleft())
                turns.took(party, batch)
                taken.append(name)
        assert taken, "somebody can send, and nobody does"
        yield taken


def test_a_batch_beside_a_flood_waits_for_no_request() -> None:
    flood, quiet = Party("flood", 1), Party("quiet", 1)
    queues: dict[Party, deque[int]] = {flood: deque([BATCH] * 1000), quiet: deque()}
    for number, request in enumerate(requests_of(Turns(), queues)):
        assert ("quiet" in request) == (number % 7 == 1), "what came before this request is in it"
        if number % 7 == 0 and queues[flood]:
            queues[quiet].append(BATCH)


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (5, 2), (10, 1)])
def test_floods_share_by_weight(weights: tuple[int, int]) -> None:
    parties = [Party(name, weight) for name, weight in zip("ab", weights, strict=True)]
    queues = {party: deque([BATCH] * 10_000) for party in parties}
    sent: Counter[str] = Counter()
    for number, request in enumerate(requests_of(Turns(), queues)):
        sent.update(request)
        if number == 500:
            break
    assert sent["a"] / sent["b"] == pytest.approx(weights[0] / weights[1], rel=0.05)


def test_who_had_nothing_to_send_saves_nothing_up() -> None:
    turns, a, b = Turns(), Party("a", 1), Party("b", 1)
    queues = {a: deque([BATCH] * 5000), b: deque([BATCH])}
    requests = requests_of(turns, queues)
    for _ in range(200):
        next(requests)  # b sent once, then nothing for long
    queues[b].extend([BATCH] * 1000)
    told = [Counter(next(requests)) for _ in range(20)]
    assert told[0]["b"] == MOST // BATCH, "it goes first"
    assert sum(one["a"] for one in told[:4]) >= MOST // BATCH, "and does not keep the other away for what it missed"


def test_a_party_alone_gets_everything_whatever_its_weight() -> None:
    turns, alone = Turns(), Party("a", 1)
    for _ in range(50):
        assert turns.order([alone], MOST) == (["a"], [])
        turns.took(alone, MOST)
    assert turns.order([], MOST) == ([], [])


def test_one_far_ahead_lets_others_go_first_and_only_those_who_can() -> None:
    turns, a, b = Turns(), Party("a", 1), Party("b", 3)
    turns.order([a, b], MOST)
    turns.took(a, 5 * MOST)
    assert turns.order([a, b], MOST) == (["b"], ["a"])
    assert turns.order([a], MOST) == (["a"], []), "b has its five batches on their way: nobody waits for it"


def test_room_is_shared_by_weight() -> None:
    assert shares([Party("a", 3), Party("b", 1), Party("b", 1)], 400) == {"a": 300, "b": 100}
    assert shares([Party("", 1)], 400) == {"": 400}


# ---------------------------------------------------------------- by the appender


class Wire:
    round_trip_s = 0.0

    def __init__(self) -> None:
        self.requests: list[list[tuple[str, int, bytes]]] = []

    def version(self, api: str) -> int:
        return 9

    def send(self, parts: Any) -> None:
        self.requests.append(parts)


def a_lane(spoke: str, number: int, weight: int = 1, strands: int = 2) -> Lane:
    """Records of a spoke that go to a topic of their own."""
    origin = TopicPartition("t", number)
    remote = TopicPartition(f"{spoke}.t", number)
    stage = PutBack(origin, weight=weight)
    position = Position(0, 100 + number, 0, 0, ID, 0)
    spec = LaneSpec(
        TopicPartition(f"mux_{spoke}", 0), ID, remote, position, 1 << 20, strands=strands, stage=stage, strand=number
    )
    lane = Lane.of(spec)
    lane.state, lane.proven = State.FLOWING, True
    return lane


def fill(lane: Lane, batches: int, size: int) -> None:
    for _ in range(batches):
        data = encode([Record(lane.fetch_offset, 1, None, bytes(size))])
        lane.push(Chunk(data, wanted=lane.fetch_offset, limits=Limits(max_batch_bytes=1 << 20)))


@contextmanager
def a_target(monkeypatch: pytest.MonkeyPatch, lanes: list[Lane]) -> Iterator[tuple[Target, Wire]]:
    warm()
    monkeypatch.setattr(append, "Brokers", Brokers)
    monkeypatch.setattr("heliograph.mirror.pace.NEAR_REQUEST_BYTES", REQUEST_BYTES)
    monkeypatch.setattr("heliograph.mirror.pace.PLAIN_BYTES", 0)  # turns are counted in batches: none is merged
    monkeypatch.setattr(append, "produce_request", lambda version, parts: parts)
    monkeypatch.setattr(append, "produced", lambda response: response)
    with selectors.DefaultSelector() as selector:
        target = Target(
            Cluster("hub"), lanes, set(), selector, events=deque(),
        )  # fmt: skip
        wire = Wire()
        target.opened(NODE, cast(Any, wire))
        yield target, wire


def answer(target: Target, wire: Wire, number: int) -> None:
    parts = wire.requests[number]
    target.received(NODE, None, [Produced(topic, partition, 0, number, -1, 0) for topic, partition, _ in parts])


def flood(target: Target, wire: Wire, lanes: list[Lane], batches: int, size: int, *, turns: int) -> None:
    """All of them have more than can be sent, while so many requests are answered."""
    for lane in lanes:
        fill(lane, batches, size)
        target.wake(lane)
    target.push(0.0)
    for turn in range(turns):
        answer(target, wire, turn)
        target.push(0.0)


@pytest.mark.parametrize("strands", [0, 2])
def test_a_flooding_spoke_leaves_the_others_batches_waiting_at_most_one_request(
    monkeypatch: pytest.MonkeyPatch, strands: int
) -> None:
    floods = [a_lane("flood", number, strands=strands) for number in range(8)]
    quiet = a_lane("quiet", 0, strands=strands)
    with a_target(monkeypatch, [*floods, quiet]) as (target, wire):
        for lane in floods:
            fill(lane, 60, 6_000)  # two of them are a full request
            target.wake(lane)
        target.push(0.0)
        assert len(wire.requests) == REQUESTS_IN_FLIGHT
        for turn in range(100):
            if turn % 10 == 3:
                fill(quiet, 1, 100)
                target.wake(quiet)
            answer(target, wire, turn)
            target.push(0.0)
            if turn % 10 == 3:
                assert "quiet.t" in {topic for topic, _, _ in wire.requests[-1]}, "the very next request"
        assert len(wire.requests) == REQUESTS_IN_FLIGHT + 100, "the flood goes on all the time"
        served = Counter(part for parts in wire.requests for topic, part, _ in parts if topic == "flood.t")
        assert max(served.values()) - min(served.values()) <= 2, "and its own partitions take turns"


def test_spokes_that_both_flood_share_requests_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = [a_lane("heavy", number, weight=3) for number in range(4)]
    light = [a_lane("light", number) for number in range(4)]
    with a_target(monkeypatch, [*light, *heavy]) as (target, wire):
        flood(target, wire, [*light, *heavy], 120, 3_000, turns=60)
    sent: Counter[str] = Counter()
    for parts in wire.requests:
        for topic, _, data in parts:
            sent[topic] += len(data)
    assert sent["heavy.t"] / sent["light.t"] == pytest.approx(3, rel=0.15)


def test_lanes_of_other_flows_are_one_party() -> None:
    plain = LaneSpec(TopicPartition("t", 0), ID, TopicPartition("a.t", 0), Position(0, 1, 0, 0, ID, 0), 1)
    assert party_of(plain) == Party("", 1)
    assert party_of(a_lane("x", 0, weight=4).spec) == Party("mux_x", 4)


def test_a_lane_that_a_full_request_left_out_is_in_the_next_one_also_without_spokes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lanes = []
    for number in range(6):
        spec = LaneSpec(
            TopicPartition("t", number), ID, TopicPartition("a.t", number), Position(0, 1, 0, 0, ID, 0), 1 << 20
        )
        lane = Lane.of(spec)
        lane.state, lane.proven = State.FLOWING, True
        lanes.append(lane)
    with a_target(monkeypatch, lanes) as (target, wire):
        flood(target, wire, lanes, 30, 6_000, turns=40)
    served = Counter(part for parts in wire.requests for _, part, _ in parts)
    assert max(served.values()) - min(served.values()) <= 2


@pytest.mark.parametrize("strands", [0, 2])
def test_small_batches_of_one_spoke_take_no_place_in_flight_from_another_that_floods(
    monkeypatch: pytest.MonkeyPatch, strands: int
) -> None:
    """A request of one small batch takes one of five places as a full one does: it is filled up with those ahead."""
    sent: dict[bool, Counter[str]] = {}
    for beside in (False, True):
        floods = [a_lane("flood", number, strands=strands) for number in range(8)]
        quiet = a_lane("quiet", 0, strands=strands)
        with a_target(monkeypatch, [*floods, quiet]) as (target, wire):
            for lane in floods:
                fill(lane, 200, 6_000)
                target.wake(lane)
            for turn in range(100):
                if beside:
                    fill(quiet, 1, 100)
                    target.wake(quiet)
                target.push(0.0)
                answer(target, wire, turn)
            sent[beside] = Counter()
            for parts in wire.requests[:100]:
                assert len({(topic, part) for topic, part, _ in parts}) == len(parts), "one batch of a partition"
                for topic, _, data in parts:
                    sent[beside][topic] += len(data)
    assert sent[True]["quiet.t"]
    assert sent[True]["flood.t"] > 0.9 * sent[False]["flood.t"]


def test_what_filled_up_a_request_is_not_held_against_a_party_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would have to wait for as much as the others left it, once they flood too."""
    first = [a_lane("first", number) for number in range(4)]
    other = [a_lane("other", number) for number in range(4)]
    with a_target(monkeypatch, [*first, *other]) as (target, wire):
        for lane in first:
            fill(lane, 300, 3_000)
            target.wake(lane)
        for turn in range(100):
            fill(other[0], 1, 100)
            target.wake(other[0])
            target.push(0.0)
            answer(target, wire, turn)
        for lane in other:
            fill(lane, 60, 3_000)
            target.wake(lane)
        for turn in range(100, 140):
            target.push(0.0)
            answer(target, wire, turn)
    sent: Counter[str] = Counter()
    for parts in wire.requests[105:140]:
        for topic, _, data in parts:
            sent[topic] += len(data)
    assert sent["first.t"] / sent["other.t"] == pytest.approx(1, rel=0.3)


def test_a_thousand_failures_in_a_row_wait_as_long_as_ten() -> None:
    assert backoff_s(5_001) == backoff_s(10) == BACKOFF_MOST_S
    assert backoff_s(1) < backoff_s(2)

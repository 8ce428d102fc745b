"""Where strands begin that are claimed anew, without clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from heliograph.mirror.assignment import PutBack
from heliograph.mirror.positions import Position, join, new_era
from heliograph.state.positions import Wanted
from heliograph.survey.claims import Claims
from heliograph.survey.topics import Route, Survey
from heliograph.types import Cluster, Flow, TopicPartition

SHARED = TopicPartition("mux", 0)
A, B, C = (TopicPartition(name, 0) for name in "abc")


class Positions:
    def __init__(self, position: Position) -> None:
        self.known = {SHARED: position}
        self.wanted: dict[TopicPartition, Wanted] = {}

    def claim(self, wanted: Mapping[TopicPartition, Wanted], prepare: object) -> None:
        self.wanted |= wanted

    def extend(self, wanted: Mapping[TopicPartition, Mapping[TopicPartition, int]]) -> None:
        assert not any(wanted.values())


class Kafka:
    def list_offsets(self, tps: Iterable[TopicPartition], at: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 1_000)


def claims(positions: Positions) -> Claims:
    flow = Flow(Cluster("hub"), Cluster("hub"))
    return Claims(flow, cast(Any, Kafka()), cast(Any, Kafka()), cast(Any, positions), cast(Any, None))


def route(*targets: TopicPartition) -> Route:
    stages = (PutBack(None), *(PutBack(one) for one in targets))
    return Route(SHARED, None, SHARED, 1, (SHARED, *targets), stages, (1,) * len(stages))


def era(**places: int) -> Position:
    """Without a producer id: where each went on."""
    return join([Position(at) for at in places.values()], [TopicPartition(name, 0) for name in places])


def test_a_new_era_begins_each_target_at_its_own_place_whatever_the_route_is_now() -> None:
    positions = Positions(era(mux=50, a=70, b=90))
    claims(positions).claim([route(B, A, C)])
    wanted = positions.wanted[SHARED]
    assert dict(zip(wanted.targets, wanted.starts, strict=True)) == {SHARED: 50, B: 90, A: 70, C: 50}
    positions = Positions(era(mux=50, a=70, b=90))
    claims(positions).claim([route(A, B)])
    assert positions.wanted[SHARED].starts == (50, 70, 90)


def test_a_new_era_is_not_claimed_while_one_of_its_targets_has_no_place() -> None:
    positions = Positions(era(mux=50, a=70, b=90))
    claiming, now = claims(positions), route(A, C)  # as many as there were
    assert claiming.claim([now])
    assert not positions.wanted
    survey = claiming.started(Survey((now,)))
    assert not survey.routes
    assert "went on to b-0 too" in survey.parked[0].reason
    assert claiming.claim([route(A, C, B)]), "another may not begin than before: none"
    assert positions.wanted[SHARED].targets == (SHARED, A, B, C), "those that are known first"
    assert positions.wanted[SHARED].starts == (50, 70, 90, 50)


def test_strands_that_a_new_era_leaves_alone_need_no_place() -> None:
    left = Position(90, 7, 0, 12, None, 40)
    positions = Positions(new_era([Position(50, 5, 0), Position(3), left], (SHARED, A, B)))
    claiming = claims(positions)
    assert not claiming.claim([route(A)])
    wanted = positions.wanted[SHARED]
    assert (wanted.targets, wanted.fresh) == ((SHARED, A, B), 1)
    assert wanted.kept == (Position(50, 5, 0), None, left)
    assert (wanted.starts[1], wanted.ends[1]) == (3, 1_000)

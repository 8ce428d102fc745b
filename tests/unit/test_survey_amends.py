"""Positions that are no longer true, without clusters: who is believed, what is written first, what is made when."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from heliograph.errors import BrokerError
from heliograph.mirror.incidents import Book, encode, key_of
from heliograph.mirror.positions import Position, decode, fold, join
from heliograph.mirror.positions import encode as write_position
from heliograph.state.positions import PositionsLog, Wanted
from heliograph.survey.amends import Amends
from heliograph.survey.topics import Route, Survey
from heliograph.types import Cluster, Flow, Policies, TopicPartition
from heliograph.wire import TopicMeta

TP, REMOTE = TopicPartition("orders", 0), TopicPartition("us.orders", 0)
OLD, NEW = UUID(int=1), UUID(int=2)
STOOD = Position(40, 7, 0, 40, OLD, 40)
GONE = {"orders": "us.orders"}


class Positions:
    def __init__(self, position: Position) -> None:
        self.known = {TP: position}
        self.done: list[str] = []

    def catch_up(self) -> dict[TopicPartition, Position]:
        return self.known

    def write(self, entries: dict[TopicPartition, Position]) -> None:
        self.done.append("position")
        self.known |= entries


class Written:
    def __init__(self, done: list[str]) -> None:
        self.book, self.done = Book("us"), done

    def told(self, subject, at):  # type: ignore[no-untyped-def]
        return self.book.told(subject, at)

    def write(self, incident) -> None:  # type: ignore[no-untyped-def]
        self.done.append(str(incident.kind))
        self.book.add(key_of("us", incident), encode(incident))


class Source:
    def list_offsets(self, tps, *, at):  # type: ignore[no-untyped-def]
        assert at == "earliest"
        return dict.fromkeys(tps, 3)


class Target:
    def __init__(self) -> None:
        self.error: BrokerError | None = None

    def create_topics(self, specs, *, validate_only):  # type: ignore[no-untyped-def]
        assert validate_only
        return {spec.name: self.error for spec in specs}


class Scene:
    def __init__(self, position: Position = STOOD, **on: str) -> None:
        self.positions = Positions(position)
        self.incidents = Written(self.positions.done)
        self.busy, self.reached = False, -1
        self.target = Target()
        flow = Flow(Cluster("us"), Cluster("eu"), on=Policies(**on))  # type: ignore[arg-type]
        self.amends = Amends(
            *(flow, Source(), self.target, self.positions, self.incidents),  # type: ignore[arg-type]
            *(lambda tp: self.busy, lambda: self.positions.done.append("ended"), lambda tp: self.reached),
        )

    def withhold(self, topic_id: UUID = OLD) -> dict[str, str]:
        meta = {"orders": TopicMeta("orders", topic_id, False, 0, {})}
        return {name: trouble.reason for name, trouble in self.amends.withhold(meta, GONE).items()}


def route(topic_id: UUID) -> Route:
    return Route(TP, topic_id, REMOTE, 1_000_000)


@pytest.mark.parametrize(("policy", "start"), [("restart", 3), ("skip", 40)])
def test_a_deleted_copy_is_made_anew_when_nobody_writes_to_it_any_more(policy: str, start: int) -> None:
    scene = Scene(target_lost=policy)
    scene.busy = True
    assert "orders" in scene.withhold()
    assert "orders" in scene.withhold()
    assert scene.positions.known == {TP: STOOD}
    scene.busy = False
    assert scene.withhold() == {}
    assert scene.positions.known == {TP: Position(start)}
    assert scene.positions.done == ["target-lost", "position"]
    assert scene.withhold() == {}, "it begins anew, and has nothing to lose"


def test_a_deleted_copy_stands_still_by_default_and_is_named_once() -> None:
    scene = Scene()
    assert "orders-0 up to offset 40" in scene.withhold()["orders"]
    assert "orders" in scene.withhold()
    assert scene.positions.done == ["target-lost"]
    scene.amends.withhold({}, GONE)  # it is there again
    assert "orders" in scene.withhold(), "and gone again"


def test_a_copy_that_only_one_broker_does_not_see_is_not_lost() -> None:
    scene = Scene()
    scene.target.error = BrokerError(36, "TOPIC_ALREADY_EXISTS")
    assert "not to be seen yet" in scene.withhold()["orders"]
    assert scene.positions.done == []


def test_what_was_never_copied_cannot_be_lost() -> None:
    scene = Scene(Position(0, 7, 0, 0, OLD, 0))
    assert scene.withhold() == {}
    scene.reached = 5
    assert "orders" in scene.withhold(), "copied, and not yet in a position"


def test_a_copy_of_a_topic_that_was_made_anew_as_well_is_made() -> None:
    assert Scene().withhold(NEW) == {}


def test_a_source_made_anew_begins_at_its_start() -> None:
    scene = Scene()
    assert scene.amends.judge(Survey((route(NEW),))).routes == (route(NEW),)
    scene.amends.settle([route(OLD)])
    assert scene.positions.known == {TP: STOOD}
    scene.amends.settle([route(NEW)])
    assert scene.positions.done == ["recreated", "ended", "position"], "nobody writes the old one in between"
    assert scene.positions.known == {TP: Position(3)}


def test_a_source_made_anew_is_parked_if_told_to() -> None:
    scene = Scene(recreated="stop")
    for _ in range(2):
        survey = scene.amends.judge(Survey((route(NEW),)))
        assert survey.routes == ()
        assert [(one.topic, one.partition) for one in survey.parked] == [("orders", 0)]
    assert scene.positions.done == ["recreated"]


def test_wishes_of_an_era_that_is_over_are_not_heard() -> None:
    scene = Scene()
    assert not scene.amends.wished(TP, "restart", 6)
    assert scene.amends.wished(TP, "restart", 7)
    assert not scene.amends.wished(TP, "restart", 7), "no news"
    scene.amends.settle([route(OLD)])
    assert scene.positions.known == {TP: Position(3)}
    assert not scene.amends.wished(TP, "restart", 7)


def test_a_last_word_of_an_era_that_is_over_is_not_taken_for_the_new_one() -> None:
    log = PositionsLog(None, Flow(Cluster("us"), Cluster("eu")))  # type: ignore[arg-type]
    log.known[TP] = Position(3, 8, 0, 0, NEW, 0)
    log.learn(TP, 40, 40, 40, producer_id=7)
    assert log.known[TP].next_offset == 3
    log.learn(TP, 9, 6, 6, producer_id=8)
    assert log.known[TP] == Position(9, 8, 0, 6, NEW, 6, run=-1)


# ---------------------------------------------------------------- one target of several

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
STRANDS = (Position(40, 7, 0, 0, OLD, 9), Position(44, 8, 0, 20, OLD, 30), Position(42, 9, 0, 5, OLD, 5))
SHARED = join(STRANDS, (TP, A, B))


@pytest.mark.parametrize(("policy", "start"), [("restart", 3), ("skip", 44)])
def test_what_one_target_lost_begins_anew_and_the_others_keep_their_claims(policy: str, start: int) -> None:
    scene = Scene(SHARED)
    assert not scene.amends.wished(TP, policy, 7, {A: 6}), "of an era that is over"
    assert scene.amends.wished(TP, policy, 7, {A: 8})
    assert not scene.amends.wished(TP, policy, 7, {A: 8}), "no news"
    scene.amends.settle([route(OLD)])
    era = scene.positions.known[TP]
    assert not era.claimed
    assert era.strands == (STRANDS[0], Position(start), STRANDS[2])
    assert fold(SHARED, write_position(era)) == decode(write_position(era))
    assert decode(write_position(era)).targets == (TP, A, B)  # type: ignore[union-attr]
    assert not scene.amends.wished(TP, policy, 7, {A: 8}), "it is the same anchor, and another strand"


def test_what_two_targets_lost_begins_anew_for_both() -> None:
    scene = Scene(SHARED)
    assert scene.amends.wished(TP, "skip", 7, {A: 8})
    assert scene.amends.wished(TP, "skip", 7, {B: 9})
    scene.amends.settle([route(OLD)])
    assert [one.claimed for one in scene.positions.known[TP].strands] == [True, False, False]


def test_a_source_made_anew_begins_all_strands_at_its_start_and_their_targets_stay() -> None:
    scene = Scene(SHARED)
    scene.amends.settle([route(NEW)])
    assert scene.positions.known[TP] == join([Position(3)] * 3, (TP, A, B))


class Ids:
    def init_producer_ids(self, count: int) -> list[tuple[int, int]]:
        return [(50 + n, 0) for n in range(count)]


class InMemory(PositionsLog):
    """The log of one key."""

    rival: bytes | None = None

    def write(self, entries) -> None:  # type: ignore[no-untyped-def]
        for value in ([self.rival] if self.rival else []) + [write_position(one) for one in entries.values()]:
            self.written.append(value)

    def catch_up(self):  # type: ignore[no-untyped-def]
        known = None
        for value in self.written:
            known = fold(known, value)
        self.known = {TP: known}
        return self.known


def test_the_claim_of_one_strand_leaves_the_others_as_they_are_and_the_first_claim_wins() -> None:
    scene = Scene(SHARED)
    scene.amends.wished(TP, "restart", 7, {A: 8})
    scene.amends.settle([route(OLD)])
    log = InMemory(Ids(), Flow(Cluster("us"), Cluster("eu")))  # type: ignore[arg-type]
    log.written = [write_position(SHARED), write_position(scene.positions.known[TP])]  # type: ignore[attr-defined]
    era = log.catch_up()[TP]
    left = tuple(one if one.claimed else None for one in era.strands)
    wanted = {TP: Wanted((40, 3, 42), OLD, (0, 0, 0), True, (TP, A, B), left)}
    log.rival = write_position(join([STRANDS[0], Position(3, 77, 0, 0, OLD, 0), STRANDS[2]], (TP, A, B)))
    log.claim(wanted)
    assert log.known[TP].strands == (STRANDS[0], Position(3, 77, 0, 0, OLD, 0), STRANDS[2])
    assert decode(log.written[-1]) == log.known[TP], "the winner's is the last"  # type: ignore[attr-defined]
    stale = join([STRANDS[0], STRANDS[1], replace(STRANDS[2], next_offset=60, sequence=9)], (TP, A, B))
    assert fold(log.known[TP], write_position(stale)).strands[1:] == (  # type: ignore[union-attr]
        Position(3, 77, 0, 0, OLD, 0),
        replace(STRANDS[2], next_offset=60, sequence=9),
    ), "who wrote before the new era still says what is true of the others"


@pytest.mark.parametrize(("policy", "start"), [("restart", 3), ("skip", 44)])
def test_a_deleted_target_is_made_anew_when_nobody_writes_to_it_and_begins_with_the_next_plan(
    policy: str, start: int
) -> None:
    scene = Scene(SHARED, target_lost=policy)
    scene.busy = True
    assert list(scene.amends.withhold_targets(["a"])) == ["a"]
    scene.amends.settle([route(OLD)])
    assert scene.positions.known == {TP: SHARED}
    scene.busy = False
    assert scene.amends.withhold_targets(["a"]) == {}
    assert scene.positions.known == {TP: SHARED}, "tasks may still write it"
    scene.amends.settle([route(OLD)])
    assert scene.positions.known[TP].strands == (STRANDS[0], Position(start), STRANDS[2])
    assert scene.positions.done == ["target-lost", "ended", "position"]
    assert scene.amends.withhold_targets(["a"]) == {}, "it begins anew, and has nothing to lose"


def test_a_deleted_target_stands_still_by_default_and_each_is_named_once() -> None:
    scene = Scene(SHARED)
    for _ in range(2):
        withheld = scene.amends.withhold_targets(["a", "b", "never"])
        assert list(withheld) == ["a", "b"]
        assert "orders-0 up to offset 44" in withheld["a"].reason
    assert scene.positions.done == ["target-lost", "target-lost"]
    scene.amends.settle([route(OLD)])
    assert scene.positions.known == {TP: SHARED}
    scene.target.error = BrokerError(36, "TOPIC_ALREADY_EXISTS")
    assert "not to be seen yet" in scene.amends.withhold_targets(["a"])["a"].reason

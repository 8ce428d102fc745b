"""Positions that are no longer true, without clusters: who is believed, what is written first, what is made when."""

from __future__ import annotations

from uuid import UUID

import pytest

from heliograph.errors import BrokerError
from heliograph.flow.amends import Amends
from heliograph.flow.topics import Route, Survey
from heliograph.mirror.incidents import Book, encode, key_of
from heliograph.mirror.positions import Position
from heliograph.state.positions import PositionsLog
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
    assert log.known[TP] == Position(9, 8, 0, 6, NEW, 6)

"""The producer-state probe without a cluster: in which order, how many questions, and what is passed over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from heliograph.batch import Record, encode
from heliograph.errors import BrokerError
from heliograph.mirror import incidents
from heliograph.mirror.assignment import Assignment, Coordinates, LaneSpec
from heliograph.mirror.incidents import Incident, Kind
from heliograph.mirror.positions import Position
from heliograph.mirror.producer_state import ProbeResult, ProducerStateProbe, Question
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import ProducerState
from heliograph.wire.codes import broker_error

TP, REMOTE, ID = TopicPartition("orders", 0), TopicPartition("us.orders", 0), UUID(int=1)
LOG = TopicPartition("incidents", 0)
STOOD = Position(40, 7, 0, 40, ID, 40)


class Target:
    """Remembers what it was asked, in order."""

    def __init__(self, last_sequence: int | None = 39, end: int = 40) -> None:
        self.asked: list[str] = []
        self.states: dict[int, ProducerState] | BrokerError = {}
        if last_sequence is not None:
            self.states = {7: ProducerState(0, last_sequence, 0)}
        self.end = end
        self.written: list[Incident] = []

    def describe_producers(self, tps: Any) -> dict[TopicPartition, Any]:
        self.asked.append("sequences")
        return dict.fromkeys(tps, self.states)

    def list_offsets(self, tps: Any, *, at: str) -> dict[TopicPartition, int]:
        self.asked += ["incidents" if tp == LOG else "end" for tp in tps]
        return {tp: len(self.written) if tp == LOG else self.end for tp in tps}

    def metadata(self, topics: list[str]) -> Any:
        class Topic:
            id, partitions, error = None, {0: None}, 0

        class Metadata:
            topics = {"incidents": Topic} if self.written else {}

        self.asked.append("incidents")
        return Metadata

    def fetch(self, tp: TopicPartition, offset: int, *, max_bytes: int) -> Any:
        class Fetched:
            records = (
                b"".join(
                    encode([Record(n, 0, incidents.key_of("us", one), incidents.encode(one), ())])
                    for n, one in enumerate(self.written)
                )
                if tp == LOG
                else b""
            )

        return Fetched

    def probe(self) -> ProducerStateProbe:
        assignment = Assignment(
            *("us->eu", Cluster("us"), Cluster("eu"), "read_committed", "p", 1, "", 0, 1, 0, 60.0, ()),
            Coordinates("127.0.0.1", 1, b""),
            incidents_topic=LOG.topic,
        )
        return ProducerStateProbe(assignment, self)  # type: ignore[arg-type]

    def ask(self, position: Position = STOOD, *, at_first: bool = True) -> Any:
        spec = LaneSpec(TP, ID, REMOTE, position, 1_000_000)
        return self.probe().ask({REMOTE: Question(spec, position)}, at_first=at_first)[REMOTE]


def test_where_the_target_agrees_its_end_is_not_asked_for() -> None:
    target = Target()
    assert target.ask() == ProbeResult(0, (), -1, frozenset())
    assert target.asked == ["sequences", "incidents"], "in this order: rule H"
    target = Target()
    assert target.ask(at_first=False).end == 40
    assert target.asked == ["sequences", "end", "incidents"]


def test_one_that_cannot_be_asked_about_is_nobody_else_s_affair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records behind its position cannot be looked at, since its leader moved between two questions."""

    def moved(*_: object, **__: object) -> None:
        raise broker_error(6)  # NOT_LEADER_OR_FOLLOWER

    target, behind, other = Target(), replace(STOOD, sequence=30, target=30), TopicPartition("us.orders", 1)
    monkeypatch.setattr(target, "fetch", moved)
    specs = {tp: LaneSpec(TP, ID, tp, STOOD, 1_000_000) for tp in (REMOTE, other)}
    asked = {REMOTE: Question(specs[REMOTE], behind), other: Question(specs[other], STOOD)}
    answers = target.probe().ask(asked, at_first=True)
    assert isinstance(answers[REMOTE], BrokerError)
    assert answers[other] == ProbeResult(0, (), -1, frozenset())


def test_of_a_claim_that_the_broker_does_not_know_the_log_is_asked() -> None:
    """It may have been used, and the broker may have forgotten it: an empty log says that it was not."""
    target = Target(None, 0)
    assert target.ask(Position(5, 7, 0, 0, ID, 0)) == ProbeResult(0, (), 0, frozenset(), known=False)
    assert target.asked == ["sequences", "end", "incidents"]


@pytest.mark.parametrize(
    ("last_sequence", "position"),
    [
        (29, STOOD),  # it counts less than it acknowledged
        (None, Position(40, 7, 0, 0, ID, 12)),  # claimed behind what was there
    ],
)
def test_where_it_does_not_agree_its_end_is_asked_for(last_sequence: int | None, position: Position) -> None:
    target = Target(last_sequence, 3)
    found = target.ask(position)
    assert "end" in target.asked
    assert found.end == 3
    assert found.there == (-10 if last_sequence else 0)


def test_what_was_passed_over_is_what_this_producer_id_was_refused() -> None:
    def refused(first: int, producer: int, policy: str = "quarantine") -> Incident:
        runs = ((first, 1),)
        return Incident(Kind.REFUSED, TP, ID, first, first + 1, policy, "", REMOTE, 0, runs, producer=producer)

    target = Target()
    target.written = [refused(12, 7), refused(43, 7), refused(44, 6), refused(45, 7, "stop"), refused(46, 7, "skip")]
    assert target.ask().held == {43, 46}


def test_what_cannot_be_asked_is_the_answer() -> None:
    target = Target()
    target.states = broker_error(29, topic=REMOTE.topic)
    assert target.ask() is target.states

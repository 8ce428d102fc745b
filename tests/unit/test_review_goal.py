"""What is left of the way to the sources' ends, when to give up, and what an audit holds against each other."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.cli.current import summary
from heliograph.health.status import FlowReport, FlowStatus, ParkedPartition
from heliograph.mirror.incidents import Incident, Kind
from heliograph.mirror.positions import SEQUENCES, Position
from heliograph.review.audit import Checked, Refusals, verdict
from heliograph.review.goal import PATIENCE_S, Goal, Left
from heliograph.survey.starts import Bounds
from heliograph.types import TopicPartition
from heliograph.wire.codes import broker_error

FLOW = "us->eu"


class Partition:
    def __init__(self, partition: int, position: int | None, reason: str = "", state: str = "moving") -> None:
        self.topic, self.partition, self.position, self.reason = "orders", partition, position, reason
        self.state = state


def report(*partitions: Partition, parked: tuple[ParkedPartition, ...] = ()) -> list[FlowReport]:
    several: Any = partitions
    return [FlowReport("us", "eu", FlowStatus(FLOW, "running", parked=parked), partitions=several)]


def goal(**ends: int) -> Goal:
    one = Goal([], [])
    one.ends = {FLOW: {TopicPartition("orders", int(name[1:])): end for name, end in ends.items()}}
    return one


def test_it_is_reached_when_every_partition_is() -> None:
    one = goal(p0=10, p1=0)
    (left,) = one.left(report(Partition(0, 9, "slow"), Partition(1, 0)))[FLOW]
    assert str(left) == "orders-0: at 9 of 10, slow"
    assert not left.hopeless
    assert not one.reached({FLOW: [left]}, 1e9)
    level = one.left(report(Partition(0, 12), Partition(1, 0)))  # the source went on: what came later is not waited for
    assert level == {FLOW: []}
    assert one.reached(level, 0.0)


def test_what_stays_parked_is_given_up_after_a_while() -> None:
    one = goal(p0=10, p1=10)
    parked = ParkedPartition("orders", 1, "too large", "raise max.message.bytes")
    left = one.left(report(Partition(0, 10), Partition(1, 3), parked=(parked,)))
    assert [str(each) for each in left[FLOW]] == ["orders-1: too large. raise max.message.bytes"]
    assert not one.reached(left, 100.0)
    assert not one.reached(left, 100.0 + PATIENCE_S - 1)
    assert one.reached(left, 100.0 + PATIENCE_S)


def test_what_an_operator_paused_is_given_up_too() -> None:
    one = goal(p0=10, p1=10)
    left = one.left(report(Partition(0, 10), Partition(1, 3, "paused by kim", "paused")))
    assert [str(each) for each in left[FLOW]] == ["orders-1: paused by kim. heliograph resume lets it go on"]
    assert not one.reached(left, 0.0)
    assert one.reached(left, PATIENCE_S)


def test_one_that_moves_again_is_waited_for_anew() -> None:
    one = goal(p0=10)
    parked = one.left(report(Partition(0, 3), parked=(ParkedPartition("orders", 0, "no leader", ""),)))
    assert not one.reached(parked, 0.0)
    assert not one.reached(one.left(report(Partition(0, 4))), PATIENCE_S - 1)
    assert not one.reached(parked, PATIENCE_S)


def test_topics_that_vanish_and_topics_that_never_began_are_told() -> None:
    one = goal(p0=10, p1=10)
    hidden = ParkedPartition("secret", None, "not allowed", "allow DESCRIBE")
    left = one.left(report(Partition(0, 10), parked=(hidden,)))[FLOW]
    assert [str(each) for each in left] == [
        "orders-1: it vanished: its source is not copied any more",
        "secret: not allowed. allow DESCRIBE",
    ]
    assert all(each.hopeless for each in left)


@pytest.mark.parametrize(
    ("position", "last_sequence", "log_end", "words"),
    [
        (Position(10, 7, 0, 10, target=10), 9, 10, ""),
        (Position(10, 7, 0, 4, target=4), 3, 4, ""),  # holes in the source
        (Position(10, 7, 0, 0, target=0), None, 0, ""),  # nothing but holes
        (Position(10, 7, 0, 0, target=5), SEQUENCES - 1, 5, ""),  # sequences go round
        (Position(12, 7, 0, 12, target=12), 11, 40, ""),  # it went on meanwhile; somebody else writes there too
        (Position(9, 7, 0, 9, target=9), 8, 9, "its position is 9, not 10"),
        (Position(10, 7, 0, 10, target=10), 8, 10, "the target counts 9 records, the position 10"),
        (Position(10, 7, 0, 10, target=10), None, 10, "the target knows nothing of the 10 records"),
        (Position(10, 7, 0, 10, target=10), 9, 9, "its copy ends at 9"),
        (Position(10, 7, 0, 10, target=10), 9, broker_error(3), "cannot be asked"),
    ],
)
def test_the_audit(position: Position, last_sequence: int | None, log_end: Any, words: str) -> None:
    found = verdict(position, 10, last_sequence, log_end)
    assert found == words if not words else words in found


def test_what_was_refused_and_not_sent_again_is_not_in_the_copy() -> None:
    tp = TopicPartition("orders", 0)

    def refused(first: int, length: int, policy: str) -> Incident:
        runs = ((first, length),)
        return Incident(Kind.REFUSED, tp, None, first, first + length, policy, f"no key at {first}", tp, 0, runs)

    refusals = Refusals()
    refusals.add(refused(3, 2, "quarantine"), kept={4})  # 3 was sent again
    assert refusals.problem(Bounds(5, 20), 20) == ""  # retention took it since
    assert "1 records, which are not in the copy, the first at source offset 4: no key at 3" in refusals.problem(
        Bounds(0, 20), 20
    )
    refusals.add(refused(9, 1, "skip"), kept={4})
    refusals.add(refused(15, 1, "skip"), kept={4})
    assert "2 records" in refusals.problem(Bounds(0, 20), 10)  # what came later was not asked for
    assert set(refusals.why) == {3, 4, 9, 15}


def test_a_summary_tells_each_partition_once() -> None:
    tp, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    checks = [Checked(tp, 10, 10), Checked(other, 10, 3, "its position is 3, not 10")]
    told = summary(checks, [Left("orders", 1, "too large", True)])
    assert told["problems"] == ["orders-1: too large"]
    assert (told["complete"], told["partitions"], told["records"]) == (False, 2, 13)
    assert summary(checks, [])["problems"] == ["orders-1: its position is 3, not 10"]
    assert summary(checks[:1], [])["complete"]

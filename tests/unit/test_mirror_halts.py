"""Lanes that an operator halts: they stop at once, and nothing sets them free but a word. (That no record is lost or
doubled by it is `tests/property/test_lane_ledger.py`'s.)"""

from __future__ import annotations

from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.halts import Halts
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.positions import Position
from heliograph.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Bench:
    """Two lanes that flow."""

    def __init__(self, halted: frozenset[TopicPartition] = frozenset()) -> None:
        self.lanes = [Lane.of(LaneSpec(tp, None, tp, Position(5, 7, 0, 5), 1_000_000)) for tp in (A, B)]
        self.left: list[TopicPartition] = []
        self.asked: list[TopicPartition] = []
        self.halts = Halts(
            self.lanes,
            halted,
            leave=lambda lane: self.left.append(lane.spec.tp),
            ask=lambda lanes: self.asked.extend(lane.spec.tp for lane in lanes),
        )
        for lane in self.lanes:
            lane.found(0)
        self.halts.active = True

    def states(self) -> list[State]:
        return [lane.state for lane in self.lanes]


def test_only_what_is_named_is_left_and_only_that_is_asked_for_again() -> None:
    bench = Bench()
    bench.halts.set([A, TopicPartition("of another task", 0)])
    assert bench.states() == [State.HALTED, State.FLOWING]
    assert not bench.lanes[0].sendable()
    bench.halts.set([A])  # said again, as it is whenever orders change
    assert (bench.left, bench.asked) == ([A], [])
    bench.halts.set([])
    assert bench.states() == [State.LOST, State.FLOWING]
    assert bench.asked == [A]


def test_those_of_the_plan_are_halted_from_the_beginning() -> None:
    bench = Bench(frozenset({B}))
    assert [lane in bench.halts for lane in bench.lanes] == [False, True]
    bench.halts.set([B])
    assert bench.left == []  # it was never fetched


def test_before_the_first_question_a_word_only_counts() -> None:
    """The epoch before has not handed over yet: asking now would begin to copy beside it."""
    bench = Bench()
    bench.halts.active = False
    bench.halts.set([A])
    bench.halts.set([B])
    assert (bench.left, bench.asked) == ([], [])
    assert [lane in bench.halts for lane in bench.lanes] == [False, True]


def test_a_parked_lane_that_is_halted_is_not_parked_any_more() -> None:
    bench = Bench()
    bench.lanes[0].park("refused", "allow it", wish="restart")
    bench.halts.set([A])
    assert (bench.lanes[0].state, bench.lanes[0].reason, bench.lanes[0].wish) == (State.HALTED, "", "")
    bench.halts.set([])
    assert bench.lanes[0].state is State.LOST


def test_one_that_is_being_asked_about_and_parks_meanwhile_is_the_tasks_to_retry() -> None:
    bench = Bench()
    bench.halts.set([A])
    bench.lanes[0].park("said by an errand that was under way")
    bench.halts.set([])
    assert bench.lanes[0].state is State.PARKED
    assert bench.asked == []

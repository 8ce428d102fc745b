"""The state machine of a copied partition under every order of answers: late, repeated, reordered and missing ones, a
broker that refuses, forgets and works late, pauses, freezes and crashes. What is left is one copy, in order.

The model is `tests/model_task.py`: a real task over a model of two clusters.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heliograph.mirror.lane import State
from tests.model_task import CLAIM, ModelTask, TargetPartition

ACTIONS = (
    *("fetch", "fetch", "push", "deliver", "deliver", "answer", "answer", "cut", "late"),
    *("due", "work", "settle", "settle again", "write", "written", "pause", "resume", "freeze", "turn"),
    *("refuse", "forget", "broker works", "replicate", "lag", "crash", "flush"),
)
Steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3)), max_size=120)
LAYOUT = st.lists(st.integers(1, 6), min_size=1, max_size=15)


class Course:
    """One task after another on one target partition; a new one begins where the last position that was written is."""

    def __init__(self, layout: list[int], bad: set[int]) -> None:
        self.layout, at = [], 0
        for count in layout:
            self.layout.append((at, count))
            at += count
        self.target = TargetPartition(bad)
        self.stored = CLAIM
        self.patched = pytest.MonkeyPatch()
        self.model = ModelTask(self.patched, self.layout, self.target)

    def act(self, action: str, n: int) -> None:
        model, target = self.model, self.target
        acts: dict[str, Callable[[], object]] = {
            "fetch": lambda: model.fetch(1 + n),
            "push": model.push,
            "deliver": model.deliver,
            "answer": model.answer,
            "cut": lambda: model.cut(delivered=n),
            "late": lambda: model.cut(delivered=n // 2, late=n),
            "due": model.due,
            "work": lambda: model.probes.work(n),
            "settle": lambda: model.settle(model.probes, n),
            "settle again": lambda: model.settle(model.probes, n, keep=True),
            "write": lambda: model.writes.work(n),
            "written": lambda: model.settle(model.writes, n),
            "pause": model.pause,
            "resume": model.resume,
            "freeze": model.freeze,
            "turn": model.turn,
            "refuse": model.refuse,
            "forget": target.forget,
            "broker works": target.work_on_waiting,
            "replicate": lambda: setattr(target, "unreplicated", 0),
            "lag": lambda: setattr(target, "unreplicated", min(n, len(target.log))),
            "flush": self.flush,
            "crash": self.crash,
        }
        acts[action]()

    def flush(self) -> None:
        acked = self.model.lane.acked
        if acked.next_offset >= self.stored.next_offset:
            self.stored = acked  # invariant c of positions: the furthest is taken

    def crash(self) -> None:
        """Requests that were sent arrive or do not; what waits inside the broker is worked on before the next start."""
        self.target.work_on_waiting()
        self.model = ModelTask(self.patched, self.layout, self.target, self.stored)

    def finish(self) -> None:
        self.target.unreplicated = 0
        self.model.resume()
        self.model.finish()
        self.patched.undo()


def run(layout: list[int], steps: list[tuple[str, int]], bad: set[int]) -> tuple[Course, list[int]]:
    course = Course(layout, bad)
    for action, n in steps:
        course.act(action, n)
    course.finish()
    return course, [offset for offset in range(sum(layout)) if offset not in bad]


STALE = [("fetch", 0), ("push", 0), ("deliver", 0), ("cut", 0), ("due", 0), ("work", 0), ("freeze", 0), ("turn", 0)]


@settings(max_examples=400, deadline=None)
@given(layout=LAYOUT, steps=Steps, bad=st.sets(st.integers(0, 60), max_size=6))
@example(layout=[3, 3, 3], steps=[*STALE, ("settle", 0)], bad=set())
def test_any_order_of_answers_leaves_one_copy_in_order(layout, steps, bad):
    """Without two faults that only say so loudly (the next test): a batch is refused, and the broker forgets."""
    quiet = [(action, n) for action, n in steps if action != "refuse"]
    forgets = any(action == "forget" for action, _ in quiet)
    course, expected = run(layout, quiet, set() if forgets else bad)
    if forgets:
        expected = list(range(sum(layout)))
    assert course.model.copied, (course.model.lane.state, course.model.lane.reason)
    assert course.target.log == expected


@settings(max_examples=400, deadline=None)
@given(layout=LAYOUT, steps=Steps, bad=st.sets(st.integers(0, 60), max_size=6))
def test_what_the_target_misses_is_never_passed_over_in_silence(layout, steps, bad):
    """A broker that refuses a batch, forgets the producer id and then takes the next batch has stored out of order. No
    client can prevent it; the partition stops and says how many records are missing."""
    course, expected = run(layout, steps, bad)
    if course.model.lane.state is State.PARKED:
        assert "lacks" in course.model.lane.reason
        assert sorted(set(course.target.log)) == sorted(course.target.log), "stored twice"
    else:
        assert course.model.copied, (course.model.lane.state, course.model.lane.reason)
        assert course.target.log == expected

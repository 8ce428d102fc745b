"""The law of health: a source that moved and a position that did not are never healthy for longer than the limit.

Hypothesis invents what is seen and when; a reference remembers every sighting and judges by the definition.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.health.verdict import LIMIT_S, Progress

STEP = st.floats(0.0, 3.0)
SIGHTING = st.one_of(
    st.tuples(st.just("copied"), st.integers(0, 3)),
    st.tuples(st.just("appended"), st.integers(0, 3)),
    st.tuples(st.just("task looks"), st.just(0)),
    st.tuples(st.just("task looks at an old answer"), st.integers(0, 5)),
    st.tuples(st.just("coordinator looks"), st.just(0)),
    st.tuples(st.just("nobody looks"), st.just(0)),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(STEP, SIGHTING), max_size=60))
def test_moved_source_and_unmoved_position_are_never_healthy_beyond_the_limit(
    course: list[tuple[float, tuple[str, int]]],
) -> None:
    now, end, position = 1_000.0, 10, 10
    progress = Progress(good_at=now)
    progress.saw_position(position, now)
    moved_at, looked_at, ahead_at = now, now, None  # ahead_at: since when somebody knows that the source is ahead
    task_saw = 0
    for step, (what, number) in course:
        now += step
        if what == "copied" and position < end:
            position = min(position + max(number, 1), end)
            moved_at, ahead_at = now, None
            progress.saw_position(position, now)
        elif what == "appended":
            end += number
        elif what.startswith("task looks"):  # at an old answer it sees less than there is, never less than before
            task_saw = max(end - number, task_saw)
            progress.saw_end("task", task_saw, now)
            looked_at = now
        elif what == "coordinator looks":
            progress.saw_end("coordinator", end, now)
            looked_at = now
        if progress.end_offset > position and ahead_at is None:
            ahead_at = now
        verdict = progress.verdict(now)
        if ahead_at is not None and now - max(ahead_at, moved_at) > LIMIT_S:
            assert not verdict.health.healthy, (now, end, position, progress)
            assert verdict.behind == progress.end_offset - position
        if now - max(looked_at, moved_at) > LIMIT_S:
            assert not verdict.health.healthy, "nobody looked"


@given(st.floats(0, 1e6), st.floats(0.001, 100.0), st.integers(0, 1 << 40), st.integers(1, 1 << 40))
def test_looking_does_not_heal(start: float, every_s: float, position: int, behind: int) -> None:
    """Any number of looks at a source that is ahead, at any pace, leave it stalled once the limit is over."""
    progress = Progress(good_at=start)
    progress.saw_position(position, start)
    for number in range(1, 50):
        progress.saw_end("task", position + behind, start + number * every_s)
        progress.saw_position(position, start + number * every_s)
        healthy = progress.verdict(start + number * every_s).health.healthy
        assert healthy == ((start + number * every_s) - start <= LIMIT_S)

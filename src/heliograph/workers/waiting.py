"""Until connectors are where they shall be: asked again and again, and believed when the answer has lasted.

A worker carries an order out after it has taken it, and tells the state from before for a moment: a connector that
failed is still FAILED just after it was restarted, one that ran is still RUNNING. So what is told counts only when it
was told for a while; how long, is said beside each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from heliograph.errors import TimedOut, Unreachable, WorkerError
from heliograph.workers.client import Worker
from heliograph.workers.standing import RUNNING, Standing, standing

POLL_S = 0.25
STEADY_S = 1.0
# A connector gets its tasks after it has started, and MM2's has none where no topic or group matches.
NO_TASKS_S = 4.0
LOST_S = 2.0

Judge = Callable[[Standing], bool]
Watch = Callable[[Mapping[str, Standing]], None]  # told how all stand, whenever that was asked


def lasting(there: Judge, lost: Judge) -> Judge:
    """Whether one has got there, or never will, for as long as it takes to be believed."""
    since: dict[str, tuple[str, float]] = {}

    def settled(one: Standing) -> bool:
        word = "there" if there(one) else "lost" if lost(one) else ""
        now = time.monotonic()
        before, began = since.get(one.name, ("", now))
        if word != before:
            began = now
        since[one.name] = (word, began)
        return bool(word) and now - began >= _least_s(word, one)

    return settled


def _least_s(word: str, one: Standing) -> float:
    if word == "lost":
        return LOST_S
    if one.state != RUNNING:
        return 0.0  # paused, stopped, gone: nobody says so before it is so
    return STEADY_S if one.tasks else NO_TASKS_S


def settle(
    worker: Worker, names: Sequence[str], settled: Judge, timeout_s: float, watch: Watch = lambda _all: None
) -> dict[str, Standing]:
    """How they stand, once each has settled or the time is over. A worker that goes away meanwhile may come back, or
    another answer for it; where none does, that is raised at the end."""
    deadline = time.monotonic() + timeout_s
    found: dict[str, Standing] = {}
    left = list(names)
    while left:
        try:
            for name in left:
                found[name] = standing(name, worker.status(name))
        except (Unreachable, TimedOut, WorkerError):
            if time.monotonic() > deadline:
                raise
        else:
            left = [name for name in left if not settled(found[name])]
            watch(found)
        if time.monotonic() > deadline:
            break
        if left:
            time.sleep(POLL_S)
    return found

"""Connectors brought to where they shall be, one outcome each: deployed, taken away, waited for until they run.

Invariants:
a. Nothing is changed before every file is whole and the worker has found nothing wrong in any (`validated`).
b. One connector that fails does not keep the others from their turn; each has an outcome.
c. A connector is stopped before it is deleted, and its tasks have ended: they write their positions then, and whoever
   comes after, however soon, goes on there instead of copying again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from heliograph.errors import ConfigError, NoSuchConnector, TimedOut, Unreachable, WorkerError
from heliograph.workers.client import Worker
from heliograph.workers.files import Wanted
from heliograph.workers.standing import ABSENT, FAILED, PAUSED, RUNNING, STOPPED, Standing, standing

POLL_S = 0.25
# After a new configuration the old state is told for a moment, so what runs must do so for this long …
STEADY_S = 1.0
# … and a connector without tasks longer: it gets them after it has started. MM2's has none where no topic matches.
NO_TASKS_S = 4.0
GONE_S = 15.0

Watch = Callable[[Mapping[str, Standing]], None]  # told how all stand, whenever that was asked


@dataclass(frozen=True, slots=True)
class Outcome:
    """`did`: created, updated, unchanged, restarted, deleted, absent; refused where the worker said no."""

    name: str
    did: str
    standing: Standing
    problem: str = ""  # why it is not where it shall be

    @property
    def well(self) -> bool:
        return not self.problem


def validated(worker: Worker, wanted: Sequence[Wanted]) -> None:
    """Raises ConfigError with everything that the worker finds wrong in these configurations (invariant a)."""
    problems = []
    for one in wanted:
        try:
            found = worker.validate(one.config["connector.class"], one.config)
        except WorkerError as error:
            if not error.status:
                raise
            found = [error.said]
        problems += [f"{one.path}: {text}" for text in found]
    if problems:
        raise ConfigError(problems, source=str(worker.address))


def deploy(worker: Worker, wanted: Sequence[Wanted]) -> list[Outcome]:
    """Each as its file has it; what is so already and runs is left alone."""
    return [_attempt(one.name, partial(_deployed, worker, one)) for one in wanted]


def _deployed(worker: Worker, one: Wanted) -> Outcome:
    before = worker.config(one.name)
    now = standing(one.name, worker.status(one.name))
    if before == one.config:
        if not now.failed:
            return Outcome(one.name, "unchanged", now)
        worker.restart(one.name, tasks=True, only_failed=True)
        return Outcome(one.name, "restarted", now)
    created = worker.put_config(one.name, one.config)
    return Outcome(one.name, "created" if created else "updated", now)


def undeploy(worker: Worker, names: Sequence[str], timeout_s: float = GONE_S) -> list[Outcome]:
    """Stopped and deleted (invariant c); one that is not there is no problem."""
    there = set(worker.names())
    present = [name for name in names if name in there]
    for name in present:
        _attempt(name, partial(_stopped, worker, name))
    settle(worker, present, _at_rest, timeout_s)
    return [
        _attempt(name, partial(_deleted, worker, name))
        if name in there
        else Outcome(name, "absent", Standing(name, ABSENT))
        for name in names
    ]


def _at_rest(one: Standing) -> bool:
    """Also what failed is: it has nothing more to write."""
    return one.state in (STOPPED, ABSENT, FAILED) and not any(task == RUNNING for task in one.tasks)


def _stopped(worker: Worker, name: str) -> Outcome:
    worker.stop(name)
    return Outcome(name, "stopped", Standing(name, STOPPED))


def _deleted(worker: Worker, name: str) -> Outcome:
    try:
        worker.delete(name)
    except NoSuchConnector:
        return Outcome(name, "absent", Standing(name, ABSENT))
    return Outcome(name, "deleted", Standing(name, ABSENT))


def _attempt(name: str, do: Callable[[], Outcome]) -> Outcome:
    """Invariant b. That nobody answers, or does not let us in, is everybody's trouble and goes up."""
    try:
        return do()
    except WorkerError as error:
        if not error.status:
            raise
        return Outcome(name, "refused", Standing(name, "UNKNOWN"), error.said or error.message)


def wait_running(worker: Worker, outcomes: Sequence[Outcome], timeout_s: float, watch: Watch) -> list[Outcome]:
    """Until each one that was deployed runs, or cannot; the others are as they were."""
    still = [one.name for one in outcomes if one.did == "unchanged" and one.standing.running]
    waiting = [one.name for one in outcomes if one.well and one.name not in still]
    began = time.monotonic()
    steady_since: dict[str, float] = {}

    def settled(one: Standing) -> bool:
        now = time.monotonic()
        if not one.running:
            steady_since.pop(one.name, None)
            return one.failed or one.state in (PAUSED, STOPPED)
        least_s = STEADY_S if one.tasks else NO_TASKS_S
        return now - steady_since.setdefault(one.name, now) >= least_s

    last = settle(worker, waiting, settled, timeout_s, watch)
    took_s = time.monotonic() - began
    return [
        replace(one, standing=last[one.name], problem=_hindrance(last[one.name], took_s)) if one.name in last else one
        for one in outcomes
    ]


def _hindrance(one: Standing, took_s: float) -> str:
    if one.failed:
        return one.reason
    if one.state in (PAUSED, STOPPED):
        return f"it is {one.state}, by somebody's order: heliograph connectors resume {one.name}"
    if not one.running:
        return f"{one.words} after {took_s:.0f} s: the worker's log says more, --timeout waits longer"
    return ""


def settle(
    worker: Worker,
    names: Sequence[str],
    settled: Callable[[Standing], bool],
    timeout_s: float,
    watch: Watch = lambda _all: None,
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

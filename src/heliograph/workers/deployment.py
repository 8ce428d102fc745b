"""Connectors brought to where they shall be, one outcome each: deployed, taken away, waited for until they run.

Invariants:
a. Nothing is changed before every file is whole and the worker has found nothing wrong in any (`validated`).
b. One connector that fails does not keep the others from their turn; each has an outcome.
c. A connector is stopped before it is deleted, and its tasks have ended: they write their positions then, and whoever
   comes after, however soon, goes on there instead of copying again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from heliograph.errors import ConfigError, NoSuchConnector, WorkerError
from heliograph.workers.client import Worker
from heliograph.workers.files import Wanted
from heliograph.workers.standing import ABSENT, FAILED, PAUSED, RUNNING, STOPPED, Standing, standing
from heliograph.workers.waiting import Watch, lasting, settle

GONE_S = 15.0


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
    settled = lasting(lambda one: one.running, lambda one: one.failed or one.state in (PAUSED, STOPPED))
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

"""What a flow has decided by itself, for people: how many tasks, how large everything is, who is live and who history.

Tasks decide for themselves (`mirror.sizes`) and say so with every report; here that is put together and logged, once at
the start and again when a decision changes, not more than once a minute. What merely moves (the round trip, how many
partitions are behind) is shown and not logged.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import structlog

from heliograph.flow.plan import task_count
from heliograph.flow.relay import TaskKey
from heliograph.mirror.protocol import Report
from heliograph.types import Flow

log = structlog.get_logger()

LOG_EVERY_S = 60.0  # a round trip at the border between near and far would write a line every second
MOVING = ("round_trip_ms", "merge_compressed_below_bytes", "live", "history")
MIB = 1 << 20


def tasks_because(tasks_max: int | None, cores: int) -> str:
    """Why there are so many tasks, in words."""
    if tasks_max is not None:
        return f"tasks.max = {tasks_max}, and no more than partitions"
    return f"one for two of {cores} cores, and no more than partitions"


def foreseen(flow: Flow) -> str:
    """What can be said before anything runs."""
    cores = os.cpu_count() or 1
    most = task_count(1 << 30, flow.tasks_max, cores)
    return (
        f"at most {most} task{'s' * (most != 1)} ({tasks_because(flow.tasks_max, cores)}); requests, batches and "
        f"merging follow the measured round trip, partitions far behind give way to live ones: see /status when it runs"
    )


class Sizing:
    """Of one flow."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._lock = threading.Lock()
        self._epoch = self._tasks = self._partitions = 0
        self._said: dict[int, Mapping[str, Any]] = {}  # by task
        self._logged: dict[str, Any] = {}
        self._logged_at = -LOG_EVERY_S

    def change(self, flow: Flow) -> None:
        self._flow = flow

    def begin(self, epoch: int, tasks: int, partitions: int) -> None:
        with self._lock:
            self._epoch, self._tasks, self._partitions = epoch, tasks, partitions
            self._said = {}

    def reported(self, task: TaskKey, report: Report) -> None:
        said = report.sizes
        with self._lock:
            if not said or task[0] != self._epoch:
                return
            self._said[task[1]] = said
            if len(self._said) < self._tasks or not all(one["round_trip_ms"] for one in self._said.values()):
                return
            now = self._put_together()
            changed = {key for key, value in now.items() if key not in MOVING and value != self._logged.get(key)}
            if not changed or time.monotonic() < self._logged_at + LOG_EVERY_S:
                return
            self._logged, self._logged_at = now, time.monotonic()
        log.info("sized", flow=self._flow.name, **now, what=words(now))

    def decided(self) -> dict[str, Any]:
        """For /status; empty before the first report."""
        with self._lock:
            return self._put_together() if self._said else {}

    def _put_together(self) -> dict[str, Any]:
        """The tasks of a flow talk to the same clusters; where they differ, the farther and larger is shown."""
        found: dict[str, Any] = {"tasks": self._tasks, "partitions": self._partitions}
        found["tasks_because"] = tasks_because(self._flow.tasks_max, os.cpu_count() or 1)
        for name in next(iter(self._said.values())):
            values = [said[name] for said in self._said.values()]
            found[name] = sum(values) if name in ("live", "history") else max(values)
        return found


def words(sizes: Mapping[str, Any]) -> str:
    tasks, kib = sizes["tasks"], 1024
    return "; ".join(
        (
            f"{tasks} task{'s' * (tasks != 1)} for {sizes['partitions']} partitions ({sizes['tasks_because']})",
            f"the target is {'far' if sizes['far'] else 'near'} ({sizes['round_trip_ms']:g} ms)",
            f"requests up to {sizes['request_bytes'] / MIB:g} MiB",
            f"plain batches below {sizes['merge_plain_below_bytes'] / kib:.0f} KiB and compressed ones below "
            f"{sizes['merge_compressed_below_bytes'] / kib:.1f} KiB merged",
            f"merged batches up to {sizes['merged_batch_bytes'] / 1e6:g} MB",
            f"{sizes['batches_in_flight']} batches in flight a partition",
            f"answers of the source up to {sizes['fetch_bytes'] / MIB:g} MiB",
            f"{sizes['live']} partitions live, {sizes['history']} history",
        )
    )

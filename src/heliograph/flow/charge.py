"""One flow under supervision: its coordinator and its streaming query, started again when it fails, ended alone.

What goes wrong is retried for ever, with backoff, and its reason shown.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

from heliograph.flow.coordinator import Coordinator
from heliograph.mirror.assignment import Coordinates

if TYPE_CHECKING:
    from heliograph.spark.engine import Engine

log = structlog.get_logger()

RESTART_FIRST_S, RESTART_MOST_S = 1.0, 60.0
WORK_S = 1.0  # between two looks at whether the flow is to end, while it has nothing to copy
HEALTHY_S = 120.0  # a query that ran this long starts its backoff from the beginning when it fails
TASKS_S = 5.0  # what tasks get to write their positions when a flow ends


class Charge:
    def __init__(self, coordinator: Coordinator, engine: Engine, coordinates: Coordinates, *, opened: bool) -> None:
        """`opened`: whether the coordinator is. One that could not be opened is tried again."""
        self.coordinator = coordinator
        self._engine, self._coordinates = engine, coordinates
        self._opened = opened
        self._ending = threading.Event()
        self._query: Any = None
        self._starting = threading.Lock()  # held while a query is: one that begins after the end would never end
        self._thread = threading.Thread(target=self._supervise, name=coordinator.flow.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def ended(self) -> bool:
        return self._ending.is_set()

    def ask_end(self) -> None:
        """Of the tasks, so that positions are written; the query ends behind them."""
        self._ending.set()
        self.coordinator.stop()

    def end(self, reason: str = "", *, state: str = "stopped") -> None:
        """This flow alone, in order: tasks, query, coordinator. `state` and `reason` are shown from then on."""
        self.ask_end()
        deadline = time.monotonic() + TASKS_S
        while self.coordinator.working and time.monotonic() < deadline:
            time.sleep(0.02)
        with self._starting:
            query = self._query
        if query is not None:
            self._engine.end(query)
        self.coordinator.query(state, reason)
        self.coordinator.close()

    def _supervise(self) -> None:
        """Start the flow's query, and start it again when it fails: with backoff, and saying why."""
        backoff = RESTART_FIRST_S
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                reason = self._run()
            except Exception as error:  # noqa: BLE001 - top of a loop: whatever py4j throws is said and tried again
                reason = f"{type(error).__name__}: {error}"
            if self._ending.is_set():
                return
            backoff = RESTART_FIRST_S if time.monotonic() - began > HEALTHY_S else min(backoff * 2, RESTART_MOST_S)
            log.warning("query ended, starting it again", flow=self.coordinator.flow.name, why=reason, in_s=backoff)
            again_at = time.monotonic() + backoff
            what = f"the streaming query ended: {reason or 'stopped'}" if self._opened else f"not ready: {reason}"
            self.coordinator.query("restarting", what, again_at)
            self._ending.wait(backoff)

    def _run(self) -> str | None:
        """Until the query ends: why it did."""
        if not self._opened:
            self.coordinator.open()
            self._opened = True
        with self._starting:
            if self._ending.is_set():
                return None
            self.coordinator.query("running")
        # A query costs a process beside the driver and is asked for epochs twice a second: a flow without topics, as
        # the pair of a spoke whose topics are multiplexed, has none.
        while not self.coordinator.has_work(WORK_S):
            if self._ending.is_set():
                return None
        with self._starting:
            if self._ending.is_set():
                return None
            self._query = self._engine.start(self.coordinator.flow.name, self._coordinates)
        reason = None
        while reason is None and not self._ending.is_set():
            reason = self._engine.wait(self._query, 1.0)
        return reason

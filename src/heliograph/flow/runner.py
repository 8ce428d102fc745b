"""All flows of one process: coordinators, one Spark session, a supervised streaming query per flow.

What is wrong with a cluster at the start is raised before Spark's JVM is launched and before anything is written, so
that a typing error ends the command at once; what goes wrong later is retried for ever, with its reason shown. PySpark
is imported while the clusters are asked, and the flows are made ready while the JVM starts: the check costs no time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import structlog

from heliograph.errors import EngineError, HeliographError
from heliograph.flow.coordinator import Coordinator
from heliograph.flow.hub import Hub
from heliograph.flow.reach import check_clusters, check_targets
from heliograph.flow.specialists import Specialists
from heliograph.flow.status import FlowReport, FlowStatus
from heliograph.types import Flow

if TYPE_CHECKING:
    from heliograph.spark.engine import Engine

log = structlog.get_logger()

EPOCH_SECONDS = 60.0
RESTART_FIRST_S, RESTART_MOST_S = 1.0, 60.0
HEALTHY_S = 120.0  # a query that ran this long starts its backoff from the beginning when it fails
MOST_SLOTS = 64
PORT_SETTING = "spark.heliograph.port"  # of the coordinator, for executors behind a firewall; any free one by default


class Runner:
    def __init__(
        self,
        flows: Sequence[Flow],
        *,
        master: str | None = None,
        spark_settings: Mapping[str, str] | None = None,
        epoch_seconds: float = EPOCH_SECONDS,
    ) -> None:
        self._flows = [flow for flow in flows if flow.enabled]
        self._beating = [Specialists(flow) for flow in flows if not flow.enabled]  # pairs that only send heartbeats
        self._master = master
        self._settings = dict(spark_settings or {})
        self._address = self._settings.get("spark.driver.host", "127.0.0.1")
        self._hub = Hub(self._address, int(self._settings.get(PORT_SETTING, "0")))
        self._coordinators = [Coordinator(f, self._hub.coordinates, epoch_seconds=epoch_seconds) for f in self._flows]
        for coordinator in self._coordinators:
            self._hub.add(coordinator.flow.name, coordinator)
        self._engine: Engine | None = None
        self._stopping = threading.Event()
        self._supervisors: list[threading.Thread] = []

    def start(self) -> None:
        if self._flows:
            self._start_flows()
        else:  # nothing is copied: no Spark, no coordinators
            check_targets([beating.flow for beating in self._beating])
        for beating in self._beating:
            beating.start()

    def _start_flows(self) -> None:
        with ThreadPoolExecutor(len(self._coordinators) + 2, thread_name_prefix="start") as pool:
            engine_class = pool.submit(_import_engine)  # takes about as long as the check beside it
            try:
                check_clusters(self._flows)
            except HeliographError:
                self._hub.close()
                raise
            engine = pool.submit(self._start_engine, engine_class)
            opened = [pool.submit(coordinator.open) for coordinator in self._coordinators]
            problems = [f.exception() for f in opened if f.exception() is not None]
            if problems or engine.exception() is not None:
                if engine.exception() is None:
                    engine.result().stop(2.0)
                self._hub.close()
                raise problems[0] or engine.exception() or EngineError("start failed")
            self._engine = engine.result()
        for coordinator in self._coordinators:
            thread = threading.Thread(
                target=self._supervise, args=(coordinator,), name=coordinator.flow.name, daemon=True
            )
            thread.start()
            self._supervisors.append(thread)

    def status(self) -> tuple[FlowStatus, ...]:
        if not self._flows:
            return tuple(self._beats(beating) for beating in self._beating)
        return tuple(coordinator.status() for coordinator in self._coordinators)

    def report(self) -> tuple[FlowReport, ...]:
        return tuple(coordinator.report() for coordinator in self._coordinators)

    def _beats(self, beating: Specialists) -> FlowStatus:
        """Of a pair that copies nothing. Shown only when no pair does: beside flows it would be noise."""
        state = "stopped" if self._stopping.is_set() else "idle"
        reason = next(iter(beating.troubles), "the flow is not enabled: heartbeats only")
        return FlowStatus(beating.flow.name, state, reason)

    def wait(self, timeout_s: float) -> bool:
        if not self._flows:
            return self._stopping.wait(timeout_s)
        deadline = time.monotonic() + timeout_s
        for thread in self._supervisors:
            thread.join(max(deadline - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._supervisors)

    def stop(self, timeout_s: float = 4.0) -> None:
        """Tasks first, so that positions are written; then Spark, gently as long as there is time, then not."""
        deadline = time.monotonic() + timeout_s
        self._stopping.set()
        for beating in self._beating:
            beating.stop()
        for coordinator in self._coordinators:
            coordinator.stop()
        patience = time.monotonic() + timeout_s * 0.6
        while any(c.working for c in self._coordinators) and time.monotonic() < patience:
            time.sleep(0.02)
        if self._engine is not None:
            self._engine.stop(max(deadline - time.monotonic(), 0.2))
        for coordinator in self._coordinators:
            coordinator.query("stopped")
            coordinator.close()
        for beating in self._beating:
            beating.close()
        self._hub.close()

    def _start_engine(self, engine_class: Future[type[Engine]]) -> Engine:
        cores = os.cpu_count() or 1
        slots = sum(min(flow.tasks_max or cores, MOST_SLOTS) for flow in self._flows) + 1
        return engine_class.result()(master=self._master, slots=slots, settings=self._settings, address=self._address)

    def _supervise(self, coordinator: Coordinator) -> None:
        """Start the flow's query, and start it again when it fails: with backoff, and saying why."""
        assert self._engine is not None
        backoff = RESTART_FIRST_S
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                query = self._engine.start(coordinator.flow.name, self._hub.coordinates)
                coordinator.query("running")
                reason = None
                while reason is None and not self._stopping.is_set():
                    reason = self._engine.wait(query, 1.0)
            except Exception as error:  # noqa: BLE001 - top of a loop: whatever py4j throws is said and tried again
                reason = f"{type(error).__name__}: {error}"
            if self._stopping.is_set():
                return
            backoff = RESTART_FIRST_S if time.monotonic() - began > HEALTHY_S else min(backoff * 2, RESTART_MOST_S)
            log.warning("query ended, starting it again", flow=coordinator.flow.name, why=reason, in_s=backoff)
            again_at = time.monotonic() + backoff
            coordinator.query("restarting", f"the streaming query ended: {reason or 'stopped'}", again_at)
            self._stopping.wait(backoff)


def _import_engine() -> type[Engine]:
    from heliograph.spark.engine import Engine

    return Engine

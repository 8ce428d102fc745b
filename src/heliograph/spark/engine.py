"""Spark, started for flows: the session, a streaming query per flow, a quick end.

The only module besides `source` that knows pyspark. It keeps no state worth keeping: the checkpoint folder of a query
is a temporary one, since positions live in Kafka.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from heliograph.errors import EngineError
from heliograph.mirror.assignment import Coordinates
from heliograph.spark.source import NAME, FlowSource

log = structlog.get_logger()

TASK_FAILURES = 4  # Spark retries a task so often within an epoch before the query fails and its supervisor takes over

LOCAL_SETTINGS = {
    "spark.driver.memory": "512m",  # it plans epochs and counts rows; payload never gets there
    # Start-up is most of what this JVM ever does: the quick compiler alone, and a collector without threads of its own.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xss4m",
}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.app.name": "heliograph",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "heliograph.spark.daemon",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.streaming.stopTimeout": "3000",
    "spark.sql.adaptive.enabled": "false",
    "spark.locality.wait": "0",
    "spark.scheduler.mode": "FAIR",  # flows share the slots: one flow's epoch must not queue behind another's
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
}


class Ended(Protocol):
    def __call__(self, reason: str) -> None: ...


class Engine:
    def __init__(self, *, master: str | None, slots: int, settings: Mapping[str, str], address: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="heliograph-spark-")
        self._queries: list[StreamingQuery] = []
        local = master is None or master.startswith("local")
        chosen: dict[str, str] = {
            **SETTINGS,
            **(LOCAL_SETTINGS if local else {}),
            "spark.local.dir": self._folder,
            "spark.sql.warehouse.dir": f"{self._folder}/warehouse",
            "spark.driver.host": address,
            "spark.task.maxFailures": str(TASK_FAILURES),
            "spark.pyspark.python": sys.executable,
            "spark.pyspark.driver.python": sys.executable,
            **settings,
        }
        os.environ.setdefault("PYSPARK_PYTHON", chosen["spark.pyspark.python"])
        os.environ.setdefault("SPARK_LOCAL_IP", address)
        # The JVM's own words (banner, log4j set-up) have no place on our stdout and little on our stderr.
        builder = SparkSession.builder.master(master or f"local[{slots},{TASK_FAILURES}]")
        for key, value in chosen.items():
            builder = builder.config(key, value)
        try:
            self.session = builder.getOrCreate()
        except Exception as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise EngineError(
                f"Spark could not be started: {_first_line(error)}",
                fix="`heliograph doctor` checks Java and memory; a remote master must be reachable from here",
            ) from error
        self.session.sparkContext.setLogLevel(settings.get("spark.log.level", "OFF"))
        self.session.dataSource.register(FlowSource)

    def start(self, flow: str, coordinates: Coordinates) -> StreamingQuery:
        checkpoint = tempfile.mkdtemp(dir=self._folder)
        # Own pool, so that FAIR scheduling knows the flows apart.
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", flow)
        query = (
            self.session.readStream.format(NAME)
            .option("flow", flow)
            .option("host", coordinates.host)
            .option("port", str(coordinates.port))
            .option("token", coordinates.key.hex())
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .queryName(flow)
            .start()
        )
        self._queries.append(query)
        return query

    def wait(self, query: StreamingQuery, timeout_s: float) -> str | None:
        """None while it runs; otherwise why it ended ("" when it was stopped)."""
        try:
            return "" if query.awaitTermination(timeout_s) else None  # type: ignore[arg-type]
        except StreamingQueryException as error:
            return _first_line(error)

    def stop(self, timeout_s: float) -> None:
        """End queries and the JVM. What does not end in time is killed: stopping is crashing (rules D and E)."""
        stopper = threading.Thread(target=self._stop, daemon=True)
        stopper.start()
        stopper.join(timeout_s)
        self._kill_jvm()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _stop(self) -> None:
        for query in self._queries:
            with contextlib.suppress(Exception):  # a query that failed raises its failure again here
                query.stop()
        with contextlib.suppress(Exception):
            self.session.stop()

    def _kill_jvm(self) -> None:
        gateway: Any = self.session.sparkContext._gateway
        process = getattr(gateway, "proc", None)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait(5)


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    # A Python traceback from a worker ends with what matters.
    interesting = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", " at "))]
    python = [line for line in interesting if line.startswith("heliograph.errors.")]
    return (python or interesting or [text])[0][:500]

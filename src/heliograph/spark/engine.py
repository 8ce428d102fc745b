"""Spark, started for flows: the session, a streaming query per flow, a quick end.

The only module besides `source` that knows pyspark. It keeps no state worth keeping: the checkpoint folder of a query
is a temporary one, since positions live in Kafka.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from heliograph.cache import SPARK_FOLDER
from heliograph.errors import EngineError
from heliograph.mirror.assignment import Coordinates
from heliograph.spark import archive, security
from heliograph.spark.source import NAME, FlowSource

LOCK = "lock"  # in the folder of a process
TASK_FAILURES = 4  # Spark retries a task so often within an epoch before the query fails and its supervisor takes over

# Start-up is most of what these JVMs ever do: the quick compiler alone, and a collector without threads of its own.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"

LOCAL_SETTINGS = {
    "spark.driver.memory": "512m",  # it plans epochs and counts rows; payload never gets there
    "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Xss4m",
    "spark.rpc.netty.dispatcher.numThreads": "4",  # otherwise a thread for each slot, used or not
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
    # A row in a while goes through Spark: compiling code for its plans takes longer than all of them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.locality.wait": "0",
    "spark.scheduler.mode": "FAIR",  # flows share the slots: one flow's epoch must not queue behind another's
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
}


class Engine:
    def __init__(
        self,
        *,
        master: str | None,
        slots: int,
        settings: Mapping[str, str],
        address: str,
        record: Path | None = None,  # write the JVM's classes there when it ends (`archive`)
    ) -> None:
        _sweep()
        self._folder, self._held = _make_folder()
        self._queries: list[StreamingQuery] = []
        local = master is None or master.startswith("local")
        chosen = {
            **SETTINGS,
            **(LOCAL_SETTINGS if local else {}),
            "spark.master": master or f"local[{slots},{TASK_FAILURES}]",
            "spark.local.dir": str(self._folder),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.driver.host": address,
            "spark.task.maxFailures": str(TASK_FAILURES),
            "spark.pyspark.python": sys.executable,
            "spark.pyspark.driver.python": sys.executable,
            **security.secured(master, settings),
        }
        quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        options = [chosen.get("spark.driver.extraJavaOptions", ""), quiet, _classes(record)]
        chosen["spark.driver.extraJavaOptions"] = " ".join(option for option in options if option)
        os.environ.setdefault("PYSPARK_PYTHON", chosen["spark.pyspark.python"])
        os.environ.setdefault("SPARK_LOCAL_IP", address)
        archive.settle_home()
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JVM)  # a JVM that only puts the real one's command together
        try:
            self.session = self._open(chosen)
        except (Py4JError, PySparkException, OSError) as error:
            said = self._last_words()
            self._remove_folder()
            raise EngineError(
                f"Spark could not be started: {said or first_line(error)}",
                fix="`heliograph doctor` checks Java and memory; a remote master must be reachable from here",
            ) from error
        self._skip_lookup()
        self._names: dict[str, str] = {}  # flow -> what its data source is registered as
        self._registering = threading.Lock()

    def _open(self, chosen: Mapping[str, str]) -> SparkSession:
        # The gateway's settings are arguments of the JVM; secrets follow over the gateway.
        launch = SparkConf(loadDefaults=False).setAll(list(security.fit_for_argv(chosen).items()))
        # The JVM's and the workers' own words go to a file: our terminal shows a table.
        with (self._folder / "spark.log").open("wb") as words:
            gateway = launch_gateway(launch, {"stdout": words, "stderr": words})  # type: ignore[no-untyped-call]
        conf = SparkConf(loadDefaults=False).setAll(list(chosen.items()))
        return SparkSession(SparkContext(conf=conf, gateway=gateway))

    def _skip_lookup(self) -> None:
        """Before the first data source is registered Spark looks for packages that bring some, by two Python processes
        of half a second. Ours is registered, and nobody asks this session for another. What is set here is Spark's own,
        open for its tests; where another release has it no more, the lookup takes place."""
        jvm: Any = self.session.sparkContext._jvm
        with contextlib.suppress(Py4JError, TypeError, AttributeError):
            manager = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
            none = jvm.scala.Option.apply(jvm.PythonUtils.toScalaMap({}))
            getattr(getattr(manager, "MODULE$"), "dataSourceBuilders_$eq")(none)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = (self._folder / "spark.log").read_text(errors="replace").splitlines()
            return " | ".join(line for line in lines[-5:] if line.strip())
        return ""

    def start(self, flow: str, coordinates: Coordinates) -> StreamingQuery:
        checkpoint = tempfile.mkdtemp(dir=self._folder, prefix="checkpoint-")
        # Own pool, so that FAIR scheduling knows the flows apart.
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", flow)
        query = (
            self.session.readStream.format(self._source_of(flow))
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

    def _source_of(self, flow: str) -> str:
        """A data source of its own for each flow. Spark's JVM keeps the workers' environment of a registered source in
        one plain HashMap and writes to it whenever a query is planned: two flows that start at the same moment can
        leave it broken for good, and no task of either can be read any more (OptionalDataException)."""
        with self._registering:
            if flow not in self._names:
                name = f"{NAME}-{len(self._names) + 1}"
                own = type("FlowSource", (FlowSource,), {"name": classmethod(lambda _cls: name)})
                self.session.dataSource.register(own)
                self._names[flow] = name
            return self._names[flow]

    def wait(self, query: StreamingQuery, timeout_s: float) -> str | None:
        """None while it runs; otherwise why it ended ("" when it was stopped)."""
        try:
            return "" if query.awaitTermination(timeout_s) else None  # type: ignore[arg-type]
        except StreamingQueryException as error:
            return first_line(error)

    def end(self, query: StreamingQuery) -> None:
        """This query alone, once its tasks have ended; bounded by Spark's own time-out."""
        self._queries = [one for one in self._queries if one is not query]
        with contextlib.suppress(PySparkException, Py4JError):  # one that failed raises its failure again
            query.stop()

    def stop(self, timeout_s: float) -> None:
        """End queries and the JVM. What does not end in time is killed, without a word: stopping is crashing (rules D
        and E)."""
        stopper = threading.Thread(target=self._stop, daemon=True)
        stopper.start()
        stopper.join(timeout_s)
        self._kill_jvm()
        self._remove_folder()

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._held.close()

    def _stop(self) -> None:
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        for query in self._queries:
            with contextlib.suppress(Exception):  # a query that failed raises its failure again
                query.stop()
        with contextlib.suppress(Exception):  # top of a thread whose JVM may be killed at any moment
            self.session.stop()

    def leave(self, timeout_s: float) -> None:
        """Let the JVM end by itself, which it does when its standard input ends."""
        process = self.session.sparkContext._gateway.proc  # type: ignore[union-attr]
        process.stdin.close()
        process.wait(timeout_s)

    def _kill_jvm(self) -> None:
        gateway: Any = self.session.sparkContext._gateway
        process = getattr(gateway, "proc", None)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait(5)


def _classes(record: Path | None) -> str:
    if record is not None:
        return f"-XX:ArchiveClassesAtExit={record}"
    known = archive.path()
    return f"-XX:SharedArchiveFile={known}" if known is not None and known.exists() else ""


def _make_folder() -> tuple[Path, IO[bytes]]:
    """A folder for Spark's files, and the lock that says that this process lives.

    Invariant: LOCK in the folder is locked from before it has this name until this process ends, however it ends: the
    kernel lets go of it. Process ids would not do: containers that share a temporary folder count their own."""
    folder = Path(tempfile.mkdtemp(prefix=f"{SPARK_FOLDER}{os.getpid()}-"))
    held = (folder / f"{LOCK}.new").open("wb")
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (folder / f"{LOCK}.new").rename(folder / LOCK)
    return folder, held


def _sweep() -> None:
    """Remove folders of processes that were killed before they could. One without a lock file is being made, or of 0.1,
    or somebody else's: it is left alone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SPARK_FOLDER}*-*"):
        with contextlib.suppress(OSError), (folder / LOCK).open("rb+") as lock:  # another user's cannot be opened
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its process lives
            shutil.rmtree(folder, ignore_errors=True)


def first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    # A Python traceback from a worker ends with what matters.
    interesting = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", " at "))]
    python = [line for line in interesting if line.startswith("heliograph.errors.")]
    return (python or interesting or [text])[0][:500]

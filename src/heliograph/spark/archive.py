"""Spark's classes, loaded once and kept: a JVM class archive that halves the time to start.

Most of what Spark's JVM does before the first record is reading, checking and linking some twelve thousand classes.
Java can write them to a file when it ends and map that file at the next start. `heliograph warm` makes it, once per
Java and PySpark on a machine; without it everything works, later. An archive that does not fit is ignored by the JVM.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from heliograph import cache
from heliograph.errors import EngineError
from heliograph.spark import security

DUMP_S = 180.0  # writing an archive takes some fifteen seconds on a small machine


def path() -> Path | None:
    """Where the archive of this Java and this PySpark is kept; None when there is no Java to be found."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "")
    if not java.is_file():
        return None
    java = java.resolve()
    package = Path(pyspark.__file__).parent
    # With the settings that decide which classes there are: an archive from before them would do, but lack theirs.
    key = f"{java} {java.stat().st_mtime_ns} {pyspark.__version__} {package} {sorted(security.DEFAULTS.items())}"
    return cache.folder() / f"spark-{pyspark.__version__}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def settle_home() -> None:
    """A Spark home without `python/lib/pyspark.zip`, unless the user has a home of their own.

    Spark puts that zip before everything else on its Python workers' path, and nothing compiled can be kept for a zip:
    each of the five processes it starts before the first record would compile PySpark anew, 0.6 s each. In this home
    they find the installed package instead. It is links only, and stays where it is, as the archive remembers paths.
    """
    package = Path(pyspark.__file__).parent
    if os.environ.get("SPARK_HOME") or not (package / "jars").is_dir():
        return
    home = cache.folder() / f"spark-home-{hashlib.sha256(str(package).encode()).hexdigest()[:16]}"
    home.mkdir(parents=True, exist_ok=True)
    for part in ("bin", "jars", "sbin"):
        with contextlib.suppress(FileExistsError):  # two processes may be at it
            (home / part).symlink_to(package / part)
    os.environ["SPARK_HOME"] = str(home)


class _Reader(DataSourceStreamReader):
    """Two epochs of one row: everything a flow's query touches in the JVM, and nothing outside it."""

    def initialOffset(self) -> dict[str, int]:
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"epoch": start["epoch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        time.sleep(0.5)
        yield (partition.value,)


class WarmSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "heliograph-warm"

    def schema(self) -> str:
        return "partition int"

    def streamReader(self, schema: Any) -> _Reader:
        return _Reader()


def draft(wanted: Path) -> Path:
    """Where this process records it until it is whole."""
    return wanted.with_suffix(f".{os.getpid()}.tmp")


def make(wanted: Path) -> None:
    """Run a small query in a JVM that writes its classes to `wanted` when it ends."""
    from heliograph.spark.engine import Engine

    wanted.parent.mkdir(parents=True, exist_ok=True)
    recorded = draft(wanted)
    engine = Engine(master=None, slots=2, settings={}, address="127.0.0.1", record=recorded)
    try:
        engine.session.dataSource.register(WarmSource)
        query = engine.session.readStream.format(WarmSource.name()).load().writeStream.format("noop").start()
        while query.isActive and len(query.recentProgress) < 3:
            time.sleep(0.1)
        query.stop()
        engine.session.stop()
        engine.leave(DUMP_S)
        if not recorded.exists():
            raise EngineError(
                "Java wrote no class archive", fix="starts take longer, nothing else; Java 17 or newer helps"
            )
        recorded.rename(wanted)
    finally:
        engine.stop(1.0)
        recorded.unlink(missing_ok=True)

"""The real MirrorMaker 2 of the pinned release, as a process: what tests take over from and benchmarks compare with.

    with MirrorMaker(mm2_properties(primary.cluster(), backup.cluster(), topics="orders")) as mm2:
        ...
        mm2.stop()      # SIGTERM: flushes, commits its offsets

Nothing of Heliograph's own mirroring is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from heliograph.embedded import archive
from heliograph.embedded.broker import SERVER_JVM, java_command, write_properties
from heliograph.embedded.jars import fetch_jars
from heliograph.embedded.process import Folder, Process
from heliograph.errors import EmbeddedError
from heliograph.types import Cluster

MM2_JVM = ("-Xms256m", "-Xmx2g", *SERVER_JVM[2:])  # as Kafka's connect-mirror-maker.sh starts it
QUICK_MM2_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

# Of everything MM2 makes: for clusters of one broker.
SINGLE_COPIES = {
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
}


def mm2_properties(source: Cluster, target: Cluster, **more: str) -> dict[str, str]:
    """An mm2.properties for one flow, single copies of everything; `more` with _ for . (`topics`, `tasks_max` …)."""
    flow = f"{source.alias}->{target.alias}"
    properties = {
        "clusters": f"{source.alias},{target.alias}",
        f"{flow}.enabled": "true",
        f"{target.alias}->{source.alias}.enabled": "false",
        **SINGLE_COPIES,
    }
    for cluster in (source, target):
        properties |= {f"{cluster.alias}.{key}": value for key, value in cluster.properties.items()}
    return properties | {f"{flow}.{key.replace('_', '.')}": value for key, value in more.items()}


class MirrorMaker:
    """One MirrorMaker 2 process. `stop` and `kill` end it; `start` begins again with the same properties."""

    def __init__(self, properties: Mapping[str, str], *, jvm: Sequence[str] = MM2_JVM) -> None:
        self._properties = dict(properties)
        self._jvm = tuple(jvm)
        self._folder: Folder | None = None
        self._process: Process | None = None

    def start(self) -> Self:
        if self.running:
            raise EmbeddedError(f"MirrorMaker is running already, as pid {self.pid}", fix="Call stop() first")
        self._folder = self._folder or Folder("heliograph-mm2-")
        config = self._folder.path / "mm2.properties"
        write_properties(config, self._properties)
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        log4j = self._folder.path / "log4j2.properties"
        jars = fetch_jars()
        jvm = (*self._jvm, *archive.options(jars)) if self._jvm == QUICK_MM2_JVM else self._jvm
        command = java_command(jars, jvm, log4j, main, config)
        self._process = Process("MirrorMaker", command, log_path=self.log_path)
        return self

    @property
    def log_path(self) -> Path:
        if self._folder is None:
            raise EmbeddedError("MirrorMaker has not been started, so it has no log", fix="Call start()")
        return self._folder.path / "mm2.log"

    @property
    def process(self) -> Process:
        if self._process is None:
            raise EmbeddedError("MirrorMaker has not been started", fix="Call start()")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def require_running(self) -> None:
        """Raise, with the end of its log, when it has ended by itself."""
        self.process.require_running()

    def stop(self, timeout_seconds: float = 60) -> bool:
        """SIGTERM: flush, commit offsets, leave. Whether it did so in time (else it was killed)."""
        return self.process.stop(timeout_seconds)

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        """End it at once and delete its folder, its log among it."""
        if self._process is not None:
            self._process.kill()
        if self._folder is not None:
            self._folder.delete()
            self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""One of Kafka's own Java programs as a process: a properties file, a folder, a log, a gentle and a hard end.

What the program is, and when it is ready, is said by who derives from this: `mirrormaker.py`, `connect.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from heliograph.embedded import archive
from heliograph.embedded.broker import SERVER_JVM, java_command, write_properties
from heliograph.embedded.jars import fetch_jars
from heliograph.embedded.process import Folder, Process
from heliograph.errors import EmbeddedError

PROGRAM_JVM = ("-Xms256m", "-Xmx2g", *SERVER_JVM[2:])  # as Kafka's own scripts start Connect and MirrorMaker
QUICK_PROGRAM_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


class Program:
    """One process. `stop` and `kill` end it; `start` begins again with the same properties and in the same folder."""

    name: ClassVar[str]  # in messages
    main: ClassVar[str]  # Java's class
    short: ClassVar[str]  # of its files and its folder

    def __init__(self, properties: Mapping[str, str], *, jvm: Sequence[str] = PROGRAM_JVM) -> None:
        self._properties = dict(properties)
        self._jvm = tuple(jvm)
        self._folder: Folder | None = None
        self._process: Process | None = None

    def start(self) -> Self:
        if self.running:
            raise EmbeddedError(f"{self.name} is running already, as pid {self.pid}", fix="Call stop() first")
        self._folder = self._folder or Folder(f"heliograph-{self.short}-")
        config = self._folder.path / f"{self.short}.properties"
        write_properties(config, self._properties)
        log4j = self._folder.path / "log4j2.properties"
        jars = fetch_jars()
        jvm = (*self._jvm, *archive.options(jars)) if self._jvm == QUICK_PROGRAM_JVM else self._jvm
        command = java_command(jars, jvm, log4j, self.main, config)
        self._process = Process(self.name, command, log_path=self.log_path)
        return self

    @property
    def log_path(self) -> Path:
        if self._folder is None:
            raise EmbeddedError(f"{self.name} has not been started, so it has no log", fix="Call start()")
        return self._folder.path / f"{self.short}.log"

    @property
    def process(self) -> Process:
        if self._process is None:
            raise EmbeddedError(f"{self.name} has not been started", fix="Call start()")
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
        try:
            return self.start()
        except BaseException:  # also a Ctrl-C while it gets ready: nobody else could end it
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

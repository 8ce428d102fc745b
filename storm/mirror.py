"""The processes under test: `heliograph run` by one file or another, restarted as a supervisor would, their memory.

One process is the main one; faults may add a second. Everything that was ever started is known here until it is gone,
so that nothing outlives the storm.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.broker.processes import Run, wait_until_gone

from heliograph.embedded.broker import write_properties
from heliograph.embedded.process import WATCHDOG

EPOCH_SECONDS = "10"  # plans change in the middle of other faults
SAMPLE_S = 2.0
GONE_S = 10.0  # `wait_until` allows PATIENCE times as long


@dataclass
class Memory:
    """The largest resident set of any one process of each kind, in MB."""

    task: float = 0.0
    driver: float = 0.0
    jvm: float = 0.0

    def sample(self, run: Run) -> None:
        self.driver = max(self.driver, _rss_mb(run.process))
        self.task = max([self.task, *(_rss_mb(one) for one in run.workers())])
        for one in run.family():
            try:
                if one.name() == "java":
                    self.jvm = max(self.jvm, _rss_mb(one))
            except psutil.NoSuchProcess:
                continue


def _rss_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 1e6
    except psutil.NoSuchProcess:
        return 0.0


@dataclass
class Ended:
    """Processes that ended although nothing had been done to them; and those that were started while a permission was
    withdrawn, and said so: a supervisor starts them again."""

    words: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class Mirror:
    """`files`: by name, the properties of two files for the same flows; the first is the one that runs."""

    def __init__(self, folder: Path, files: Mapping[str, Mapping[str, str]]) -> None:
        self._folder = folder
        self.files = {}
        for name, properties in files.items():
            self.files[name] = folder / f"{name}.properties"
            write_properties(self.files[name], properties)
        self.file = next(iter(self.files))
        self.memory = Memory()
        self.ended = Ended()
        self.lock = threading.RLock()  # held while the main process changes
        self.withdrawn_until = 0.0  # a start up to here may find a permission withdrawn
        self._runs: list[Run] = []
        self._orphans: list[psutil.Process] = []
        self._stopping = threading.Event()
        self._watch = threading.Thread(target=self._watch_forever, name="memory", daemon=True)
        self.main: Run = self.launch(self.file)
        self._watch.start()

    def launch(self, file: str, *arguments: str) -> Run:
        """One more process. Its words are kept in a folder of its own."""
        with self.lock:
            folder = self._folder / f"run-{len(self._runs):03d}-{file}"
            run = Run(self.files[file], folder, "--epoch-seconds", EPOCH_SECONDS, *arguments, verbose=False)
            WATCHDOG.tell(f"+pid {run.process.pid}")  # also when the storm itself is killed
            self._runs.append(run)
        return run

    def restart(self) -> None:
        """The main process is gone: the next one, by the same file."""
        self.main = self.launch(self.file)

    def kill(self, run: Run) -> None:
        """kill -9 of the process alone; its JVM and its tasks have to notice."""
        self._orphans += run.kill()
        WATCHDOG.tell(f"-pid {run.process.pid}")

    def workers(self) -> list[psutil.Process]:
        return [one for run in self.living() for one in run.workers()]

    def living(self) -> list[Run]:
        return [run for run in self._runs if run.process.poll() is None]

    def stop(self) -> int:
        """The main process in order, and then whatever is left. Its exit code."""
        with self.lock:
            self._stopping.set()
        for run in self.living():
            if run is not self.main:
                self.kill(run)
        self.main.process.send_signal(signal.SIGCONT)
        return self.main.stop()

    def left_over(self) -> list[str]:
        """Processes below killed ones that did not end by themselves."""
        try:
            wait_until_gone(self._orphans, GONE_S)
        except TimeoutError:
            return [str(one) for one in self._orphans if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
        return []

    def close(self) -> None:
        """Kill everything, whatever state it is in."""
        self._stopping.set()
        for run in self._runs:
            run.__exit__(None, None, None)
            run.process.wait(GONE_S)
            WATCHDOG.tell(f"-pid {run.process.pid}")
        for one in self._orphans:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue

    def _watch_forever(self) -> None:
        while not self._stopping.wait(SAMPLE_S):
            for run in self.living():
                self.memory.sample(run)
            with self.lock:
                if not self._stopping.is_set() and self.main.process.poll() is not None:
                    code, words = self.main.process.returncode, self.main.words(10)
                    withdrawn = time.monotonic() < self.withdrawn_until
                    refused = withdrawn and code == 2 and "AUTHORIZATION_FAILED" in words
                    told = self.ended.refused if refused else self.ended.words
                    told.append(f"{self.main.folder.name} ended with {code}:\n{words}")
                    self.restart()

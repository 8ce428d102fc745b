"""What only needs to be done once on a machine: kernels compiled, Spark's classes recorded. `heliograph warm` waits for
it, demos have it done beside them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from heliograph import batch
from heliograph.mirror.compiler import Compiler as Compiler  # for whoever knows only this room

END_S = 5.0
RECORD = (sys.executable, "-m", "heliograph.spark.recording")
ROOM_BYTES = 3 << 30  # of free memory: a second Spark of half a gigabyte must not push a demo's brokers out


def kernels() -> None:
    batch.warm()


def compiler() -> Compiler:
    """Compiles them in a process beside this one, if they never were."""
    return Compiler()


def classes() -> Path | None:
    """Where Spark's class archive is, or would be; None without Java."""
    from heliograph.spark import archive

    return archive.path()


def record_classes(path: Path) -> None:
    from heliograph.spark import archive

    archive.make(path)


class Recorder:
    """Spark's classes recorded in a process beside this one, for the next start."""

    def __init__(self, command: tuple[str, ...] = RECORD) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Unless they are, or there is no Java, or too little memory."""
        path = classes()
        if path is None or path.exists() or _free_bytes() < ROOM_BYTES:
            return
        null = subprocess.DEVNULL
        with contextlib.suppress(OSError):  # the next start takes longer, nothing else
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True
            )

    def close(self) -> None:
        """Whether it is done or not: what is half recorded is thrown away."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _free_bytes() -> int:
    """What can be had without swapping: memory that only caches files counts."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

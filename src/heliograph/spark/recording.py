"""`python -m heliograph.spark.recording`: records Spark's class archive (`archive`) and ends. For `flow.warm`.

A process of its own, with the lowest priority: a demo goes on beside it. It ends when its standard input does, at once
and with nothing left: its JVM is killed, for it would write an archive of half of the classes otherwise.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path

from heliograph.cache import SPARK_FOLDER
from heliograph.spark import archive

NICE = 19


def _end_with_parent() -> None:
    while os.read(0, 1):  # not by `sys.stdin`: its lock, held here, would abort this process at its ordinary end
        pass
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in file.read_text().split():
                os.kill(int(child), signal.SIGKILL)
    for folder in Path(tempfile.gettempdir()).glob(f"{SPARK_FOLDER}{os.getpid()}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    wanted = archive.path()
    if wanted is not None:
        archive.draft(wanted).unlink(missing_ok=True)
    os._exit(1)


if __name__ == "__main__":
    os.nice(NICE)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    missing = archive.path()
    if missing is not None and not missing.exists():
        archive.make(missing)

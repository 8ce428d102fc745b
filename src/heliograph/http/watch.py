"""Files that may change while the process runs, looked at every second by one thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

log = structlog.get_logger()

EVERY_S = 1.0
Signature = tuple[int, ...]


def signature(*paths: str | Path) -> Signature:
    """Differs when one of the files does: replaced, written, its mode changed, or not there. Links are followed, for
    Kubernetes swaps one to replace all files of a mounted secret."""
    found: list[int] = []
    for path in paths:
        try:
            about = os.stat(path)
            found += (about.st_ino, about.st_dev, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        except (OSError, ValueError):
            found.append(-1)
    return tuple(found)


class Watched(Protocol):
    def look(self) -> None:
        """Takes up what changed; logs what is wrong, and raises nothing that is foreseen."""


class Watch:
    def __init__(self, watched: Sequence[Watched], every_s: float = EVERY_S) -> None:
        self._watched, self._every_s = tuple(watched), every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http-files", daemon=True)

    def start(self) -> None:
        if self._watched:
            self._thread.start()

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            for one in self._watched:
                try:
                    one.look()
                except Exception:  # the top of a loop: the other files are looked at, and this one again
                    log.exception("a file could not be looked at")

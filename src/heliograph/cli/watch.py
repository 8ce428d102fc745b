"""A runner from its start to its end, as `run` and `demo` show it: signals, the view, and how it went.

Invariants:
A. The first SIGINT or SIGTERM ends everything within 5 s, also while Spark is still starting: what does not end in
   order in that time is left behind, which is safe because stopping is crashing (no state is held here).
B. A second one ends the process at once.
C. Spark is started off the main thread: there PySpark would put its own SIGINT handler in the place of ours.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol

from heliograph.cache import SPARK_FOLDER
from heliograph.cli.show import View
from heliograph.health.status import FlowStatus, Runner

STOP_S = 4.0  # what a runner gets to end in order; the rest of the 5 s is for threads and the interpreter
START_S = 1.0  # what a start that is broken off gets
REFRESH_S = 0.25
HANDLED = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody asked us to end."""

    def __init__(self, order_s: float = STOP_S) -> None:
        self._order_s = order_s
        self._asked = threading.Event()
        self._asked_at_s = 0.0

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    @property
    def left_s(self) -> float:
        """What is left of the time to end in order."""
        gone_s = time.monotonic() - self._asked_at_s if self.asked else 0.0
        return max(self._order_s - gone_s, 0.2)

    def ask(self) -> None:
        self._asked_at_s = time.monotonic()
        self._asked.set()

    def wait(self, seconds: float) -> bool:
        return self._asked.wait(seconds)

    def handle(self, number: int, _frame: FrameType | None) -> None:
        if self.asked:
            leave(128 + number)
        self.ask()


@contextmanager
def stopping(order_s: float = STOP_S) -> Iterator[Stop]:
    """Inside, the two signals ask to stop. `order_s`: what a runner then gets to end in order."""
    stop = Stop(order_s)
    before = {number: signal.signal(number, stop.handle) for number in HANDLED}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Startable(Protocol):
    def start(self) -> None: ...


def start(runner: Startable, stop: Stop, waiting: Callable[[], None] = lambda: None) -> bool:
    """Starts it and waits; raises what the start raised. False when we were asked to stop meanwhile."""
    failures: list[BaseException] = []

    def begin() -> None:
        try:
            runner.start()
        except BaseException as failure:  # noqa: BLE001 - handed to the caller's thread below
            failures.append(failure)

    thread = threading.Thread(target=begin, name="start", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.asked:
        thread.join(REFRESH_S)
        waiting()
    if thread.is_alive():
        thread.join(START_S)  # nothing runs yet that could end in order
        if thread.is_alive():
            leave(0)
    if failures and not stop.asked:  # who stops a start does not care why it failed
        raise failures[0]
    return not stop.asked and not failures


def follow(
    runner: Runner,
    stop: Stop,
    view: View,
    *,
    seconds: float | None = None,
    each: Callable[[tuple[FlowStatus, ...]], object] = lambda _statuses: None,
    done: Callable[[], bool] = lambda: False,
) -> None:
    """Shows it until it ends, somebody asks to stop, the seconds are over, or `done` says so."""
    until = time.monotonic() + seconds if seconds is not None else float("inf")
    while not stop.asked and time.monotonic() < until and not done():
        statuses = runner.status()
        view.update(statuses)
        each(statuses)
        if runner.wait(min(REFRESH_S, max(0.0, until - time.monotonic()))):
            break
    view.update(runner.status())


def end(runner: Runner, stop: Stop, view: View | None = None, *, code_if_late: int = 0) -> bool:
    """Ends it in order if that can be done in time; else the process, with this code. Whether every flow was sound."""
    statuses = runner.status()
    left_s = stop.left_s
    thread = threading.Thread(target=runner.stop, args=(left_s,), name="stop", daemon=True)
    thread.start()
    thread.join(left_s + 0.3)
    sound = not any(status.state == "failed" for status in statuses)
    if thread.is_alive():
        leave(code_if_late if sound else 1)
    if view:
        view.update(runner.status())
    return sound


def leave(code: int) -> NoReturn:
    """Out, without waiting for threads that do not end, nor for a reader of stdout that does not read. A JVM of ours
    would notice only when it has started, and hold our terminal or pipe until then; what it wrote goes with it."""
    for child in _children():
        with suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                os.kill(child, signal.SIGKILL)
    for folder in Path(tempfile.gettempdir()).glob(f"{SPARK_FOLDER}{os.getpid()}-*"):
        shutil.rmtree(folder, ignore_errors=True)  # else the next start removes it
    os._exit(code)


def _children() -> list[int]:
    """Where the kernel tells (Linux); elsewhere JVMs end by themselves, a little later."""
    found: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += [int(pid) for pid in file.read_text().split()]
    return found

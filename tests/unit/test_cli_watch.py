"""Start, follow and end of a runner, with a fake one: signals, exceptions, time limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from heliograph.cli import watch
from heliograph.errors import SameCluster
from heliograph.health.status import FlowStatus


class FakeRunner:
    def __init__(self, *, state: str = "running", fails: Exception | None = None, ends: bool = False) -> None:
        self.state = state
        self.fails = fails
        self.ends = ends
        self.stopped_in_s: float | None = None
        self.started_on = ""

    def start(self) -> None:
        self.started_on = threading.current_thread().name
        if self.fails:
            raise self.fails

    def status(self) -> tuple[FlowStatus, ...]:
        return (FlowStatus("a->b", self.state),)

    def stop(self, timeout_s: float = 4.0) -> None:
        self.stopped_in_s = timeout_s

    def wait(self, timeout_s: float) -> bool:
        if not self.ends:
            time.sleep(min(timeout_s, 0.01))
        return self.ends


class FakeView:
    def __init__(self) -> None:
        self.shown: list[tuple[FlowStatus, ...]] = []

    def update(self, statuses: object) -> None:
        self.shown.append(statuses)  # type: ignore[arg-type]

    def __enter__(self) -> FakeView:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_what_the_start_raises_comes_out() -> None:
    runner = FakeRunner(fails=SameCluster("a and b are one"))
    with watch.stopping() as stop, pytest.raises(SameCluster):
        watch.start(runner, stop)
    assert runner.started_on != "MainThread"  # or PySpark would take our signal handler away


@pytest.mark.parametrize("number", watch.HANDLED)
def test_a_signal_ends_following(number: int) -> None:
    runner, view = FakeRunner(), FakeView()
    before = signal.getsignal(number)
    with watch.stopping() as stop:
        assert watch.start(runner, stop)
        timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
        timer.start()
        watch.follow(runner, stop, view)  # type: ignore[arg-type]
        assert stop.asked
        assert watch.end(runner, stop)
    assert runner.stopped_in_s is not None
    assert 0 < runner.stopped_in_s <= watch.STOP_S
    assert view.shown
    assert signal.getsignal(number) == before


def test_following_ends_after_its_seconds_or_with_the_runner() -> None:
    with watch.stopping() as stop:
        watch.follow(FakeRunner(), stop, FakeView(), seconds=0.05)  # type: ignore[arg-type]
        watch.follow(FakeRunner(ends=True), stop, FakeView())  # type: ignore[arg-type]
        assert not stop.asked


def test_a_failed_flow_is_not_sound() -> None:
    assert not watch.end(FakeRunner(state="failed"), watch.Stop())
    assert watch.end(FakeRunner(state="restarting"), watch.Stop())


STUBBORN = """
    import os, signal, sys, threading, time
    sys.path.insert(0, os.environ["TESTS"])
    from tests.unit.test_cli_watch import FakeRunner
    from heliograph.cli import watch

    class Stubborn(FakeRunner):
        def start(self):
            print("starting", flush=True)
            if "start" in sys.argv: time.sleep(60)
        def stop(self, timeout_s=4.0):
            time.sleep(60)

    with watch.stopping() as stop:
        runner = Stubborn()
        watch.start(runner, stop)
        print("started", flush=True)
        stop.wait(60)
        watch.end(runner, stop)
"""


def launch(*arguments: str) -> subprocess.Popen[str]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = textwrap.dedent(STUBBORN)
    environment = {**os.environ, "TESTS": root}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("arguments", [["start"], []])
def test_one_signal_ends_a_runner_that_does_not_end(arguments: list[str]) -> None:
    with launch(*arguments) as process:
        assert process.stdout
        assert process.stdout.readline() == "starting\n"
        if not arguments:
            assert process.stdout.readline() == "started\n"
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert time.monotonic() - begun < 5


def test_a_second_signal_ends_it_at_once() -> None:
    with launch() as process:
        assert process.stdout
        assert [process.stdout.readline(), process.stdout.readline()] == ["starting\n", "started\n"]
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        while process.poll() is None and time.monotonic() - begun < 3:
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        assert process.wait(5) == 130
        assert time.monotonic() - begun < 3

"""Spark's classes recorded beside a demo: only where they are not, and nothing is left when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from heliograph.flow import warm
from heliograph.flow.warm import Recorder
from tests.kit import wait_until

WAITS = (sys.executable, "-c", "import sys; sys.stdin.read()")
DEAF = (sys.executable, "-c", "import time; print(flush=True); time.sleep(600)")


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "spark.jsa"
    monkeypatch.setattr(warm, "classes", lambda: path)
    monkeypatch.setattr(warm, "_free_bytes", lambda: warm.ROOM_BYTES)
    return path


@pytest.mark.usefixtures("missing")
@pytest.mark.parametrize("command", [WAITS, DEAF])
def test_a_recorder_ends_with_the_demo(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "END_S", 30.0 if command is WAITS else 0.1)
    before = psutil.Process().children()
    recorder = Recorder(command)
    recorder.start()
    assert len(psutil.Process().children()) == len(before) + 1
    recorder.close()
    assert psutil.Process().children() == before  # no zombie either
    recorder.close()


def test_nothing_is_recorded_twice_nor_without_java_nor_without_memory(
    monkeypatch: pytest.MonkeyPatch, missing: Path
) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    missing.touch()
    Recorder().start()
    missing.unlink()
    monkeypatch.setattr(warm, "_free_bytes", lambda: warm.ROOM_BYTES - 1)
    Recorder().start()
    monkeypatch.setattr(warm, "classes", lambda: None)
    Recorder().start()


@pytest.mark.usefixtures("missing")
def test_a_recorder_that_cannot_be_started_is_done_without(tmp_path: Path) -> None:
    recorder = Recorder((str(tmp_path / "no-such-program"),))
    recorder.start()
    recorder.close()


def test_the_real_one_ends_when_its_standard_input_does(tmp_path: Path) -> None:
    """With a cache of its own, so that it would record."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(warm.RECORD, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdin is not None
        process.stdin.close()
        wait_until(lambda: process.poll() is not None, what="its end")
    assert [
        file for file in tmp_path.rglob("*") if file.suffix in (".jsa", ".tmp") or "heliograph-spark" in file.name
    ] == []

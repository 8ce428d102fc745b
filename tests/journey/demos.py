"""What journeys through demos have in common: one that ends by itself, and one that is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil

from tests.broker.processes import COMMAND
from tests.kit import wait_until

ENDS_S, TRIES = 5.0, 3


def finished(folder: Path, *arguments: str, at_least: int) -> tuple[str, str]:
    """A demo that ended well, having compared so many records at least; what it said on stdout and on stderr. `folder`:
    for what it leaves."""
    demo = subprocess.run(
        [str(COMMAND), "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    summary = re.search(r"^([\d,]+) events produced, ([\d,]+) compared with their copies", demo.stdout, re.MULTILINE)
    assert summary is not None, demo.stdout
    assert summary[1] == summary[2]
    assert int(summary[1].replace(",", "")) > at_least
    assert "every record arrived once, in order, unchanged" in demo.stdout
    left = sorted(folder.rglob("*"))
    assert left == [], f"left behind: {left}"
    assert processes_of(folder) == []
    return demo.stdout, demo.stderr


def interrupted(folder: Path, *arguments: str, moment: str, clusters: str) -> None:
    """Ctrl-C once it has said `moment`: it ends within 5 s, and nothing is left. `clusters`: their first letters.
    An idle machine needs two; one that others keep busy may need more, so that one try in three has to hold."""
    took_s: list[float] = []
    while not took_s or (min(took_s) >= ENDS_S and len(took_s) < TRIES):
        own = folder / str(len(took_s))
        own.mkdir()
        took_s.append(_interrupted(own, *arguments, moment=moment, clusters=clusters))
    assert min(took_s) < ENDS_S, took_s


def _interrupted(folder: Path, *arguments: str, moment: str, clusters: str) -> float:
    """The seconds that it took to end."""
    with subprocess.Popen(
        [str(COMMAND), "demo", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as process:
        try:
            assert process.stderr
            for line in process.stderr:  # ends when the demo does, so a demo that never gets there fails below
                if moment in line:
                    break
            assert process.poll() is None
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
            took_s = time.monotonic() - begun
            assert process.returncode == 0
        finally:
            process.kill()
    # The brokers' watchdog tidies up after us, a moment later.
    wait_until(lambda: not list(folder.glob(f"heliograph-[{clusters}]*")), what="no folder of a cluster left")
    wait_until(lambda: not processes_of(folder), what="no process left")
    return took_s


def processes_of(folder: Path) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if str(folder) in str(one.info["cmdline"])]

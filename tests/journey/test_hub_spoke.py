"""`heliograph demo hub-spoke` as a newcomer runs it: a hub, spokes, every record back in its place; and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.broker.processes import COMMAND
from tests.kit import wait_until


@pytest.mark.timeout(450)
@pytest.mark.parametrize(("via", "spokes"), [("intermediate", 2), ("straight", 1)])
def test_the_demo_ends_by_itself_and_has_compared_every_record(via: str, spokes: int, tmp_path: Path) -> None:
    arguments = ["--spokes", str(spokes), "--seconds", "5", "--rate", "900", "--via", via]
    demo = subprocess.run(
        [str(COMMAND), "demo", "hub-spoke", *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    summary = re.search(r"^([\d,]+) events produced, ([\d,]+) compared with their copies", demo.stdout, re.MULTILINE)
    assert summary is not None, demo.stdout
    assert summary[1] == summary[2]
    assert int(summary[1].replace(",", "")) > 2_000  # two of three topics: 600 a second
    assert "every record arrived once, in order, unchanged" in demo.stdout
    for name in _flows(via, spokes):
        assert re.search(rf"^{re.escape(name)}: [1-9]", demo.stdout, re.MULTILINE), name
    last = json.loads([line for line in demo.stdout.splitlines() if line.startswith("{")][-1])
    assert [one["spoke"] for one in last["spokes"]] == [f"spoke{number + 1}" for number in range(spokes)]
    assert all(one["put_back"] > 0 and one["muxed"] > 0 for one in last["spokes"]), last["spokes"]
    assert list(tmp_path.iterdir()) == []  # nothing is left behind, no folder and no process
    assert processes_of(tmp_path) == []


def _flows(via: str, spokes: int) -> list[str]:
    names = [f"spoke{number + 1}" for number in range(spokes)]
    if via == "straight":
        return [*(f"{name}->hub.mux" for name in names), "hub->hub.demux"]
    return [flow for name in names for flow in (f"{name}->{name}.mux", f"{name}->hub")] + ["hub->hub.demux"]


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    command = [str(COMMAND), "demo", "hub-spoke", "--spokes", "1", "--partitions", "1", "--via", "straight"]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        try:
            assert process.stderr
            for line in process.stderr:  # ends when the demo does, so a demo that never gets there fails below
                if "first record mirrored" in line:
                    break
            assert process.poll() is None
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
            assert time.monotonic() - begun < 5
            assert process.returncode == 0
        finally:
            process.kill()
    # The brokers' watchdog tidies up after us, a moment later.
    wait_until(lambda: not list(tmp_path.glob("heliograph-[hs]*")), what="no folder of a cluster left")
    wait_until(lambda: not processes_of(tmp_path), what="no process left")


def processes_of(folder: Path) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if str(folder) in str(one.info["cmdline"])]

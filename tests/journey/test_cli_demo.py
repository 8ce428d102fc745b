"""`heliograph demo` stopped by Ctrl-C: within 5 s, with nothing left. (That it checks its copy is in test_demo.)"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.kit import wait_until

HELIOGRAPH = str(Path(sys.executable).with_name("heliograph"))


@pytest.mark.parametrize("moment", ["cluster us at", "first record mirrored"])
def test_ctrl_c_ends_a_demo_and_leaves_nothing(moment: str, tmp_path: Path) -> None:
    command = [HELIOGRAPH, "demo", "--partitions", "2", "--rate", "300"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
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
            assert time.monotonic() - begun < 5
            assert process.returncode == 0
        finally:
            process.kill()
    # The brokers' watchdog tidies up after us, a moment later.
    wait_until(lambda: not list(tmp_path.glob("heliograph-[ue]*")), what="no folder of a cluster left")
    wait_until(lambda: not processes_of(tmp_path), what="no process left")


def processes_of(folder: Path) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if str(folder) in str(one.info["cmdline"])]

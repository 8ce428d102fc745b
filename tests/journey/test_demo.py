"""`heliograph demo --seconds N` as a newcomer runs it: two clusters, both directions, a copy that was checked."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.broker.processes import COMMAND


@pytest.mark.timeout(450)
def test_the_demo_ends_by_itself_and_has_compared_every_record(tmp_path: Path) -> None:
    demo = subprocess.run(
        [str(COMMAND), "demo", "--seconds", "5", "--rate", "1600"],
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    summary = re.search(r"^([\d,]+) events produced, ([\d,]+) compared with their copies", demo.stdout, re.MULTILINE)
    assert summary is not None, demo.stdout
    assert summary[1] == summary[2]
    assert int(summary[1].replace(",", "")) > 4_000
    assert "every record arrived once, in order, unchanged" in demo.stdout
    assert re.search(r"^us->eu: [1-9]", demo.stdout, re.MULTILINE)
    assert re.search(r"^eu->us: [1-9]", demo.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind, no folder and no process
    assert [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(one.info["cmdline"])] == []

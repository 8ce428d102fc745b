"""`heliograph demo --seconds N` from nothing to a checked copy, and that it leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HELIOGRAPH = str(Path(sys.executable).with_name("heliograph"))


def leftovers() -> set[Path]:
    folder = Path(tempfile.gettempdir())
    return {*folder.glob("heliograph-us-*"), *folder.glob("heliograph-eu-*")}


def test_a_short_demo_checks_its_copy() -> None:
    before = leftovers()
    command = [HELIOGRAPH, "demo", "--seconds", "4", "--partitions", "2", "--rate", "300"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every record arrived once, in order, unchanged" in done.stdout
    assert "us->eu: " in done.stdout
    assert "eu->us: " in done.stdout
    for step in ("Java", "cluster us at", "cluster eu at", "Spark and both flows", "first record mirrored"):
        assert step in done.stderr
    assert leftovers() <= before

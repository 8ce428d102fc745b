"""Temporary folders of Spark: those of processes that were killed are removed, those of living ones never."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from heliograph.cache import SPARK_FOLDER
from heliograph.spark import engine

NO_PROCESS = 2**22 + 1  # beyond any process id: as if of another container, which counts its own

HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "rb+")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def folder_of_another(folders: Path) -> Path:
    folder = folders / f"{SPARK_FOLDER}{NO_PROCESS}-abc"
    (folder / "checkpoint-1").mkdir(parents=True)
    return folder


def test_the_folder_of_a_process_in_another_container_is_left_until_it_ends(folders: Path) -> None:
    folder = folder_of_another(folders)
    (folder / "lock").touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        engine._sweep()
        assert (folder / "checkpoint-1").exists()
        holder.kill()
    engine._sweep()
    assert not folder.exists()


def test_a_folder_that_is_being_made_is_left_alone(folders: Path) -> None:
    folder = folder_of_another(folders)
    engine._sweep()
    assert folder.exists()


def test_this_process_holds_its_own_folder(folders: Path) -> None:
    folder, held = engine._make_folder()
    engine._sweep()
    assert folder.exists()
    held.close()
    engine._sweep()
    assert not folder.exists()


def test_what_is_not_a_folder_of_ours_is_in_nobodys_way(folders: Path) -> None:
    (folders / f"{SPARK_FOLDER}7-file").touch()
    (folders / f"{SPARK_FOLDER}8-odd" / "lock").mkdir(parents=True)
    engine._sweep()
    assert len(list(folders.iterdir())) == 2

"""Which Javas are taken, and what is said about those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.embedded.java import find_java
from heliograph.errors import JavaMissing

MODULES = "java.base@{0}\njdk.incubator.vector@{0}"


def fake_java(home: Path, release: str, modules: str) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = --list-modules ]; then printf "{modules}\\n"; '
        f'else echo "    java.version = {release}" >&2; fi\n'
    )
    program.chmod(0o755)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("release", "version"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_java_home_with_everything_is_taken(home: Path, release: str, version: int) -> None:
    fake_java(home, release, MODULES.format(release))
    java = find_java()
    assert (java.executable, java.version, java.release) == (home / "bin" / "java", version, release)


@pytest.mark.parametrize("release", ["11.0.2", "1.8.0_392"])
def test_an_old_java_is_refused(home: Path, release: str) -> None:
    fake_java(home, release, MODULES.format(release))
    with pytest.raises(JavaMissing, match=release) as caught:
        find_java()
    assert ">= 17" in caught.value.fix


def test_a_java_without_the_vector_module_is_refused(home: Path) -> None:
    fake_java(home, "17.0.1", "java.base@17.0.1")
    with pytest.raises(JavaMissing, match=r"jdk\.incubator\.vector"):
        find_java()


def test_java_home_without_java(home: Path) -> None:
    with pytest.raises(JavaMissing, match="JAVA_HOME"):
        find_java()


def test_a_java_that_says_nothing_of_use(home: Path) -> None:
    fake_java(home, "", "")
    with pytest.raises(JavaMissing, match="version"):
        find_java()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="PATH"):
        find_java()

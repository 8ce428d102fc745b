"""Java for Kafka and Spark: where it is, whether it is new enough and complete. Nothing is installed here."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from heliograph.errors import JavaMissing

MINIMUM = 17  # Kafka 4 brokers and Spark 4 both ask for it
MODULE = "jdk.incubator.vector"  # Spark starts its JVM with --add-modules of it and dies without
FIX = (
    "Install a JDK or full JRE >= 17 (Debian, Ubuntu: apt install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put it on PATH or in JAVA_HOME"
)


@dataclass(frozen=True, slots=True)
class Java:
    executable: Path
    version: int  # 17, 21 …
    release: str  # "17.0.15"

    @property
    def keytool(self) -> Path | None:
        """The JDK's keytool, if this Java came with one."""
        beside = self.executable.resolve().with_name("keytool")
        found = str(beside) if beside.exists() else shutil.which("keytool")
        return Path(found) if found else None


def find_java() -> Java:
    """The Java to use: JAVA_HOME's if that is set, else the one on PATH. Asked once per process and environment."""
    return _inspect(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@functools.cache
def _inspect(home: str, path: str) -> Java:
    executable = _locate(home, path)
    settings = _run(executable, "-XshowSettings:properties", "-version")
    match = re.search(r"^\s*java\.version = (\S+)", settings, re.MULTILINE)
    if match is None:
        raise JavaMissing(f"{executable} did not say its version: {settings.strip()[:200]!r}", fix=FIX)
    release = match[1]
    version = _major(release)
    if version < MINIMUM:
        raise JavaMissing(f"{executable} is Java {release}, and Kafka 4 and Spark 4 need >= {MINIMUM}", fix=FIX)
    if not re.search(rf"^{re.escape(MODULE)}\b", _run(executable, "--list-modules"), re.MULTILINE):
        raise JavaMissing(f"{executable} (Java {release}) lacks the module {MODULE}, which Spark needs", fix=FIX)
    return Java(executable, version, release)


def _locate(home: str, path: str) -> Path:
    if home:
        executable = Path(home) / "bin" / "java"
        if not os.access(executable, os.X_OK):
            raise JavaMissing(f"JAVA_HOME is {home}, but there is no bin/java in it", fix=FIX)
        return executable
    found = shutil.which("java", path=path)
    if found is None:
        raise JavaMissing("no java on PATH, and JAVA_HOME is not set", fix=FIX)
    return Path(found)


def _run(executable: Path, *arguments: str) -> str:
    try:
        done = subprocess.run([executable, *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{executable} does not run: {error}", fix=FIX) from error
    if done.returncode:
        raise JavaMissing(
            f"{executable} {arguments[0]} ended with {done.returncode}: {done.stderr.strip()[:200]}", fix=FIX
        )
    return done.stdout + done.stderr


def _major(release: str) -> int:
    parts = re.findall(r"\d+", release)
    number = int(parts[0]) if parts else 0
    return int(parts[1]) if number == 1 and len(parts) > 1 else number  # "1.8.0_392" is Java 8

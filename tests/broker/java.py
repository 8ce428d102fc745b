"""Java programs for tests: Kafka's own tools and the sources in tests/data/java, with Kafka's jars or with others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from heliograph import cache
from heliograph.embedded import Kafka, archive
from heliograph.embedded.jars import fetch_jars, read_lock
from heliograph.embedded.java import find_java

DATA = Path(__file__).parent.parent / "data"
SOURCES = DATA / "java"


def java(*arguments: str, lock: Path | None = None, timeout_seconds: float = 120) -> str:
    """What such a program prints. `lock`: the jars it is given instead of Kafka's."""
    if lock is None:
        jars = fetch_jars()
    else:
        jars = fetch_jars(folder=cache.folder() / f"test-{lock.stem}", jars=read_lock(lock), quiet=True)
    command = [
        *(str(find_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *(*archive.options(jars), "-cp", os.pathsep.join(map(str, jars)), *arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def java_produce(kafka: Kafka, codecs: Mapping[str, str], *, count: int, size_bytes: int) -> None:
    """So many records by Java's own producer into each topic, by the codec it is given with."""
    topics = (f"{topic}={codec}" for topic, codec in codecs.items())
    java(str(SOURCES / "Producers.java"), kafka.bootstrap, str(count), str(size_bytes), *topics)

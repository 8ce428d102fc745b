"""Java programs with Kafka's jars, for tests: Kafka's own tools and the sources in tests/data/java."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from heliograph.embedded import Kafka, archive
from heliograph.embedded.jars import fetch_jars
from heliograph.embedded.java import find_java

SOURCES = Path(__file__).parent.parent / "data" / "java"


def java(*arguments: str, timeout_seconds: float = 120) -> str:
    """What such a program prints."""
    jars = fetch_jars()
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

"""Writes the lock file of Kafka's jars anew: `python -m heliograph.embedded.lock`. For a move to another release.

jgo resolves the coordinates, every jar is fetched (jgo compares it with the repository's own sha1) and hashed. Users
never run this; they get exactly what the lock file says.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from heliograph.embedded.jars import RELEASE, maven, sha256_of

KAFKA = ("kafka_2.13", "connect-mirror", "connect-runtime", "kafka-tools", "connect-mirror-client")
BINDING = "org.apache.logging.log4j:log4j-slf4j-impl"  # without it the brokers log nothing; log4j-core comes with Kafka


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        context = maven(Path(scratch))
        wanted = [context.create_dependency(f"org.apache.kafka:{name}:{RELEASE}") for name in KAFKA]
        found, deeper = context.resolver.resolve(wanted)
        kept = [one for one in [*found, *deeper] if one.scope in (None, "compile", "runtime") and not one.optional]
        log4j = next(one.version for one in kept if one.artifactId == "log4j-core")
        kept.append(context.create_dependency(f"{BINDING}:{log4j}"))
        lines = []
        for one in kept:
            path = Path(one.artifact.resolve())
            coordinate = f"{one.groupId}:{one.artifactId}:{one.version}"
            print(coordinate, file=sys.stderr)
            lines.append(f"{coordinate} {sha256_of(path)} {path.stat().st_size}")
    head = f"# Kafka {RELEASE} with MirrorMaker 2 and tools: coordinate, sha256, bytes. By heliograph.embedded.lock\n"
    target = Path(__file__).parent / f"kafka-{RELEASE}.lock"
    target.write_text(head + "\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main()

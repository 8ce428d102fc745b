"""Writes the lock file of a release's jars: `python -m heliograph.embedded.lock [RELEASE]`. For a move to another one.

jgo resolves the coordinates, every jar is fetched (jgo compares it with the repository's own sha1) and hashed. Users
never run this; they get exactly what the lock file says.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from heliograph.embedded.jars import maven, sha256_of
from heliograph.embedded.releases import PINNED, RELEASES

BINDING = "org.apache.logging.log4j:log4j-slf4j-impl"  # without it the brokers log nothing; log4j-core comes with Kafka


def main(version: str = PINNED) -> None:
    release = RELEASES[version]
    with tempfile.TemporaryDirectory() as scratch:
        context = maven(Path(scratch))
        wanted = [context.create_dependency(f"org.apache.kafka:{name}:{version}") for name in release.artifacts]
        found, deeper = context.resolver.resolve(wanted)
        kept = [one for one in [*found, *deeper] if one.scope in (None, "compile", "runtime") and not one.optional]
        if release.logging:
            kept += [context.create_dependency(coordinate) for coordinate in release.logging]
        else:
            log4j = next(one.version for one in kept if one.artifactId == "log4j-core")
            kept.append(context.create_dependency(f"{BINDING}:{log4j}"))
        lines = set()
        for one in kept:
            path = Path(one.artifact.resolve())
            coordinate = f"{one.groupId}:{one.artifactId}:{one.version}"
            print(coordinate, file=sys.stderr)
            lines.add(f"{coordinate} {sha256_of(path)} {path.stat().st_size}")
    parts = "MirrorMaker 2 and tools" if version == PINNED else "its logging, as a broker"
    head = f"# Kafka {version} with {parts}: coordinate, sha256, bytes. By heliograph.embedded.lock\n"
    release.lock.write_text(head + "\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A broker's data folder as Kafka's own `StorageTool format` leaves it, without starting a JVM for each.

Formatting writes two files: `meta.properties` (cluster id, node id, folder id), which we write, and
`bootstrap.checkpoint` (the feature levels a new cluster begins with), which depends on nothing but the release:
StorageTool makes it once per machine, it is kept beside the jars and copied from then on. It saves a second a start.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from heliograph.embedded.java import find_java
from heliograph.errors import EmbeddedError


def new_id() -> str:
    """A random id as Kafka writes them: 16 bytes in base64, not beginning with '-' (tools see an option in that)."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def format_folder(folder: Path, *, cluster_id: str, node_id: int, jars: Sequence[Path]) -> None:
    """Make `folder` a formatted, empty data folder of a combined broker and controller."""
    folder.mkdir(parents=True)
    shutil.copyfile(bootstrap_checkpoint(jars), folder / "bootstrap.checkpoint")
    lines = ["version=1", f"cluster.id={cluster_id}", f"node.id={node_id}", f"directory.id={new_id()}", ""]
    (folder / "meta.properties").write_text("\n".join(lines))


def bootstrap_checkpoint(jars: Sequence[Path]) -> Path:
    kept = jars[0].parent / "bootstrap.checkpoint"
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".formatting-") as name:
        scratch = Path(name)
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:1",
            "listeners": "PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(scratch / "data"),
        }
        config = scratch / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command: list[str | Path] = [find_java().executable, "-cp", ":".join(map(str, jars)), "kafka.tools.StorageTool"]
        done = subprocess.run(
            [*command, "format", "--cluster-id", new_id(), "--config", config],
            capture_output=True,
            text=True,
            check=False,
        )
        made = scratch / "data" / "bootstrap.checkpoint"
        if done.returncode or not made.exists():
            raise EmbeddedError(
                f"Kafka's StorageTool failed: {(done.stdout + done.stderr).strip()[-500:]}",
                fix=f"Delete {kept.parent} to fetch Kafka anew",
            )
        made.replace(kept)
    return kept

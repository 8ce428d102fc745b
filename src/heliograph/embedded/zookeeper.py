"""ZooKeeper for an embedded cluster of a release that keeps its metadata there: same jars, loopback only."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

from heliograph.embedded.broker import START_SECONDS, write_properties
from heliograph.embedded.ports import LOOPBACK, claim_port
from heliograph.embedded.process import Process
from heliograph.errors import EmbeddedError

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeper:
    """Runs from the constructor to `stop`."""

    def __init__(self, folder: Path, java: Sequence[str | Path]) -> None:
        """`java`: a command with class path and log settings that wants only a main class."""
        folder.mkdir()
        self._claim = claim_port(None)
        config = folder / "zoo.cfg"
        properties = {
            "dataDir": str(folder / "data"),
            "clientPort": str(self._claim.number),
            "clientPortAddress": LOOPBACK,
            "tickTime": "500",  # sessions of killed brokers end soon
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
        }
        write_properties(config, properties)
        self._process = Process("zookeeper", [*java, MAIN, config], log_path=folder / "zookeeper.log")

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._claim.number}"

    def wait_ready(self, timeout_seconds: float = START_SECONDS) -> None:
        """Until it accepts connections."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            self._process.require_running()
            try:
                socket.create_connection((LOOPBACK, self._claim.number), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise EmbeddedError(
            f"ZooKeeper did not get ready in {timeout_seconds:g} s:\n{self._process.last_lines()}",
            fix="See the log above; a busy machine may need a longer timeout",
        )

    def stop(self) -> None:
        self._process.kill()
        self._claim.release()

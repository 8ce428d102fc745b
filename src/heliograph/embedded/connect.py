"""A real Kafka Connect worker of the pinned release with MirrorMaker 2's connectors: what our own API is measured by.

    with ConnectWorker(connect_properties(backup.cluster())) as worker:
        worker.url          # http://127.0.0.1:…, it answers

Distributed mode on loopback. Several workers that are given the same properties are one group; the port is a worker's
own and stays with it over restarts. Nothing of Heliograph's own API is here.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping, Sequence
from typing import Self

from heliograph.embedded.ports import LOOPBACK, Port, claim_port
from heliograph.embedded.program import QUICK_PROGRAM_JVM, Program
from heliograph.errors import EmbeddedError
from heliograph.types import Cluster

START_SECONDS = 90.0  # eight on a quiet machine
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def connect_properties(cluster: Cluster, group: str = "connect-cluster", **more: str) -> dict[str, str]:
    """A connect-distributed.properties with single copies of everything, kept on this cluster under the group's name;
    `more` with _ for . (`offset_flush_interval_ms` …)."""
    properties = {
        **cluster.properties,
        "group.id": group,
        "key.converter": BYTES,
        "value.converter": BYTES,
        "offset.flush.interval.ms": "1000",
        "offset.storage.partitions": "1",  # 25 and 5 by default, for which a small broker works a while
        "status.storage.partitions": "1",
    }
    for kind in ("offset", "config", "status"):
        properties |= {f"{kind}.storage.topic": f"{group}-{kind}s", f"{kind}.storage.replication.factor": "1"}
    return properties | {key.replace("_", "."): value for key, value in more.items()}


class ConnectWorker(Program):
    """One worker. `start` returns when it answers and has joined its group."""

    name = "Kafka Connect"
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    short = "connect"

    def __init__(self, properties: Mapping[str, str], *, jvm: Sequence[str] = QUICK_PROGRAM_JVM) -> None:
        self._port: Port = claim_port()
        address = {
            "listeners": f"http://{LOOPBACK}:{self.port}",
            "rest.advertised.host.name": LOOPBACK,
            "rest.advertised.port": str(self.port),
        }
        super().__init__({**properties, **address}, jvm=jvm)

    @property
    def port(self) -> int:
        return self._port.number

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self, timeout_seconds: float = START_SECONDS) -> Self:
        super().start()
        self.wait_ready(timeout_seconds)
        return self

    def wait_ready(self, timeout_seconds: float = START_SECONDS) -> None:
        """Until it says that it is healthy: it has read its topics and is a member of its group."""
        deadline = time.monotonic() + timeout_seconds
        while not self._healthy():
            self.require_running()
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"{self.name} did not get ready in {timeout_seconds:g} s; the end of its log:\n"
                    f"{self.process.last_lines()}",
                    fix="See the log above; a busy machine may need a longer timeout",
                )
            time.sleep(0.05)

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def close(self) -> None:
        super().close()
        self._port.release()

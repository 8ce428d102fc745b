"""One broker of an embedded cluster: its files, its JVM, and what can be done to it while others watch.

A `Broker` keeps its ports and its data over restarts. Which brokers make a cluster, and how clients enter: `kafka.py`.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from heliograph.embedded.java import find_java
from heliograph.embedded.ports import LOOPBACK
from heliograph.embedded.process import Process
from heliograph.errors import EmbeddedError

# C1 only and the serial collector: half the start time and a third of the memory, at a cost in throughput that tests do
# not notice. A benchmark passes `jvm=SERVER_JVM`.
QUICK_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")
# What Kafka's own kafka-server-start sets: for benchmarks.
SERVER_JVM = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
START_SECONDS = 60.0

LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
"""


def java_command(jars: Sequence[Path], jvm: Sequence[str], log4j: Path, *main: str | Path) -> list[str | Path]:
    """A Java program on Kafka's class path that logs to its standard output."""
    log4j.write_text(LOG4J)
    options = [*jvm, "-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={log4j}"]
    return [find_java().executable, *options, "-cp", ":".join(map(str, jars)), *main]


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """A Java properties file: backslashes are doubled, as Java reads them."""
    lines = (f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items())
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)  # passwords stand in it


class Broker:
    """A combined broker and controller. `port` is that of the cluster's first client listener."""

    def __init__(
        self,
        broker_id: int,
        *,
        folder: Path,
        ports: Mapping[str, int],
        properties: Mapping[str, str],
        internal_client: Mapping[str, str | int | float | bool],
        command: Sequence[str | Path],
    ) -> None:
        self.id = broker_id
        self.folder = folder
        self.ports = dict(ports)  # by listener, INTERNAL and CONTROLLER among them
        self.log_path = folder / "broker.log"
        self._internal_client = dict(internal_client)
        self._process: Process | None = None
        config = folder / "server.properties"
        write_properties(config, properties)
        self._command = [*command, config]

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.running else "stopped"
        return f"Broker({self.id}, port {self.port}, {state})"

    @property
    def port(self) -> int:
        return next(port for name, port in self.ports.items() if name not in ("INTERNAL", "CONTROLLER"))

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def process(self) -> Process:
        if self._process is None:
            raise EmbeddedError(f"broker {self.id} has not been started", fix="Call start()")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def launch(self) -> None:
        """Start the JVM without waiting until the broker answers."""
        if self.running:
            raise EmbeddedError(f"broker {self.id} is running already, as pid {self.pid}")
        self._process = Process(f"broker {self.id}", self._command, log_path=self.log_path)

    def start(self, timeout_seconds: float = START_SECONDS) -> None:
        """Start, and wait until the broker answers and the cluster counts it in."""
        self.launch()
        self.wait_ready(timeout_seconds=timeout_seconds)

    def wait_ready(
        self,
        *,
        members: int = 1,
        timeout_seconds: float = START_SECONDS,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Until this broker itself answers a Metadata request that lists it and at least `members` brokers."""
        deadline = time.monotonic() + timeout_seconds
        admin: AdminClient | None = None
        while time.monotonic() < deadline and not give_up():
            self.process.require_running()
            if not all(_listening(port) for port in self.ports.values()):
                time.sleep(0.02)
                continue
            admin = admin or AdminClient(self._internal_client)
            try:
                known = admin.list_topics(timeout=1).brokers
            except KafkaException:
                continue
            if self.id in known and len(known) >= members:
                return
            time.sleep(0.02)
        if give_up():
            return
        raise EmbeddedError(
            f"broker {self.id} did not get ready in {timeout_seconds:g} s; the end of its log:\n"
            f"{self.process.last_lines()}",
            fix="See the log above; a busy machine may need a longer timeout",
            broker=self.id,
        )

    def wait_users(self, names: Sequence[str], timeout_seconds: float = START_SECONDS) -> None:
        """Until this broker knows these SCRAM users: they reach each broker by way of the metadata log."""
        admin = AdminClient(self._internal_client)
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            answers = admin.describe_user_scram_credentials(list(names))
            assert isinstance(answers, dict)  # it is a bare future only when no users are named
            try:
                if all(len(future.result(10).scram_credential_infos) == 2 for future in answers.values()):
                    return
            except KafkaException:
                pass  # RESOURCE_NOT_FOUND until the user is known
            time.sleep(0.02)
        raise EmbeddedError(f"broker {self.id} does not know the users {', '.join(names)}", fix="See its log")

    def stop(self, timeout_seconds: float = 30) -> bool:
        """SIGTERM: a controlled shutdown. Whether it ended in time (else it was killed)."""
        return self.process.stop(timeout_seconds)

    def kill(self) -> None:
        """SIGKILL, as a machine that loses power."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self.process.pause()

    def resume(self) -> None:
        self.process.signal(signal.SIGCONT)


def _listening(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True

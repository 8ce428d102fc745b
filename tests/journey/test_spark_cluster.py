"""Beyond one machine: `heliograph run --master spark://…` on a real standalone cluster of Spark's pip package.

A master and workers are processes of their own here, as they would be machines of their own elsewhere: the executors
are started by Spark's workers, not by us, and reach the driver, both Kafka clusters and this package by themselves.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from heliograph.embedded import Kafka
from heliograph.embedded.ports import claim_port
from heliograph.embedded.process import Process
from heliograph.spark import security
from tests.broker.processes import Feed, Run, assert_copied, workers_in, write_properties
from tests.kit import create_topic, wait_until

PARTITIONS = 4
# Start-up is most of what these JVMs ever do: the quick compiler alone, and a collector without threads of its own.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


class Standalone:
    """A Spark master; workers of one core join it, and leave it by kill -9."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.secret = folder / "spark.secret"
        self._settings = folder / "spark.conf"
        for path in (self.secret, self._settings):
            path.touch(mode=0o600)
        self.secret.write_text(f"{secrets.token_hex(32)}\n")
        secured = {**security.DEFAULTS, security.SECRET: self.secret.read_text().strip()}
        self._settings.write_text("".join(f"{key} {value}\n" for key, value in secured.items()))
        self._claim = claim_port()
        self.url = f"spark://127.0.0.1:{self._claim.number}"
        self.workers: list[Process] = []
        master = ("--host", "127.0.0.1", "--port", str(self._claim.number), "--webui-port", "0")
        self._master = self._start("master", "org.apache.spark.deploy.master.Master", *master)

    def join(self, count: int = 1) -> list[Process]:
        """So many more workers, started side by side: one core and a gigabyte each."""
        self._wait_said(self._master, "I have been elected leader")  # a worker that comes too early waits long
        new = [self._launch_worker() for _ in range(count)]
        for worker in new:
            self._wait_said(worker, "Successfully registered with master")
        return new

    def _launch_worker(self) -> Process:
        name = f"worker-{len(self.workers)}"
        options = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g")
        worker = self._start(
            name, "org.apache.spark.deploy.worker.Worker", *options, "-d", str(self._folder / name), self.url
        )
        self.workers.append(worker)
        return worker

    def _start(self, name: str, *command: str) -> Process:
        home = Path(pyspark.__file__).parent
        environment = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "SPARK_LAUNCHER_OPTS": QUICK_JVM,  # of a JVM that only puts the real one's command together
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
        }
        log = self._folder / f"{name}.log"
        main, *arguments = command
        properties = ("--properties-file", str(self._settings))
        line = [home / "bin" / "spark-class", main, *properties, *arguments]
        return Process(name, line, log_path=log, environment=environment)

    @staticmethod
    def _wait_said(process: Process, words: str) -> None:
        def said() -> bool:
            process.require_running()
            return words in process.log_path.read_text(errors="replace")

        wait_until(said, what=f"{process.name} saying {words!r}", timeout_seconds=90)

    def stop(self) -> None:
        below = [one for worker in self.workers if worker.running for one in family_of(worker)]
        for process in (*self.workers, self._master):
            process.kill()
        for one in below:
            kill(one)
        self._claim.release()


def family_of(worker: Process) -> list[psutil.Process]:
    return psutil.Process(worker.pid).children(recursive=True)


def kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def writers(worker: Process, target: Kafka) -> list[psutil.Process]:
    """Python workers below this Spark worker that are connected to the target's broker: they run a mirror task."""
    found = []
    for one in workers_in(family_of(worker)):
        try:
            ports = {end.raddr.port for end in one.net_connections("tcp") if end.raddr}
        except psutil.NoSuchProcess:
            continue
        if target.brokers[0].port in ports:
            found.append(one)
    return found


def seen_by_others(secret: str) -> list[int]:
    """Processes whose command lines hold it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if secret.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path)
    try:
        cluster.join(2)
        yield cluster
    finally:
        cluster.stop()


def test_a_worker_of_a_spark_cluster_killed_and_another_joined(
    spark: Standalone, primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path
) -> None:
    create_topic(primary.confluent(), topic_name, PARTITIONS)
    properties = write_properties(tmp_path / "mm2.properties", primary, backup, topic_name, tasks_max=2)
    feed = Feed(primary.confluent(), topic_name, PARTITIONS, 1_000)
    executors = ("-X", f"spark.executor.extraJavaOptions={QUICK_JVM}")
    executors += ("-X", f"spark.authenticate.secret=file:{spark.secret}")
    with Run(properties, tmp_path / "run", "--master", spark.url, *executors) as run:
        run.wait_for("records", 1)
        feed.per_second = 5_000
        run.wait_copied(10_000)
        first, second = spark.workers
        wait_until(lambda: writers(first, backup) and writers(second, backup), what="tasks on both workers")
        assert run.workers() == [], "tasks ran below the driver"
        assert not seen_by_others(spark.secret.read_text().strip()), "Spark's secret stands in a command line"

        victims = family_of(first)
        os.kill(first.pid, 9)
        for victim in victims:
            kill(victim)
        wait_until(lambda: not first.running, what="the worker's end")
        run.wait_copied(10_000)  # the other one goes on with its partitions
        [third] = spark.join()
        wait_until(
            lambda: writers(second, backup) and writers(third, backup),
            what=f"tasks on the new worker:\n{run.words()}",
            timeout_seconds=300,  # an executor and its Python start one after the other: 93 s on a busy machine
        )
        run.wait_copied(10_000)

        remote = f"{primary.name}.{topic_name}"
        assert_copied(primary.confluent(), backup.confluent(), topic_name, remote, expected=feed.stop())
        assert run.stop() == 0, run.words()

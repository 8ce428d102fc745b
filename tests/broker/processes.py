"""`heliograph run` as a process of its own, a feed that never rests, a comparison that hides nothing.

Nothing of ours is called in-process: the command is started as a user starts it, watched by its JSON lines and by
psutil, and its work is judged by what confluent-kafka reads from both clusters.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from confluent_kafka import KafkaError, KafkaException, Producer

from heliograph.embedded import Kafka
from heliograph.embedded import broker as embedded_broker
from tests.kit import PATIENCE, contents, end_offsets, read_all, wait_until

COMMAND = Path(sys.executable).with_name("heliograph")
DAEMON = "heliograph.spark.daemon"
LINES_BYTES = 1 << 20  # more than two JSON lines of a run ever have
START_SECONDS = 100.0  # eight seconds on a quiet machine; minutes on two cores that others use as well

ONE_BROKER: Mapping[str, object] = {"replication_factor": 1, "offset_storage_replication_factor": 1}

Client = Mapping[str, str]


def write_file(path: Path, properties: Mapping[str, str]) -> Path:
    embedded_broker.write_properties(path, properties)
    return path


def write_properties(path: Path, source: Kafka, target: Kafka, topics: str, **more: object) -> Path:
    """An mm2.properties for one flow. `more`: keys with `_` for `.`, such as tasks_max=2."""
    lines = [
        f"clusters={source.name},{target.name}",
        f"{source.name}.bootstrap.servers={source.bootstrap}",
        f"{target.name}.bootstrap.servers={target.bootstrap}",
        f"{source.name}->{target.name}.enabled=true",
        f"{source.name}->{target.name}.topics={topics}",
        *(f"{key.replace('_', '.')}={value}" for key, value in {**ONE_BROKER, **more}.items()),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


class Run:
    """One `heliograph run`. Its words go to files in a folder of its own, where its temporary files go too."""

    def __init__(
        self, properties: Path, folder: Path, *arguments: str, verbose: bool = True, verb: str = "run"
    ) -> None:
        """`verb`: what else runs until it is stopped, and says less."""
        self.folder = folder
        folder.mkdir(parents=True)
        temporary = folder / "tmp"
        temporary.mkdir()
        self._out, self._err = folder / "out.jsonl", folder / "err.log"
        often = ["--report-seconds", "0.2"] if verb == "run" else []
        command = [str(COMMAND), verb, str(properties), *often, *(["-v"] if verbose else [])]
        self._began = time.monotonic()
        self.seconds = 0.0  # from its start to its end, once it has ended
        self.stop_seconds = 0.0  # from the signal to its end
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = psutil.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "TMPDIR": str(temporary), "NO_COLOR": "1"},
            )

    # What it says

    def lines(self) -> list[dict[str, Any]]:
        """Its whole JSON lines."""
        return [json.loads(line) for line in self._out.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def flows(self) -> list[dict[str, Any]]:
        """All flows of its last whole JSON line; none before the first."""
        with self._out.open("rb") as out:
            out.seek(max(out.seek(0, os.SEEK_END) - LINES_BYTES, 0))  # a run of minutes says megabytes
            lines = out.read().splitlines(keepends=True)
        whole = [line for line in lines[-2:] if line.endswith(b"\n")]
        return [dict(flow) for flow in json.loads(whole[-1])["flows"]] if whole else []

    def status(self, flow: str = "") -> dict[str, Any]:
        """The last status of this flow, or of the first; empty before there is one."""
        return next((one for one in self.flows() if flow in ("", one["name"])), {})

    def said(self) -> str:
        """All that it wrote to stderr."""
        return self._err.read_text(errors="replace")

    def words(self, lines: int = 25) -> str:
        """The end of what it wrote to stderr, and its last status: for a failing test's message."""
        return "\n".join([*self.said().splitlines()[-lines:], json.dumps(self.status())])

    # Waiting

    def wait(
        self,
        condition: Callable[[], object],
        *,
        what: str,
        timeout_seconds: float = START_SECONDS,
        every_seconds: float = 0.02,
    ) -> None:
        """Until the condition holds; it must not end before."""

        def holds() -> object:
            self.require_running()
            return condition()

        try:
            wait_until(
                holds,
                what=f"{what} of {self.folder.name}",
                timeout_seconds=timeout_seconds,
                every_seconds=every_seconds,
            )
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self.words()}") from None

    def wait_for(self, key: str, least: int, timeout_seconds: float = START_SECONDS) -> None:
        """Until its status says `key` >= least, for example records."""
        self.wait(
            lambda: int(self.status().get(key) or 0) >= least, what=f"{key} >= {least}", timeout_seconds=timeout_seconds
        )

    def wait_copied(self, more: int, timeout_seconds: float = 90) -> None:
        """Until it says that it has copied so many more records than it says now."""
        self.wait_for("records", int(self.status().get("records") or 0) + more, timeout_seconds)

    def require_running(self) -> None:
        if self.process.poll() is not None:
            raise AssertionError(f"heliograph run ended with {self.process.returncode}:\n{self.words()}")

    # Its processes

    def family(self) -> list[psutil.Process]:
        """Everything that descends from it: Spark's JVM, the planner, the workers' parent, the workers."""
        try:
            return list(self.process.children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def workers(self) -> list[psutil.Process]:
        return workers_in(self.family())

    # Its end

    def kill(self) -> list[psutil.Process]:
        """kill -9 of the process itself and of nothing else. Returns what was below it."""
        family = self.family()
        self.process.kill()
        self.process.wait(30)
        return family

    def stop(self, number: int = signal.SIGTERM) -> int:
        """This signal, and its exit code. Nothing may be left of it."""
        family = self.family()
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.wait_ended(30)
        self.stop_seconds = time.monotonic() - began
        wait_until_gone(family)
        return code

    def wait_ended(self, timeout_seconds: float = 120) -> int:
        """Until it has ended by itself; its exit code."""
        code = int(self.process.wait(timeout_seconds * PATIENCE))
        self.seconds = self.seconds or time.monotonic() - self._began
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in [*self.family(), self.process]:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue


def workers_in(family: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those that run tasks: forked from the workers' parent, so the same command line below the same command line."""
    found = []
    for one in family:
        try:
            parent = one.parent()
            if DAEMON in one.cmdline() and parent is not None and DAEMON in parent.cmdline():
                found.append(one)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_until_gone(processes: Sequence[psutil.Process], timeout_seconds: float = 10) -> None:
    def gone() -> bool:
        return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)

    def quietly() -> bool:
        try:
            return gone()
        except psutil.NoSuchProcess:
            return False

    wait_until(quietly, what=f"the end of {processes}", timeout_seconds=timeout_seconds)


class Feed:
    """Records at an even rate into one topic, from a thread, each different from every other, until `stop`."""

    def __init__(
        self, client: Client, topic: str, partitions: int, per_second: int, *, codec: str = "lz4", age_ms: int = 0
    ) -> None:
        """`age_ms`: how old the records say they are."""
        self.topic = topic
        self._age_ms = age_ms
        self.sent = 0
        self.per_second = per_second  # may be changed while it runs
        self._partitions = partitions
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                **client,
                "enable.idempotence": True,
                "linger.ms": 10,
                "compression.type": codec,
                "queue.buffering.max.messages": 1_000_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,  # brokers go away here on purpose; what matters comes back as a failure
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce, name=f"feed-{topic}", daemon=True)
        self._thread.start()

    def wait_sent(self, more: int, timeout_seconds: float = 60) -> None:
        """Until so many more records were handed to the producer."""
        goal = self.sent + more
        wait_until(lambda: self.sent >= goal, what=f"{goal} records fed", timeout_seconds=timeout_seconds)

    def stop(self) -> int:
        """End the feed, wait until the source has every record, and say how many."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert not left
        assert not self._failures, self._failures[0]
        return self.sent

    def _produce(self) -> None:
        due, at = 0.0, time.monotonic()
        while not self._stopping.wait(0.01):
            now = time.monotonic()
            due, at = due + (now - at) * self.per_second, now
            while self.sent < int(due):
                self._send(self.sent)
                self.sent += 1
            self._producer.poll(0)

    def _send(self, number: int) -> None:
        self._producer.produce(
            self.topic,
            None if number % 97 == 96 else b"value-%d-" % number + b"x" * (number % 180),
            None if number % 7 == 0 else b"key-%d" % (number % 991),
            partition=number % self._partitions,
            headers=[("n", b"%d" % number), ("n", None)] if number % 3 else [("n", b"%d" % number)],
            timestamp=int(time.time() * 1000) - number % 1000 - self._age_ms,
            on_delivery=self._delivered,
        )

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failures.append(error)


def records_in(client: Client, topic: str) -> int:
    """How many the topic holds by its end offsets; 0 while it or its broker is not there."""
    try:
        return sum(end_offsets(client, topic).values())
    except (KafkaException, KeyError):
        return 0


def assert_copied(
    source: Client, target: Client, topic: str, remote: str, *, expected: int, timeout_seconds: float = 120
) -> None:
    """Wait until the target has as many records as the source, then compare them all."""
    seen = [0]

    def there() -> bool:
        seen[0] = records_in(target, remote)
        return seen[0] >= expected

    try:
        wait_until(there, timeout_seconds=timeout_seconds)
    except TimeoutError:
        raise AssertionError(f"{remote} holds {seen[0]} of {expected} records after {timeout_seconds:g} s") from None
    theirs, ours = contents(read_all(source, topic)), contents(read_all(target, remote))
    found = sum(map(len, theirs.values()))
    assert found == expected, f"{topic} itself holds {found} records, {expected} were produced"
    for partition, records in theirs.items():
        assert difference(records, ours[partition]) == "", f"{remote}-{partition}"


def difference(source: Sequence[tuple[object, ...]], copy: Sequence[tuple[object, ...]]) -> str:
    """Empty when equal; otherwise what is wrong in one line, since two lists of 100,000 records say little."""
    if list(source) == list(copy):
        return ""
    there, here = Counter(source), Counter(copy)
    lost, extra = there - here, here - there
    first = next((i for i, (a, b) in enumerate(zip(source, copy, strict=False)) if a != b), min(len(source), len(copy)))
    return (
        f"{len(source)} records, {len(copy)} in the copy: {sum(lost.values())} lost, {sum(extra.values())} too many, "
        f"first difference at {first}: {source[first : first + 1]} became {copy[first : first + 1]}"
    )

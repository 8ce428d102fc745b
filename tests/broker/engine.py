"""Flows for broker tests in this process, without Spark. (By the real command: `Run` of `processes`.)

`Engine` is a hub, a coordinator and its tasks in threads: epochs as Spark would run them, up in a moment, and it can be
made to crash at a chosen record. It only starts and stops; what a copy must look like is said by `assert_same` and by
the tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient

from heliograph.embedded import Kafka
from heliograph.flow.coordinator import Coordinator
from heliograph.flow.hub import Hub
from heliograph.health.status import FlowStatus
from heliograph.mirror import task as task_module
from heliograph.mirror.assignment import Assignment
from heliograph.mirror.task import LEFT_OVER, Task
from heliograph.sync.rewinds import Rewinds
from heliograph.types import Cluster, Flow, TopicPartition
from heliograph.wire import Client
from tests.kit import contents, read_all, wait_until

task_module.REPORT_EVERY_S = 0.1  # tests wait for reports
Rewinds.seen_s = 0.5  # and for groups that go back


class Crash(Exception):
    """Raised inside a task in the place of a SIGKILL: nothing is finished, no position is written."""


class WatchedTask(Task):
    """A task that ends when its engine says so: by a crash, or at once but in order."""

    def __init__(self, assignment: Assignment, engine: Engine, *, attempt: int) -> None:
        super().__init__(assignment, attempt=attempt)
        self._engine = engine

    def _write_positions(self) -> None:
        if self._engine.crash_after is None:  # otherwise it is a crash before the first position
            super()._write_positions()

    def _turn(self, now: float, until: float) -> None:
        super()._turn(now, until)
        acknowledged = sum(lane.counts.records for lane in self._lanes)
        if self._engine.crash_after is not None and acknowledged >= self._engine.crash_after:
            raise Crash
        if self._engine.finish_after is not None and acknowledged >= self._engine.finish_after:
            self._finishing = True


class Engine:
    """One flow, running from `with` to its end. `crash_after`, `finish_after`: records a task appends before that."""

    def __init__(
        self,
        flow: Flow,
        *,
        epoch_seconds: float = 3600,
        crash_after: int | None = None,
        finish_after: int | None = None,
    ) -> None:
        self.flow = flow
        self.crash_after, self.finish_after = crash_after, finish_after
        self.ledger: list[tuple[Any, ...]] = []
        self.crashes = 0
        self._once = crash_after is not None or finish_after is not None
        self._hub = Hub()
        self.coordinator = Coordinator(flow, self._hub.coordinates, epoch_seconds=epoch_seconds)
        self._hub.add(flow.name, self.coordinator)
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._epochs, name="epochs", daemon=True)

    def __enter__(self) -> Self:
        self.coordinator.open()
        self.coordinator.query("running")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """In order: tasks finish and write their positions."""
        if not self._stopping.is_set():
            self._stopping.set()
            self.coordinator.stop()
            self._thread.join(30)
            # Those that went on behind their epoch, too.
            wait_until(lambda: not self.coordinator.working, what="the last tasks' end", timeout_seconds=30)
            self.ledger.extend(row for row in LEFT_OVER if row[0] == self.flow.name)
            self.coordinator.close()
            self._hub.close()
        if self._failure is not None:
            raise self._failure

    def wait_ended(self, timeout_seconds: float = 120) -> None:
        """Until the tasks have ended by themselves (`crash_after`, `finish_after`)."""
        self.wait(lambda: not self._thread.is_alive(), what="the tasks' end", timeout_seconds=timeout_seconds)
        self.stop()

    def wait_copied(self, *topics: str, timeout_seconds: float = 120) -> None:
        """Until all that is committed in these source topics now has been appended and acknowledged."""
        ends = stable_ends(self.flow.source, topics)
        self.wait(lambda: self._reached(ends), what=f"{ends} copied", timeout_seconds=timeout_seconds)

    def wait(self, condition: Callable[[], object], *, what: str, timeout_seconds: float = 120) -> None:
        def holds() -> object:
            if self._failure is not None:
                raise self._failure
            return condition()

        try:
            wait_until(holds, what=what, timeout_seconds=timeout_seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.status()}") from None

    def status(self) -> FlowStatus:
        return self.coordinator.status()

    def reached(self, tp: TopicPartition) -> int:
        """The next source offset of a partition, as last reported."""
        seen = self.coordinator._tally._seen.get(tp)
        return seen.next_offset if seen else -1

    def _reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(self.reached(tp) >= end for tp, end in ends.items())

    def _epochs(self) -> None:
        epoch = 0
        try:
            while not self._stopping.is_set():
                following = self.coordinator.next_epoch(epoch)
                if following > epoch:
                    self._run(self.coordinator.plan(following))
                    if self._once:
                        return
                epoch = following
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            self._failure = error

    def _run(self, assignments: Iterable[Assignment]) -> None:
        threads = [threading.Thread(target=self._task, args=(one,), daemon=True) for one in assignments]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _task(self, assignment: Assignment) -> None:
        try:
            self.ledger.extend(WatchedTask(assignment, self, attempt=0).run())
        except Crash:
            self.crashes += 1
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            self._failure = error


def one_flow(source: Cluster, target: Cluster, *topics: str, **more: Any) -> Flow:
    """A flow of these topics, single copies of everything, quick to see new topics; nothing but the copying, unless the
    test asks for it."""
    defaults = {
        "tasks_max": 1,
        "replication_factor": 1,
        "offset_storage_replication_factor": 1,
        "offset_storage_partitions": 3,  # of two topics that are made for every new alias
        "refresh_topics_interval_seconds": 0.5,
        "emit_heartbeats_s": None,
        "heartbeats_replication": more.get("emit_heartbeats_s") is not None,  # others leave heartbeats behind
        "emit_offset_syncs": False,
        "emit_checkpoints_s": None,
        "sync_topic_configs_s": None,
        "sync_topic_acls_s": None,
        "offset_syncs_replication_factor": 1,
        "checkpoints_replication_factor": 1,
        "heartbeats_replication_factor": 1,
    }
    return Flow(source, target, topics=topics, **{**defaults, **more})


def mirror(flow: Flow, *topics: str, timeout_seconds: float = 120, **options: Any) -> Engine:
    """Copy what is in these topics, and stop. The engine, for a look at its counters."""
    with Engine(flow, **options) as engine:
        engine.wait_copied(*topics, timeout_seconds=timeout_seconds)
    return engine


def stable_ends(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Where a reader of committed records comes to the end."""
    with Client(cluster) as client:
        found = client.metadata(sorted(topics)).topics
        tps = [TopicPartition(name, p) for name, topic in found.items() for p in topic.partitions]
        ends = client.list_offsets(tps, at="latest", isolation="read_committed")
    assert all(isinstance(end, int) for end in ends.values()), ends
    return {tp: int(end) for tp, end in ends.items()}  # type: ignore[arg-type]  # asserted above


def assert_same(source: Kafka, target: Kafka, topic: str, remote: str) -> dict[int, int]:
    """The copy holds what the topic holds, as confluent-kafka reads committed records; how many, by partition."""
    theirs, ours = contents(read_all(source.confluent(), topic)), contents(read_all(target.confluent(), remote))
    assert {p: len(r) for p, r in ours.items()} == {p: len(r) for p, r in theirs.items()}
    for partition, records in theirs.items():
        for index, (expected, found) in enumerate(zip(records, ours[partition], strict=True)):
            assert found == expected, f"{remote}-{partition}, record {index}"
    return {partition: len(records) for partition, records in theirs.items()}


def topics_of(client: Mapping[str, str]) -> set[str]:
    """All but those that the broker makes for itself."""
    names = AdminClient({**client, "log_level": 0}).list_topics(timeout=10).topics
    return {name for name in names if not name.startswith("__")}

"""A task copies a topic, without Spark and without a driver, and counts its CPU: what `bench.task_cost` starts.

The task is the real one (`mirror.task`): its loop, its connections, positions and the offset map. Only its link to its
driver is replaced, by one that is always well and tells the task to finish once everything is copied. The order comes
as JSON on stdin, the figures go as JSON to stdout.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import resource
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import psutil

from bench.model_broker import TOPIC_ID
from heliograph.mirror import freeze, task
from heliograph.mirror.assignment import Assignment, Coordinates, LaneSpec
from heliograph.mirror.lane import Lane
from heliograph.mirror.positions import Position
from heliograph.mirror.protocol import DriverMessage, Finish
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import Client

HEAD = 0.1  # of the records: until then connections are made and memory is touched for the first time
NEAR_S = 0.0002  # a round trip on one machine
MAX_BATCH_BYTES = 1_048_588


@dataclass(frozen=True, slots=True)
class Order:
    source: str  # bootstrap servers
    target: str
    topic: str
    remotes: list[str]  # copied to one after the other, each by a new task
    partitions: int
    ends: list[int]  # by partition: what is copied
    positions: str  # topics, on the target
    map: str
    source_pid: int = 0
    target_pid: int = 0
    profile: str = ""  # a file for cProfile's figures
    model: bool = False  # brokers of `bench.model_broker`


@dataclass(frozen=True, slots=True)
class Sample:
    """At one moment: what was acknowledged, and the CPU seconds of the task and of both brokers."""

    at_s: float
    records: int
    batches: int  # as the target got them
    requests: int
    task_s: float
    source_s: float
    target_s: float


class Driver:
    """Is to a task what its link to the driver is. Asked ten times a second, so the samples are taken here."""

    gone, may_send, may_write_positions = False, True, True

    def __init__(self, order: Order) -> None:
        self._order, self._total = order, sum(order.ends)
        self._brokers = [psutil.Process(pid) if pid else None for pid in (order.source_pid, order.target_pid)]
        self.task: Any = None
        self.samples: list[Sample] = []

    def heard(self) -> list[DriverMessage]:
        if self.task is None:
            return []
        counts = [lane.counts for lane in self.task._lanes]
        records, batches = sum(one.records for one in counts), sum(one.batches for one in counts)
        requests = sum(pusher.connection._correlation for pusher in self.task._target._pushers.values())
        cpu = [_cpu_s(one) for one in self._brokers]
        self.samples.append(Sample(time.monotonic(), records, batches, requests, time.process_time(), *cpu))
        return [Finish()] if records >= self._total else []

    def tell(self, message: object, *, wait_s: float = 0.0) -> bool:
        return True

    def ready(self) -> None: ...
    def give_up(self) -> None: ...
    def close(self) -> None: ...


def _cpu_s(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


class AtAModel(task.Task):
    """A model holds nothing of a producer id, and cannot be asked: every lane flows from the start. It is near, however
    late a busy machine lets it answer: batches are merged as they would be at a broker beside the task."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self._target.pace.opened(NEAR_S)

    def _ask(self, lanes: list[Lane], *, at_first: bool = False) -> None:
        for lane in lanes:
            lane.found(0)
            self._source.reopen(lane)


def assignment(order: Order, remote: str) -> Assignment:
    clusters = [Cluster(alias, {"bootstrap.servers": at}) for alias, at in (("a", order.source), ("b", order.target))]
    topic_id: UUID | None = TOPIC_ID
    producers = [(n + 1, 0) for n in range(order.partitions)]
    if not order.model:
        with Client(clusters[0]) as client:
            topic_id = client.metadata([order.topic]).topics[order.topic].id
        with Client(clusters[1]) as client:
            producers = client.init_producer_ids(order.partitions)
    lanes = [
        LaneSpec(
            TopicPartition(order.topic, n), topic_id, TopicPartition(remote, n),
            Position(0, producer, epoch, 0, topic_id, 0), MAX_BATCH_BYTES,
        )
        for n, (producer, epoch) in enumerate(producers)
    ]  # fmt: skip
    return Assignment(
        flow="a->b", source=clusters[0], target=clusters[1], isolation="read_committed",
        positions_topic=order.positions, positions_partitions=1, map_topic=order.map, map_partitions=1,
        epoch=1, task=0, seconds=3600.0, lanes=tuple(lanes), coordinator=Coordinates("127.0.0.1", 1, b""),
    )  # fmt: skip


def copied(order: Order, remote: str) -> dict[str, Any]:
    """One copy: the first and the last sample that count."""
    driver = Driver(order)
    task.Link = lambda *_: driver  # type: ignore[assignment,misc]  # the driver's stand-in
    work = (AtAModel if order.model else task.Task)(assignment(order, remote))
    driver.task = work
    for _ in work.run():
        pass
    first = next(one for one in driver.samples if one.records >= HEAD * sum(order.ends))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"first": asdict(first), "last": asdict(driver.samples[-1]), "peak_mb": peak_mb}


def run(order: Order) -> list[dict[str, Any]]:
    task.warm()
    freeze.FROZEN_S = float("inf")  # on a busy machine a process that has the lowest priority often stands still
    if not order.profile:
        return [copied(order, remote) for remote in order.remotes]
    profile = cProfile.Profile(time.thread_time)  # others use the machine too
    profile.enable()
    found = [copied(order, remote) for remote in order.remotes]
    profile.disable()
    pstats.Stats(profile).dump_stats(order.profile)
    return found


if __name__ == "__main__":
    print(json.dumps(run(Order(**json.load(sys.stdin)))))

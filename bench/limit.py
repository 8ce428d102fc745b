"""The limit: what two bare loops reach on these brokers when they do nothing but fetch and append.

One process fetches the topic's batches and throws them away, one appends the same batches from memory; both at the same
time and in step, because a copier does both at the same time and can neither append what it has not fetched nor hold
all it fetched. The slower of the two is what no copier of batches as they are can
pass by much (one that merges small batches makes the brokers' work lighter, and may).
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import multiprocessing.process
import queue
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from typing import Any, TypeAlias

from bench.batches import Appender, Batch, Fetcher, split
from bench.measure import HEAD
from heliograph.types import Cluster

MEMORY_BYTES = 256 << 20  # of batches the appending loop holds; it goes round when the topic has more
LONGEST_S = 240
STEP_S = 0.0005  # a loop that is ahead looks again after this
CONNECTIONS = 2  # of the appending loop: a broker works on one request of a connection at a time


Counter: TypeAlias = "Synchronized[int]"


@dataclass(frozen=True, slots=True)
class Loop:
    """What one loop did between 5 % and all of the records."""

    records_per_s: float
    cpu_us: float  # per record
    total_s: float


class Meter:
    """Counts a loop's records and keeps its time."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._began = time.monotonic()
        self._head: tuple[float, float, int] | None = None
        self.count = 0
        self.result: Loop | None = None

    def add(self, records: int) -> None:
        self.count += records
        if self._head is None and self.count >= HEAD * self._records:
            self._head = (time.monotonic(), time.process_time(), self.count)
        if self.result is None and self.count >= self._records and self._head is not None:
            now, (began, cpu, before) = time.monotonic(), self._head
            moved = max(self.count - before, 1)
            cpu_us = (time.process_time() - cpu) / moved * 1e6
            self.result = Loop(moved / max(now - began, 1e-9), cpu_us, now - self._began)


@dataclass(frozen=True, slots=True)
class Work:
    """What both loops are about, and what keeps them in step: how many records each has moved."""

    source: Cluster
    target: Cluster
    topic: str
    remote: str
    partitions: int
    records: int
    together: Barrier
    fetched: Counter
    appended: Counter
    answers: Any

    @property
    def lead(self) -> int:
        """How far fetching may be ahead, in records: what a copier could hold in memory."""
        return max(self.records // 20, 1)


def run(source: Cluster, target: Cluster, topic: str, remote: str, partitions: int, records: int) -> dict[str, Loop]:
    """Both loops side by side. The remote topic exists."""
    context = multiprocessing.get_context("spawn")
    counters = (context.Value("q", 0), context.Value("q", 0))
    together, answers = context.Barrier(2, timeout=120), context.Queue()
    work = Work(source, target, topic, remote, partitions, records, together, *counters, answers)
    loops = [context.Process(target=loop, args=(work,), daemon=True) for loop in (fetch_loop, append_loop)]
    for loop in loops:
        loop.start()
    try:
        return dict(_answer(answers, loops) for _ in loops)
    finally:
        for loop in loops:
            loop.join(5)
            loop.kill()


def _answer(answers: Any, loops: Iterable[multiprocessing.process.BaseProcess]) -> tuple[str, Loop]:
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        with contextlib.suppress(queue.Empty):
            name, loop = answers.get(timeout=0.2)
            return str(name), loop
        if any(loop.exitcode for loop in loops):
            raise RuntimeError("one of the limit's loops died: its traceback is above")
    raise TimeoutError(f"the limit's loops did not end within {LONGEST_S} s")


def fetch_loop(work: Work) -> None:
    fetcher = Fetcher(work.source, work.topic, work.partitions)
    work.together.wait()
    meter = Meter(work.records)
    while meter.result is None:
        while meter.count > work.appended.value + work.lead:
            time.sleep(STEP_S)
        for _, data in fetcher.fetch():
            meter.add(sum(count for _, _, _, count in split(data)))
        work.fetched.value = meter.count
    work.answers.put(("fetch", meter.result))


def append_loop(work: Work) -> None:
    stock = {p: itertools.cycle(batches) for p, batches in remember(work).items()}
    appender = Appender(work.target, work.remote, work.partitions, connections=min(CONNECTIONS, work.partitions))
    work.together.wait()
    meter = Meter(work.records)

    def supply(partition: int) -> Batch | None:
        if meter.result is not None:
            return None
        while meter.count > work.fetched.value:
            time.sleep(STEP_S)
        batch = next(stock[partition])
        meter.add(batch.count)  # counted when handed over: at most five requests ahead of the acknowledgement
        work.appended.value = meter.count
        return batch

    appender.run(supply)
    work.answers.put(("append", meter.result))


def remember(work: Work) -> dict[int, list[Batch]]:
    """The first batches of every partition, as many as memory is set aside for."""
    fetcher = Fetcher(work.source, work.topic, work.partitions)
    stock: dict[int, list[Batch]] = {p: [] for p in range(work.partitions)}
    have = held_bytes = 0
    while have < work.records and (held_bytes < MEMORY_BYTES or not all(stock.values())):
        for partition, data in fetcher.fetch():
            for begin, end, _, count in split(data):
                stock[partition].append(Batch(data[begin:end], count))
                have += count
            held_bytes += len(data)
    fetcher.close()
    return stock

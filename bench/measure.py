"""The stop-watch: windows, percentiles, and the CPU and memory of a tree of processes.

The first half is pure. The second half samples /proc through psutil from outside, the same for every peer, so no peer
reports on itself.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

Series = Sequence[tuple[float, float]]  # (monotonic seconds, value), rising in both

HEAD = 0.05  # the share of the records after which the clock runs: starting up does not count
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a copy that is measured: from the first 5 % there to all there."""

    begin_s: float
    end_s: float
    records: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0


def copy_window(progress: Series, total: int) -> Window | None:
    """The window of a copy; of one that did not finish: from 5 % of what it copied to the last record seen.

    None: fewer than two samples differ, so there is no rate to speak of.
    """
    if not progress:
        return None
    done = min(progress[-1][1], total)
    begin = next((s for s in progress if s[1] >= HEAD * done and s[1] > 0), None)
    end = next((s for s in progress if s[1] >= done), None)
    if begin is None or end is None or end[0] <= begin[0]:
        return None
    return Window(begin[0], end[0], min(end[1], total) - begin[1])


def value_at(series: Series, when_s: float) -> float:
    """The value of a sampled series at a moment, on the straight line between its neighbours."""
    if not series:
        return 0.0
    i = bisect_left(series, when_s, key=lambda s: s[0])
    if i == 0:
        return series[0][1]
    if i == len(series):
        return series[-1][1]
    (t0, v0), (t1, v1) = series[i - 1], series[i]
    return v0 + (v1 - v0) * (when_s - t0) / (t1 - t0) if t1 > t0 else v1


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of an ordered list: a value that did occur, so p99.9 of few is their maximum."""
    if not ordered:
        return math.nan
    rank = math.ceil(percent / 100 * len(ordered) - 1e-9)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{percent:g}_ms": percentile(ordered, percent) for percent in PERCENTILES}


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


class Tree:
    """CPU and memory of a process and all it ever started, sampled while it runs.

    A. A process is (pid, time of creation): a pid that is used again is another process.
    B. A process counts from the sample that first saw it, for good: one that died keeps its last figure, and one whose
       parent died (and so left the tree) is still watched.
    """

    CPU_EVERY_S = 0.2
    MEMORY_EVERY_S = 1.0  # reading smaps_rollup makes the kernel walk the page tables: not too often

    def __init__(self, root_pid: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._root_pid = root_pid
        self._clock = clock
        self._seen: dict[tuple[int, float], psutil.Process] = {}
        self._cpu_s: dict[tuple[int, float], float] = {}
        self.cpu: list[tuple[float, float]] = []
        self.memory: list[tuple[float, float]] = []  # MB, shared pages counted once
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tree", daemon=True)

    def __enter__(self) -> Tree:
        self.sample_cpu()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.sample_cpu()

    @property
    def peak_mb(self) -> float:
        return max((mb for _, mb in self.memory), default=0.0)

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu_s.values())

    def sample_cpu(self) -> None:
        for process in self._discover():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                self._cpu_s[process.pid, process.create_time()] = times.user + times.system
        self.cpu.append((self._clock(), self.cpu_s))

    def descriptors(self) -> int:
        """Open ones, of all processes that live."""
        count = 0
        for process in self._discover():
            with contextlib.suppress(psutil.Error):
                count += process.num_fds()
        return count

    def sample_memory(self) -> None:
        alive = [p for p in self._seen.values() if p.is_running()]
        self.memory.append((self._clock(), sum(proportional_bytes(p) for p in alive) / 1e6))

    def _discover(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self._root_pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    self._seen.setdefault((process.pid, process.create_time()), process)
        return [p for p in self._seen.values() if p.is_running()]

    def _run(self) -> None:
        memory_due = 0.0
        while not self._stop.wait(self.CPU_EVERY_S):
            self.sample_cpu()
            if self._clock() >= memory_due:
                self.sample_memory()
                memory_due = self._clock() + self.MEMORY_EVERY_S


def proportional_bytes(process: psutil.Process) -> float:
    """Its share of memory: a page that n processes share counts 1/n each, so the sum over a tree is what it uses."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return float(line.split()[1]) * 1024
    except OSError:  # gone, or not Linux
        pass
    with contextlib.suppress(psutil.Error):
        return float(process.memory_info().rss)
    return 0.0

"""What a flow's tasks report, added up: counters that survive epochs and attempts, rates, lag, what is parked.

A task counts from zero in every attempt and says what changed since it last spoke. Here the differences are added, so
that a flow's counters run from the start of the process. One lock: reports come from a thread per task.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from heliograph.health.status import ParkedPartition
from heliograph.mirror.protocol import PartitionReport, Report
from heliograph.types import TopicPartition

COUNTERS = ("records", "bytes", "batches", "skipped", "retries", "resyncs", "repeated", "lost")
RATE_WINDOW_S = 5.0  # rates are of this long: short enough to see a stall, long enough to be readable
REMEMBERED = 3  # tasks whose counts of a partition are kept: one that hands it over may have the last word
SMOOTHING = 0.3  # weight of the newest second in a partition's rate, which planning uses


@dataclass(slots=True)
class Seen:
    """The last word on one partition."""

    next_offset: int = 0
    end_offset: int = -1
    state: str = ""
    reason: str = ""
    fix: str = ""
    rate: float = 0.0  # bytes/s, smoothed
    at: float = 0.0
    counts: dict[tuple[int, int, int], dict[str, int]] = field(default_factory=dict)  # by task attempt
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))  # since the process began


class Tally:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[TopicPartition, Seen] = {}
        self._totals = dict.fromkeys(COUNTERS, 0)
        self._history: deque[tuple[float, int, int]] = deque([(time.monotonic(), 0, 0)])
        self.trouble: tuple[str, ...] = ()

    def add(self, task: tuple[int, int, int], report: Report) -> None:
        now = time.monotonic()
        with self._lock:
            self.trouble = tuple(report.trouble)
            for lane in report.lanes:
                self._add(task, lane, now)
            self._history.append((now, self._totals["records"], self._totals["bytes"]))
            while len(self._history) > 2 and self._history[1][0] < now - RATE_WINDOW_S:
                self._history.popleft()

    def _add(self, task: tuple[int, int, int], lane: PartitionReport, now: float) -> None:
        seen = self._seen.setdefault(lane.tp, Seen(at=now))
        before = seen.counts.get(task, {})
        if any(getattr(lane, name) < before.get(name, 0) for name in COUNTERS):
            before = {}
        moved = lane.bytes - before.get("bytes", 0)
        seen.counts[task] = {name: getattr(lane, name) for name in COUNTERS}
        while len(seen.counts) > REMEMBERED:
            del seen.counts[min(seen.counts)]
        for name in COUNTERS:
            self._totals[name] += getattr(lane, name) - before.get(name, 0)
            seen.totals[name] += getattr(lane, name) - before.get(name, 0)
        elapsed = now - seen.at
        if elapsed > 0:
            seen.rate += SMOOTHING * (moved / elapsed - seen.rate)
        seen.at = now
        seen.next_offset, seen.end_offset = lane.next_offset, lane.end_offset
        seen.state, seen.reason, seen.fix = lane.state, lane.reason, lane.fix

    def total(self, name: str) -> int:
        with self._lock:
            return self._totals[name]

    def of(self, tp: TopicPartition) -> dict[str, int]:
        """The counters of one partition, since the process began."""
        with self._lock:
            return dict(self._seen[tp].totals) if tp in self._seen else dict.fromkeys(COUNTERS, 0)

    def bytes_by_topic(self) -> dict[str, int]:
        """Acknowledged since the process began."""
        found: dict[str, int] = {}
        with self._lock:
            for tp, seen in self._seen.items():
                found[tp.topic] = found.get(tp.topic, 0) + seen.totals["bytes"]
        return found

    def reached(self, tp: TopicPartition) -> int:
        """The next source offset, as last reported; -1: never."""
        with self._lock:
            return self._seen[tp].next_offset if tp in self._seen else -1

    def rates(self) -> dict[TopicPartition, float]:
        with self._lock:
            return {tp: seen.rate for tp, seen in self._seen.items()}

    def per_second(self) -> tuple[float, float]:
        """Records and bytes."""
        now = time.monotonic()
        with self._lock:
            at, records, size = self._history[0]
            elapsed = max(now - at, 1.0)
            return (self._totals["records"] - records) / elapsed, (self._totals["bytes"] - size) / elapsed

    def lag(self, partitions: set[TopicPartition]) -> int | None:
        """Records between the sources' ends and what is acknowledged; None until every partition has been heard of."""
        with self._lock:
            heard = [self._seen[tp] for tp in partitions if tp in self._seen and self._seen[tp].end_offset >= 0]
            if len(heard) < len(partitions):
                return None
            return sum(max(seen.end_offset - seen.next_offset, 0) for seen in heard)

    def parked(self) -> tuple[ParkedPartition, ...]:
        with self._lock:
            return tuple(
                ParkedPartition(tp.topic, tp.partition, seen.reason, seen.fix)
                for tp, seen in sorted(self._seen.items())
                if seen.state == "parked"
            )

    def forget(self, gone: set[TopicPartition]) -> None:
        """They are copied no more. What their tasks counted stays known: a last report may still come, and counting
        from zero would count it all a second time."""
        with self._lock:
            for tp in gone & self._seen.keys():
                seen = self._seen[tp]
                seen.end_offset, seen.state, seen.rate = -1, "", 0.0

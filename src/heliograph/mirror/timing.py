"""How long records were on their way, counted while they go by: per batch, never per record.

Latency is the moment of the target's acknowledgement minus the newest timestamp in the batch; age is the moment a fetch
answer arrived minus the newest timestamp in it. Every record of a batch counts with the batch's newest timestamp: no
record is looked at, and with a producer that fills batches for milliseconds the difference is milliseconds. Records
with timestamps ahead of the clock count as 0. The clock is this machine's, the timestamps are the producers'.

What is counted is handed over once it was heard (`Tellings`): a report that nobody heard loses nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

# Upper bounds of the buckets, in ms; the last bucket has none. Dense around what a copy takes when all is well (a few
# ms to a second), coarse where only the order of magnitude matters, up to an hour's backlog.
BOUNDS_MS = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 600_000, 3_600_000)


@dataclass(slots=True)
class Spread:
    """Of some milliseconds: how many, their sum, the least, the most, the last."""

    count: int = 0
    sum: int = 0
    least: int = 0
    most: int = 0
    last: int = 0

    def note(self, value: int, times: int) -> None:
        if not self.count or value < self.least:
            self.least = value
        if not self.count or value > self.most:
            self.most = value
        self.count += times
        self.sum += value * times
        self.last = value

    def add(self, other: Spread) -> None:
        """`other` came after this."""
        if not other.count:
            return
        self.least = min(self.least, other.least) if self.count else other.least
        self.most = max(self.most, other.most) if self.count else other.most
        self.count += other.count
        self.sum += other.sum
        self.last = other.last

    def told(self) -> list[int]:
        return [self.count, self.sum, self.least, self.most, self.last]

    def clear(self) -> None:
        self.count = self.sum = self.least = self.most = self.last = 0


@dataclass(slots=True)
class Histogram:
    """Counts by bucket (not cumulative), and the sum of all, in ms."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    sum: int = 0

    def note(self, value: int, times: int) -> None:
        self.counts[bisect_left(BOUNDS_MS, value)] += times
        self.sum += value * times

    def add(self, counts: list[int], total: int) -> None:
        for index, count in enumerate(counts):
            self.counts[index] += count
        self.sum += total

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The milliseconds that this share of all stayed within, evenly inside a bucket; None: nothing was counted.
        Of the last bucket, which has no upper bound, its lower one."""
        wanted, below = share * self.count, 0
        for index, count in enumerate(self.counts):
            if count and below + count >= wanted:
                low = BOUNDS_MS[index - 1] if index else 0
                high = BOUNDS_MS[index] if index < len(BOUNDS_MS) else low
                return low + (high - low) * (wanted - below) / count
            below += count
        return None

    def copy(self) -> Histogram:
        return Histogram(list(self.counts), self.sum)


class Tellings:
    """Latencies of a task since they were last told: a histogram a topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Histogram] = {}

    def note(self, topic: str, value_ms: int, records: int) -> None:
        histogram = self._by_topic.get(topic)
        if histogram is None:
            histogram = self._by_topic[topic] = Histogram()
        histogram.note(value_ms, records)

    def told(self) -> dict[str, Any]:
        """Topic -> [sum, counts]: those that have something to tell."""
        return {topic: [histogram.sum, histogram.counts] for topic, histogram in self._by_topic.items()}

    def heard(self) -> None:
        self._by_topic.clear()

"""Figures of the last half minute or minute, as MM2's own sensors give them: rates, least, most, mean. Pure."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

from heliograph.mirror.timing import Histogram, Spread

WINDOW_S = 30.0  # Kafka's metrics.sample.window.ms; two of them are looked at (metrics.num.samples)


class Window:
    """Two windows of 30 s that take turns: what is seen is never older than a minute."""

    __slots__ = ("_began", "_first", "_new", "_old")

    def __init__(self, now: float) -> None:
        self._old, self._new = Spread(), Spread()
        self._began = self._first = now

    def add(self, spread: Spread, now: float) -> None:
        self._turn(now)
        self._new.add(spread)

    def seen(self, now: float) -> Spread:
        self._turn(now)
        both = Spread()
        both.add(self._old)
        both.add(self._new)
        return both

    def seconds(self, now: float) -> float:
        """How long a time `seen` is about."""
        self._turn(now)
        return max(now - max(self._began - WINDOW_S, self._first), 1.0)

    def _turn(self, now: float) -> None:
        gone = now - self._began
        if gone < WINDOW_S:
            return
        self._old = self._new if gone < 2 * WINDOW_S else Spread()
        self._new = Spread()
        self._began += gone // WINDOW_S * WINDOW_S


class HistogramWindow:
    """The same for a histogram, with windows as long as is said."""

    __slots__ = ("_began", "_each_s", "_new", "_old")

    def __init__(self, now: float, each_s: float) -> None:
        self._old, self._new = Histogram(), Histogram()
        self._began, self._each_s = now, each_s

    def add(self, counts: list[int], total: int, now: float) -> None:
        self._turn(now)
        self._new.add(counts, total)

    def seen(self, now: float) -> Histogram:
        self._turn(now)
        both = self._old.copy()
        both.add(self._new.counts, self._new.sum)
        return both

    def _turn(self, now: float) -> None:
        gone = now - self._began
        if gone < self._each_s:
            return
        self._old = self._new if gone < 2 * self._each_s else Histogram()
        self._new = Histogram()
        self._began += gone // self._each_s * self._each_s


class Latencies:
    """Of checkpoints: a histogram of all, and a window for each. Written by one thread, read by others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all = Histogram()
        self._each: dict[tuple[str, str, int], Window] = {}

    def note(self, keys: Iterable[tuple[str, str, int]], latency_ms: int) -> None:
        """These were written, so long after the offsets they translate were read."""
        now = time.monotonic()
        with self._lock:
            for key in keys:
                self._all.note(latency_ms, 1)
                self._each.setdefault(key, Window(now)).add(Spread(1, *[latency_ms] * 4), now)

    def histogram(self) -> Histogram:
        with self._lock:
            return self._all.copy()

    def spreads(self) -> Mapping[tuple[str, str, int], Spread]:
        """Of those that were written in the last minute."""
        now = time.monotonic()
        with self._lock:
            seen = {key: window.seen(now) for key, window in self._each.items()}
        return {key: spread for key, spread in seen.items() if spread.count}

"""When to begin anew although nothing seems wrong: partitions that stall with nothing known to be in their way. Pure.

A broker that is down needs no help from us: connections come back by themselves. What stalls for no reason that can be
seen is a fault of ours, a partition that a fetch lost or an answer that never came, and new tasks with new connections
are the cure. Since it costs the other partitions a moment, it is done seldom, and ever more seldom when it does not
help. Time before a task had the partition does not count: where Spark is slow to start one, another would be too.
"""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.health.verdict import Health, Verdict
from heliograph.types import TopicPartition

FIRST_S, MOST_S = 30.0, 600.0  # between two cures: doubling


class Recovery:
    def __init__(self, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._wait_s = first_s
        self._cured_at = float("-inf")

    def due(self, verdicts: Mapping[TopicPartition, Verdict], now: float) -> list[TopicPartition]:
        """The partitions for whose sake tasks should begin anew now; mostly none."""
        ill = sorted(
            tp
            for tp, verdict in verdicts.items()
            if verdict.health is Health.STALLED and verdict.clueless_s >= self._first_s
        )
        if not ill:
            if now - self._cured_at > self._wait_s:
                self._wait_s = self._first_s
            return []
        if now - self._cured_at < self._wait_s:
            return []
        if self._cured_at > float("-inf"):
            self._wait_s = min(self._wait_s * 2, self._most_s)
        self._cured_at = now
        return ill

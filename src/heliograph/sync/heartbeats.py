"""Heartbeats: MM2's sign of life, one record an interval into `heartbeats` on the target.

Java's client counts hops by the names of their copies; dashboards measure end-to-end delay by their timestamps.
"""

from __future__ import annotations

import time

from heliograph.formats import Heartbeat
from heliograph.policy import HEARTBEATS
from heliograph.state.compacted import CompactedLog
from heliograph.types import HEARTBEATS_FACTOR, Flow
from heliograph.wire import Client


class Heartbeats:
    def __init__(self, flow: Flow, target: Client) -> None:
        self._flow = flow
        self._log = CompactedLog(target, HEARTBEATS)
        self.beat_at: float | None = None  # monotonic; the last that is in the log

    def ensure(self) -> None:
        if not self._log.partitions:
            self._log.ensure(1, self._flow.factor(HEARTBEATS_FACTOR))

    def beat(self) -> None:
        self.ensure()
        now_ms = time.time_ns() // 1_000_000
        beat = Heartbeat(self._flow.source.alias, self._flow.target.alias, now_ms)
        self._log.append(0, [(beat.key(), beat.value())], now_ms)
        self.beat_at = time.monotonic()

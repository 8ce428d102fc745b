"""Offset syncs in MM2's topic: now and then, which source record became which target record.

Heliograph translates by its own map, which is exact. The syncs are for everybody else: an MM2 that takes over, tools
that
read the topic. So the newest pair of a partition goes out once a second at most, by MM2's rules of when one is due:

  1. the first in this process;
  2. `offset.lag.max` target offsets after the last;
  3. a new run (a gap at the source);
  4. the target went back.

Otherwise the pair waits for the next flush, so that the idle tail of a partition is synced too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from heliograph import policy
from heliograph.formats import OffsetSync
from heliograph.mirror.offsetmap import Span
from heliograph.state.compacted import CompactedLog
from heliograph.types import SYNCS_FACTOR, Flow, TopicPartition
from heliograph.wire import Client


@dataclass(slots=True)
class Last:
    """Of one partition."""

    run: int  # source offset at which the run of the newest pair begins
    upstream: int
    downstream: int
    synced_run: int = -1
    synced: int = -1  # downstream of the last sync written; -1: none yet

    def due(self, lag_max: int) -> bool:
        return (
            self.synced < 0
            or self.downstream - (self.synced + 1) >= lag_max
            or self.run != self.synced_run
            or self.downstream < self.synced
        )


class OffsetSyncs:
    def __init__(self, flow: Flow, source: Client, target: Client) -> None:
        self._flow = flow
        names = policy.of(flow)
        on_source = flow.offset_syncs_location == "source"
        other = flow.target.alias if on_source else flow.source.alias
        self._log = CompactedLog(source if on_source else target, names.offset_syncs_topic(other))
        self._lock = threading.Lock()
        self._last: dict[TopicPartition, Last] = {}
        self._flush_at = time.monotonic() + flow.offset_flush_s

    def ensure(self) -> None:
        if not self._log.partitions:
            self._log.ensure(1, self._flow.factor(SYNCS_FACTOR))

    def note(self, tp: TopicPartition, run: Sequence[int] | None) -> None:
        """A task's word: the run it is in, up to the newest record acknowledged."""
        if run is None:
            return
        span = Span(*run)
        with self._lock:
            last = self._last.setdefault(tp, Last(0, -1, -1))
            last.run = span.source
            last.upstream, last.downstream = span.source + span.length - 1, span.target + span.length - 1

    def write(self) -> int:
        """What is due, in one batch; how many."""
        now = time.monotonic()
        flush = now >= self._flush_at
        if flush:
            self._flush_at = now + self._flow.offset_flush_s
        with self._lock:
            due = {
                tp: OffsetSync(tp, last.upstream, last.downstream)
                for tp, last in self._last.items()
                if last.due(self._flow.offset_lag_max) or (flush and last.downstream != last.synced)
            }
            runs = {tp: self._last[tp].run for tp in due}
        self.ensure()
        if not due:
            return 0
        self._log.append(0, [(sync.key(), sync.value()) for sync in due.values()])
        with self._lock:
            for tp, sync in due.items():
                self._last[tp].synced, self._last[tp].synced_run = sync.downstream, runs[tp]
        return len(due)

"""Checkpoints: each group's committed offsets on the source, and the very same records on the target.

In MM2's topic, byte for byte, so that Java's `translateOffsets` and every tool that reads it get the exact answer.

Invariants:
  a. For one group and partition the downstream offset only grows, unless the group went back on the source itself.
  b. Downstream passes over no record that the group has not read, and is never before the target's first record: a
     group that is placed there reads on without a gap, and without its `auto.offset.reset` deciding.
  c. What is written is what was read back: after a restart the topic itself says where each group stood.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import structlog

from heliograph import policy
from heliograph.errors import BrokerError, HeliographError
from heliograph.flow.compacted import CompactedLog
from heliograph.flow.offsets import OffsetMap
from heliograph.flow.positions import PositionsLog
from heliograph.flow.windows import Latencies
from heliograph.formats import Checkpoint
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client, Committed

log = structlog.get_logger()

Key = tuple[str, TopicPartition]


class Checkpoints:
    def __init__(self, flow: Flow, source: Client, target: Client, offsets: OffsetMap, positions: PositionsLog) -> None:
        self._flow = flow
        self._source, self._target = source, target
        self._offsets, self._positions = offsets, positions
        self._log = CompactedLog(target, policy.of(flow).checkpoints_topic(flow.source.alias))
        self._groups: tuple[str, ...] = ()
        self._groups_at = 0.0
        self.known: dict[Key, Checkpoint] = {}  # the last of each, as the topic has it
        self.latencies = Latencies()  # from reading a group's offset to its checkpoint being in the log

    # ---------------------------------------------------------------- a round

    def emit(self) -> int:
        """Write what changed; how many."""
        self._open()
        self._refresh_groups()
        read_at = time.monotonic()
        committed = self._committed()
        now_ms = time.time_ns() // 1_000_000
        # Positions first: the map is never behind them (its invariant a). The other way round the last run could be
        # taken for longer than it is, over a hole that the map did not tell of yet.
        positions = dict(self._positions.catch_up())
        self._offsets.catch_up()
        fresh: list[Checkpoint] = []
        starts = self._starts(committed)
        for group, offsets in committed.items():
            for tp, at in offsets.items():
                downstream = self._offsets.translate(tp, at.offset, positions)
                if downstream is None:
                    continue
                remote = TopicPartition(policy.remote_topic(self._flow, tp.topic), tp.partition)
                checkpoint = Checkpoint(
                    group, remote, at.offset, max(downstream, starts.get(remote, 0)), at.metadata or ""
                )
                if self._worth(checkpoint):
                    fresh.append(checkpoint)
        if fresh:
            self._log.append(0, [(c.key(), c.value()) for c in fresh], now_ms)
            self.known.update(((c.group, c.tp), c) for c in fresh)
            self.latencies.note(((c.group, *c.tp) for c in fresh), round((time.monotonic() - read_at) * 1000))
        return len(fresh)

    def _worth(self, new: Checkpoint) -> bool:
        """MM2's rule, and invariant a."""
        old = self.known.get((new.group, new.tp))
        return old is None or new.upstream < old.upstream or new.downstream > old.downstream

    # ---------------------------------------------------------------- what it needs

    def _open(self) -> None:
        if self._log.partitions:
            return
        self._log.ensure(1, self._flow.checkpoints_replication_factor, "checkpoints.topic.replication.factor")
        nonsense = 0
        for record in self._log.news([0]):
            checkpoint = Checkpoint.read(record.key, record.value)
            if checkpoint is None:
                nonsense += 1
            else:
                self.known[checkpoint.group, checkpoint.tp] = checkpoint
        if nonsense:
            log.warning(
                "records that are no checkpoints: passed over",
                flow=self._flow.name,
                topic=self._log.topic,
                records=nonsense,
                fix="find out who else writes to this topic",
            )

    def _refresh_groups(self) -> None:
        now = time.monotonic()
        every_s = self._flow.refresh_groups_s
        if self._groups_at and (every_s is None or now < self._groups_at + every_s):
            return
        found = self._source.list_groups()
        self._groups = tuple(sorted(g for g in found if policy.accepts_group(self._flow, g)))
        self._groups_at = now

    def _committed(self) -> dict[str, dict[TopicPartition, Committed]]:
        """Of topics that the filter accepts. A group that cannot be asked is left out, and named."""
        wanted: dict[str, dict[TopicPartition, Committed]] = {}
        for group, offsets in self._source.group_offsets(self._groups).items() if self._groups else ():
            if isinstance(offsets, BrokerError):
                log.warning("group cannot be read", flow=self._flow.name, group=group, why=str(offsets))
                continue
            mine = {tp: at for tp, at in offsets.items() if policy.accepts_topic(self._flow, tp.topic)}
            if mine:
                wanted[group] = mine
        return wanted

    def _starts(self, committed: Mapping[str, Mapping[TopicPartition, Committed]]) -> dict[TopicPartition, int]:
        """The first offsets of the remote partitions concerned (invariant b)."""
        positions = self._positions.known
        concerned: Iterable[TopicPartition] = {
            tp for offsets in committed.values() for tp in offsets if tp in positions
        }
        remotes = [TopicPartition(policy.remote_topic(self._flow, tp.topic), tp.partition) for tp in concerned]
        if not remotes:
            return {}
        found = self._target.list_offsets(remotes, at="earliest", timeout_s=self._flow.admin_timeout_s)
        return {tp: at for tp, at in found.items() if not isinstance(at, HeliographError)}

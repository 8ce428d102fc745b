"""Checkpoints: each group's committed offsets on the source, and the very same records on the target.

In MM2's topic, byte for byte, so that Java's `translateOffsets` and every tool that reads it get the exact answer. For
topics that are divided over another number of partitions it is not exact: `sync.divided` says what it is.

Invariants:
  a. For one group and partition the downstream offset only grows, unless the group went back on the source itself, and
     that was not only said by a coordinator that had died (`sync.rewinds`).
  b. Downstream passes over no record that the group has not read, and is never before the target's first record: a
     group that is placed there reads on without a gap, and without its `auto.offset.reset` deciding.
  c. What is written is what was read back: the topic itself says where each group stands, also after a restart, also
     when another mirror writes to it.
  d. Of what others wrote, only what can be true counts: a checkpoint that is further on the target than its own offset
     leads to would place a group behind records it has not read. It is passed over, and ours is written after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Literal

import structlog

from heliograph import policy
from heliograph.batch import Record
from heliograph.errors import BrokerError, HeliographError
from heliograph.formats import Checkpoint
from heliograph.mirror.positions import Position
from heliograph.state.compacted import CompactedLog
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.state.strangers import Strangers
from heliograph.sync.divided import Divided
from heliograph.sync.rewinds import Rewinds
from heliograph.sync.windows import Latencies
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
        self._divided = Divided(flow, source, target, offsets)
        self._groups: tuple[str, ...] = ()
        self.groups: tuple[str, ...] = ()  # those that committed offsets of our topics
        self._groups_at = 0.0
        self._rewinds = Rewinds()
        self._strangers = Strangers(flow.name, self._log.topic)
        self._unjudged: list[tuple[int, Record]] = []  # of the topic, with their partitions
        self.known: dict[Key, Checkpoint] = {}  # the last of each, as the topic has it
        self.latencies = Latencies()  # from reading a group's offset to its checkpoint being in the log

    # ---------------------------------------------------------------- a round

    def emit(self) -> int:
        """Write what changed; how many."""
        self.ensure()
        self._unjudged += self._log.news()
        self._refresh_groups()
        read_at = time.monotonic()
        committed = self._committed()
        now_ms = time.time_ns() // 1_000_000
        # Positions first: the map is never behind them (its invariant a). The other way round the last run could be
        # taken for longer than it is, over a hole that the map did not tell of yet. And checkpoints before both: what
        # another mirror has just written may rest on positions that are as new.
        positions = dict(self._positions.catch_up())
        self._offsets.catch_up()
        self._judge(positions)
        starts = self._starts(committed)
        fresh = self._divided_ones(committed, positions, starts)
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

    def _divided_ones(
        self,
        committed: Mapping[str, Mapping[TopicPartition, Committed]],
        positions: Mapping[TopicPartition, Position],
        starts: Mapping[TopicPartition, int],
    ) -> list[Checkpoint]:
        """Of topics that are divided over another number of partitions."""
        found: list[Checkpoint] = []
        for name, topic in self._divided.look(positions).items() if committed else ():
            for group, offsets in committed.items():
                mine = {tp.partition: at for tp, at in offsets.items() if tp.topic == name}
                for place in self._divided.places(name, topic, mine) if mine else ():
                    downstream = max(place.downstream, starts.get(place.remote, 0))
                    found.append(Checkpoint(group, place.remote, place.upstream, downstream, ""))
        return [one for one in found if self._worth(one)]

    def _worth(self, new: Checkpoint) -> bool:
        """MM2's rule, and invariant a."""
        key = new.group, new.tp
        old = self.known.get(key)
        if old is None or new.upstream >= old.upstream:
            self._rewinds.none(key)
            return old is None or new.downstream > old.downstream
        return self._rewinds.believed(key, time.monotonic())

    # ---------------------------------------------------------------- the topic

    def ensure(self) -> None:
        if not self._log.partitions:
            self._log.ensure(1, self._flow.checkpoints_replication_factor, "checkpoints.topic.replication.factor")

    def _judge(self, positions: Mapping[TopicPartition, Position]) -> None:
        """What the topic says, if it can be true (invariants c and d)."""
        found = [(place, record, Checkpoint.read(record.key, record.value)) for place, record in self._unjudged]
        limits = self._limits({c for _, _, c in found if c is not None}, positions)
        for place, record, checkpoint in found:
            if checkpoint is None:
                whose = Checkpoint.read_key(record.key) if record.value is None else None
                if whose is None:
                    self._strangers.add(place, record.offset, "it is no checkpoint")
                else:
                    self.known.pop(whose, None)
            elif checkpoint in limits and checkpoint.downstream > limits[checkpoint]:
                self._strangers.add(place, record.offset, f"further than the offset of {checkpoint.group} leads")
                self.known.pop((checkpoint.group, checkpoint.tp), None)
            elif checkpoint in limits:
                self.known[checkpoint.group, checkpoint.tp] = checkpoint
        self._unjudged = []
        self._strangers.tell()

    def _limits(
        self, checkpoints: Iterable[Checkpoint], positions: Mapping[TopicPartition, Position]
    ) -> dict[Checkpoint, int]:
        """The furthest that each may be on the target; those of other groups and topics than ours are left out."""
        ours = {c: tp for c in checkpoints if (tp := self._concerns(c)) is not None}
        exact = {c: self._offsets.translate(tp, c.upstream, positions) for c, tp in ours.items()}
        # MM2 copied it, and its checkpoints are all that is known: they cannot lie behind the copy's end.
        ends = self._bounds({c.tp for c, limit in exact.items() if limit is None}, "latest")
        limits = {c: ends.get(c.tp, 0) if limit is None else limit for c, limit in exact.items()}
        # By invariant b it may be at the copy's beginning, wherever its offset leads.
        starts = self._bounds({c.tp for c, limit in limits.items() if c.downstream > limit}, "earliest")
        return {c: max(limit, starts.get(c.tp, 0)) for c, limit in limits.items()}

    def _concerns(self, checkpoint: Checkpoint) -> TopicPartition | None:
        """The source partition, if it is a group and a topic of ours."""
        names = policy.of(self._flow)
        topic = names.upstream_topic(checkpoint.tp.topic)
        if topic is None or names.topic_source(checkpoint.tp.topic) != self._flow.source.alias:
            return None
        ours = policy.accepts_topic(self._flow, topic) and policy.accepts_group(self._flow, checkpoint.group)
        return TopicPartition(topic, checkpoint.tp.partition) if ours else None

    # ---------------------------------------------------------------- what it needs

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
        self.groups = tuple(wanted)
        return wanted

    def _starts(self, committed: Mapping[str, Mapping[TopicPartition, Committed]]) -> dict[TopicPartition, int]:
        """The first offsets of the remote partitions concerned (invariant b)."""
        positions = self._positions.known
        concerned = {tp for offsets in committed.values() for tp in offsets if tp in positions}
        remotes = {
            remote
            for tp in concerned
            for remote, _ in positions[tp].parts(
                TopicPartition(policy.remote_topic(self._flow, tp.topic), tp.partition)
            )
        }
        return self._bounds(remotes, "earliest")

    def _bounds(self, remotes: set[TopicPartition], at: Literal["earliest", "latest"]) -> dict[TopicPartition, int]:
        """Of those that can be asked."""
        if not remotes:
            return {}
        found = self._target.list_offsets(sorted(remotes), at=at, timeout_s=self._flow.admin_timeout_s)
        return {tp: offset for tp, offset in found.items() if not isinstance(offset, HeliographError)}

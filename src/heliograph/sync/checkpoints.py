"""Checkpoints: each group's committed offsets on the source, and the very same records on the target.

In MM2's topic, key and value byte for byte, so that Java's `translateOffsets` and every tool that reads it get the
answer. Never a tombstone: Java's client fails on one. What is ours alone stands in record headers, which they ignore
(`sync.marks`). For topics that are divided over another number of partitions the answer is not exact: `sync.divided`
says what it is.

Invariants:
  a. For one group and partition the downstream offset only grows within a generation of the copy, unless the group went
     back on the source itself, and that was not only said by a coordinator that had died (`sync.rewinds`).
  b. Downstream passes over no record that the group has not read, and is never before the target's first record: a
     group that is placed there reads on without a gap, and without its `auto.offset.reset` deciding.
  c. What is written is what was read back: the topic itself says where each group stands, also after a restart, also
     when another mirror writes to it.
  d. Every checkpoint is judged again in every round, ours and those of others. One that is further on the target than
     its own offset leads, or that tells of a generation of the copy that is gone, would place a group behind records it
     has not read. It is withdrawn, and ours is written after it, however low; where nothing is known, the beginning of
     the copy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

import structlog

from heliograph import policy
from heliograph.batch import Record
from heliograph.errors import BrokerError, HeliographError, WireError
from heliograph.formats import Checkpoint
from heliograph.mirror.positions import Position
from heliograph.state.compacted import CompactedLog
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.state.strangers import Strangers
from heliograph.sync.divided import Divided
from heliograph.sync.marks import Mark, append, mark_of
from heliograph.sync.rewinds import Rewinds
from heliograph.sync.windows import Latencies
from heliograph.types import CHECKPOINTS_FACTOR, Flow, TopicPartition
from heliograph.wire import Client, Committed

log = structlog.get_logger()

Key = tuple[str, TopicPartition]
LIST_AGAIN_S = 60.0  # after a failure: the question itself waits for brokers that do not answer
WITHDRAWN = 4  # downstream offsets of a key that are remembered


class Checkpoints:
    def __init__(self, flow: Flow, source: Client, target: Client, offsets: OffsetMap, positions: PositionsLog) -> None:
        self._flow = flow
        self._source, self._target = source, target
        self._offsets, self._positions = offsets, positions
        self._log = CompactedLog(target, policy.of(flow).checkpoints_topic(flow.source.alias))
        self._divided = Divided(flow, source, target, offsets)
        self._groups: tuple[str, ...] = ()
        self.groups: tuple[str, ...] = ()  # those that committed offsets of our topics
        self._list_at = 0.0  # not before this moment; 0: they were never listed
        self._rewinds = Rewinds()
        self._strangers = Strangers(flow.name, self._log.topic)
        self._unjudged: list[tuple[int, Record]] = []  # of the topic, with their partitions
        self.known: dict[Key, Checkpoint] = {}  # the last of each, as the topic has it
        self._marks: dict[Key, Mark] = {}  # of those
        # Downstream offsets that were written for a group and do not count any more: a group on the target that stands
        # at one of them was placed there by a checkpoint (`sync.groups`).
        self.withdrawn: dict[Key, list[int]] = {}
        self.latencies = Latencies()  # from reading a group's offset to its checkpoint being in the log
        self._log.on_refold = self._forget

    def _forget(self) -> None:
        """The topic was recreated or lost its tail: it is read again from its start."""
        self._unjudged, self.known, self._marks = [], {}, {}

    # ---------------------------------------------------------------- a round

    def emit(self) -> int:
        """Write what changed; how many."""
        self.ensure()
        for one in self._log.news():
            self._unjudged.append(one)
        self._refresh_groups()
        read_at = time.monotonic()
        committed = self._committed()
        now_ms = time.time_ns() // 1_000_000
        # Positions first: the map is never behind them (its invariant a). The other way round the last run could be
        # taken for longer than it is, over a hole that the map did not tell of yet. And checkpoints before both: what
        # another mirror has just written may rest on positions that are as new.
        positions = dict(self._positions.catch_up())
        self._offsets.catch_up()
        void = self._judge(positions)
        starts = self._starts(committed)
        fresh = self._plain_ones(committed, positions, starts) | self._divided_ones(committed, positions, starts)
        fresh |= self._low_ones(void, fresh, starts)
        if fresh:
            self._append(fresh, now_ms)
            self.known.update(((c.group, c.tp), c) for c in fresh)
            self._marks.update(((c.group, c.tp), mark) for c, mark in fresh.items())
            self.latencies.note(((c.group, *c.tp) for c in fresh), round((time.monotonic() - read_at) * 1000))
        return len(fresh)

    def _append(self, fresh: Mapping[Checkpoint, Mark], now_ms: int) -> None:
        append(self._target, TopicPartition(self._log.topic, 0), fresh, now_ms)

    def _plain_ones(
        self,
        committed: Mapping[str, Mapping[TopicPartition, Committed]],
        positions: Mapping[TopicPartition, Position],
        starts: Mapping[TopicPartition, int],
    ) -> dict[Checkpoint, Mark]:
        found: dict[Checkpoint, Mark] = {}
        for group, offsets in committed.items():
            for tp, at in offsets.items():
                downstream = self._offsets.translate(tp, at.offset, positions)
                if downstream is None or self._nothing_copied(tp, positions[tp]):
                    continue
                remote = TopicPartition(policy.remote_topic(self._flow, tp.topic), tp.partition)
                place = max(downstream, starts.get(remote, 0))
                checkpoint = Checkpoint(group, remote, at.offset, place, at.metadata or "")
                mark = Mark({tp.partition: positions[tp].producer_id}, {tp.partition: at.offset})
                if self._worth(checkpoint, mark):
                    found[checkpoint] = mark
        return found

    def _nothing_copied(self, tp: TopicPartition, position: Position) -> bool:
        """MM2 writes no checkpoint before the first record is there, and neither do we."""
        older = self._offsets.generations(tp, position, tp.partition) - {position.producer_id}
        return position.sequence == 0 and not older

    def _divided_ones(
        self,
        committed: Mapping[str, Mapping[TopicPartition, Committed]],
        positions: Mapping[TopicPartition, Position],
        starts: Mapping[TopicPartition, int],
    ) -> dict[Checkpoint, Mark]:
        """Of topics that are divided over another number of partitions."""
        found: dict[Checkpoint, Mark] = {}
        for name, topic in self._divided.look(positions).items() if committed else ():
            for group, offsets in committed.items():
                mine = {tp.partition: at for tp, at in offsets.items() if tp.topic == name}
                upstreams = {p: at.offset for p, at in mine.items() if p in topic.positions}
                for place in self._divided.places(name, topic, mine) if mine else ():
                    downstream = max(place.downstream, starts.get(place.remote, 0))
                    checkpoint = Checkpoint(group, place.remote, place.upstream, downstream, "")
                    strands = {p: one.strands[place.remote.partition] for p, one in topic.positions.items()}
                    mark = Mark({p: one.producer_id for p, one in strands.items()}, upstreams, divided=True)
                    if self._worth(checkpoint, mark):
                        found[checkpoint] = mark
        return found

    def _low_ones(
        self,
        void: Iterable[Checkpoint],
        fresh: Mapping[Checkpoint, Mark],
        starts: Mapping[TopicPartition, int],
    ) -> dict[Checkpoint, Mark]:
        """In the place of those that were withdrawn and that nothing better is known of: the copy's beginning."""
        written = {(c.group, c.tp) for c in fresh}
        left = [c for c in void if (c.group, c.tp) not in written and (c.group, c.tp) not in self.known]
        known = {**starts, **self._bounds({c.tp for c in left} - starts.keys(), "earliest")}
        low = [replace(c, downstream=known[c.tp]) for c in left if c.tp in known]
        return {c: Mark() for c in low}

    def _worth(self, new: Checkpoint, mark: Mark) -> bool:
        """MM2's rule, and invariant a."""
        key = new.group, new.tp
        old, before = self.known.get(key), self._marks.get(key, Mark())
        back = old is not None and mark.went_back(new, before, old)
        if old is None or not back:
            self._rewinds.none(key)
            return old is None or new.downstream > old.downstream
        return self._rewinds.believed(key, time.monotonic())

    # ---------------------------------------------------------------- the topic

    def ensure(self) -> None:
        if not self._log.partitions:
            self._log.ensure(1, self._flow.factor(CHECKPOINTS_FACTOR))

    def _judge(self, positions: Mapping[TopicPartition, Position]) -> list[Checkpoint]:
        """What the topic says, if it can be true (invariants c and d). Those that were withdrawn."""
        found: dict[Key, tuple[Checkpoint, Mark, tuple[int, int] | None]] = {
            key: (checkpoint, self._marks.get(key, Mark()), None) for key, checkpoint in self.known.items()
        }
        read: list[tuple[Checkpoint, tuple[int, int]]] = []
        replaced: dict[Key, list[tuple[Checkpoint, Mark]]] = {}  # by lower ones
        for place, record in self._unjudged:
            checkpoint = Checkpoint.read(record.key, record.value)
            whose = Checkpoint.read_key(record.key)
            if checkpoint is not None:
                key, at = (checkpoint.group, checkpoint.tp), (place, record.offset)
                read.append((checkpoint, at))
                before = [*replaced.get(key, ()), *([found[key][:2]] if key in found else [])]
                replaced[key] = [one for one in before if one[0].downstream > checkpoint.downstream]
                found[key] = checkpoint, mark_of(record.headers), at
            elif record.value is None and whose is not None:
                found.pop(whose, None)
                self.known.pop(whose, None)
            else:
                self._strangers.add(place, record.offset, "it is no checkpoint")
        self._unjudged = []
        ours = {key: (*one, tp) for key, one in found.items() if (tp := self._concerns(one[0])) is not None}
        last = {one[2] for one in ours.values()}
        earlier = [(c, at, tp) for c, at in read if at not in last and (tp := self._concerns(c)) is not None]
        asked = {c: tp for c, _, _, tp in ours.values()} | {c: tp for c, _, tp in earlier}
        limits = self._limits(asked, positions)
        for checkpoint, at, _ in earlier:  # a later record of its key counts; a false one is named all the same
            if checkpoint.downstream > limits[checkpoint]:
                self._strangers.add(*at, f"further than the offset of {checkpoint.group} leads")
        void: list[Checkpoint] = []
        for key, (checkpoint, mark, place_read, tp) in ours.items():
            gone = self._is_over(mark, tp, checkpoint.tp, positions)
            if gone or checkpoint.downstream > limits[checkpoint]:
                self._withdraw(key, checkpoint, place_read, gone=gone)
                void.append(checkpoint)
            else:
                self.known[key], self._marks[key] = checkpoint, mark
        self._remember(replaced, positions)
        self._strangers.tell()
        return void

    def _remember(
        self, replaced: Mapping[Key, list[tuple[Checkpoint, Mark]]], positions: Mapping[TopicPartition, Position]
    ) -> None:
        """Checkpoints that another process withdrew, and maybe ended before the groups were set."""
        old = [(key, *one, tp) for key, some in replaced.items() for one in some if (tp := self._concerns(one[0]))]
        limits = self._limits({c: tp for _, c, _, tp in old}, positions)
        for key, checkpoint, mark, tp in old:
            if self._is_over(mark, tp, checkpoint.tp, positions) or checkpoint.downstream > limits[checkpoint]:
                self.withdrawn[key] = [*self.withdrawn.get(key, ()), checkpoint.downstream][-WITHDRAWN:]

    def _withdraw(self, key: Key, checkpoint: Checkpoint, read: tuple[int, int] | None, *, gone: bool) -> None:
        """`read`: where in the topic it stands, if that is news."""
        self.known.pop(key, None)
        self._marks.pop(key, None)
        self._rewinds.none(key)
        self.withdrawn[key] = [*self.withdrawn.get(key, ()), checkpoint.downstream][-WITHDRAWN:]
        if read is not None and not gone:
            self._strangers.add(*read, f"further than the offset of {checkpoint.group} leads")
            return
        log.warning(
            "checkpoint withdrawn: the copy it told of is gone",
            flow=self._flow.name,
            group=checkpoint.group,
            partition=str(checkpoint.tp),
            upstream=checkpoint.upstream,
            downstream=checkpoint.downstream,
        )

    def _is_over(
        self, mark: Mark, tp: TopicPartition, remote: TopicPartition, positions: Mapping[TopicPartition, Position]
    ) -> bool:
        """Whether the checkpoint tells of a generation of the copy that is gone. MM2's and 0.1's say nothing of it."""
        for p, producer in mark.producers.items():
            source = TopicPartition(tp.topic, p)
            position = positions.get(source)
            if position is None or not position.claimed:
                continue  # MM2 has it, or nothing: what was copied may well be there
            if producer not in self._offsets.generations(source, position, remote.partition):
                return True
        return False

    def _limits(
        self, checkpoints: Mapping[Checkpoint, TopicPartition], positions: Mapping[TopicPartition, Position]
    ) -> dict[Checkpoint, int]:
        """The furthest that each may be on the target."""
        exact = {c: self._offsets.limit(tp, c.upstream, positions) for c, tp in checkpoints.items()}
        # MM2 copied it, and its checkpoints are all that is known: they cannot lie behind the copy's end.
        ends = self._bounds({c.tp for c, limit in exact.items() if limit is None}, "latest")
        limits = {c: ends.get(c.tp, c.downstream) if limit is None else limit for c, limit in exact.items()}
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
        """Which groups there are. While a broker cannot be asked its groups are not known, and the last answer stands:
        a group that was deleted has no offsets, and one that is new waits for the next round."""
        now, every_s = time.monotonic(), self._flow.refresh_groups_s
        if now < self._list_at:
            return
        try:
            found = self._source.list_groups()
        except WireError as error:
            if not self._list_at:
                raise  # no answer stands yet
            self._list_at = now + min(every_s or LIST_AGAIN_S, LIST_AGAIN_S)
            log.warning(
                "groups cannot be listed, going on with those known",
                flow=self._flow.name,
                cluster=self._flow.source.alias,
                groups=len(self._groups),
                why=str(error),
                fix="new groups get checkpoints when every broker of the source answers again",
            )
            return
        self._groups = tuple(sorted(g for g in found if policy.accepts_group(self._flow, g)))
        self._list_at = math.inf if every_s is None else now + every_s

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

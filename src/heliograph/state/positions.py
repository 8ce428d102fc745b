"""The positions topic of a flow, read to its end again and again, and the claims of rule G.

Owned by the coordinator. Tasks only append to the topic (`mirror.task`). Records that make no sense are named and
passed over; an offset that can be read and cannot be is taken back by `doubt`.

Invariants:
  a. `known` is what the topic says: the fold of a complete read. After a refold (the topic was recreated, or lost its
     tail) the old fold stays until the new one is complete.
  b. What the topic has lost and this process has read is written again before `known` changes: a partition without its
     position would be claimed anew and copied twice. Records that came after the loss stand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

import structlog

from heliograph import policy
from heliograph.batch import Record
from heliograph.mirror.positions import (
    Position,
    decode,
    encode,
    fold,
    furthest,
    is_for_others,
    join,
    key_of,
    partition_for,
    partition_of_key,
    strands_of,
)
from heliograph.state.compacted import BATCH_RECORDS, CompactedLog
from heliograph.state.fence import Fences
from heliograph.state.strangers import Strangers
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client

log = structlog.get_logger()

REMEMBERED = 8  # positions of an era: MM2 adds one a minute, and all but the last few will not be needed


class PositionsLog:
    def __init__(self, client: Client, flow: Flow) -> None:
        self._client = client
        self._flow = flow
        self._alias, self._under = flow.source.alias, flow.positions_under
        self._log = CompactedLog(client, flow.positions_topic or policy.positions_topic(self._alias))
        self._strangers = Strangers(flow.name, self._log.topic)
        self.known: dict[TopicPartition, Position] = {}
        # Of those whose last record has no producer id: this and the ones before, back to the last claimed one.
        self._era: dict[TopicPartition, list[Heard]] = {}
        self._refolded: Folded | None = None  # a refold that is not complete yet
        self._log.on_refold = self._begin_refold
        self._fences = Fences(self._alias, self._under)
        self._overtaken: set[TopicPartition] = set()  # the last record of its key is void
        self._lock = threading.RLock()  # the planner's thread, and those of tasks that start again

    @property
    def topic(self) -> str:
        return self._log.topic

    @property
    def partitions(self) -> int:
        return self._log.partitions

    def ensure(self) -> None:
        self._log.ensure_storage(self._flow)

    def find(self) -> bool:
        """Whether the topic is there; nothing is made."""
        return bool(self._log.count())

    def catch_up(self) -> Mapping[TopicPartition, Position]:
        """Read everything new and fold it in."""
        with self._lock:
            self._read()
            while (refolded := self._refolded) is not None:
                self._restore(self._lost(refolded))
                self._read()
                if self._refolded is refolded:  # complete, with what was written again
                    self.known, self._era, self._refolded = refolded.known, refolded.era, None
            return self.known

    def _read(self) -> None:
        for partition, record in self._log.news():
            self._fold(partition, record)
        self._strangers.tell()

    def _begin_refold(self) -> None:
        self._refolded = Folded()

    def _lost(self, refolded: Folded) -> list[tuple[TopicPartition, Position]]:
        """Invariant b: records to write. A claim of a later era than the topic has needs the beginning of its era."""
        lost: list[tuple[TopicPartition, Position]] = []
        for tp, before in self.known.items():
            now = refolded.known.get(tp)
            if tp in refolded.changed or (now is not None and _ids(now) == _ids(before) and before.claimed):
                continue  # of one producer id all positions are true (invariant c of positions)
            if now == before:
                continue
            if now is not None and before.claimed:
                lost.append((tp, Position(before.next_offset)))
            lost.append((tp, before))
        return lost

    def _restore(self, lost: Sequence[tuple[TopicPartition, Position]]) -> None:
        if not lost:
            return
        log.warning(
            "the positions topic was recreated or lost its tail: what it lost is written again",
            flow=self._flow.name,
            topic=self._log.topic,
            partitions=len({tp for tp, _ in lost}),
            fix="to start over, stop the flow and use `heliograph offsets reset`",
        )
        for tp, position in lost:  # before the position: what a task that slept writes stays void for every reader
            if (fence := self._fences.pair(tp, None, position)) is not None:
                self._log.append(partition_for(key_of(self._alias, tp, self._under[0]), self.partitions), [fence])
        self._append(lost)

    def learn(
        self,
        tp: TopicPartition,
        next_offset: int,
        sequence: int,
        target: int,
        *,
        producer_id: int,
        strands: str = "",
        run: tuple[int, int] = (-1, -1),
    ) -> bool:
        """A task's own last word, which it has also written: saves reading it back. One of an era that is over (the
        partition began anew meanwhile) says nothing about this one; whether it is not. `strands`: of a divided one, as
        the position has them; `run`: of the offset map, as invariant i of positions has it."""
        with self._lock:
            known = self.known.get(tp)
            if known is None or not known.claimed or known.producer_id != producer_id:
                return False
            if strands or known.strands:
                said = strands_of(strands, known.topic_id)
                if len(said) != len(known.strands) and not (known.targets and 0 < len(said) < len(known.strands)):
                    return False
                self.known[tp] = furthest(known, join(said, known.targets[: len(said)]))
            elif next_offset >= known.next_offset:
                self.known[tp] = replace(
                    known, next_offset=next_offset, sequence=sequence, target=target, run=run[0], run_end=run[1]
                )
            return True

    def claim(
        self,
        wanted: Mapping[TopicPartition, Wanted],
        prepare: Callable[[Mapping[TopicPartition, Position]], None] = lambda claims: None,
    ) -> None:
        """Rule G, for partitions without a claimed position. `prepare` gets the claims before they are written."""
        if not wanted:
            return
        ids = iter(self._client.init_producer_ids(sum(one.fresh for one in wanted.values())))
        claims: dict[TopicPartition, Position] = {}
        for tp, one in wanted.items():
            places = zip(one.starts, one.ends, one.kept or (None,) * len(one.ends), strict=True)
            parts = [
                Position(start, *next(ids), 0, one.topic_id, end, run=-1)
                if kept is None
                else replace(kept, topic_id=one.topic_id)
                for start, end, kept in places
            ]
            claims[tp] = join(parts, one.targets) if one.divided else parts[0]
        prepare(claims)
        self.write(claims)
        self.catch_up()
        lost = {tp: self.known[tp] for tp, mine in claims.items() if _ids(self.known[tp]) != _ids(mine)}
        self.write(lost)  # invariant d of positions: the winner's claim is the last of the two in the log

    def extend(self, wanted: Mapping[TopicPartition, Mapping[TopicPartition, int]]) -> None:
        """Rule G for targets that were found in the records of these partitions, each with the end of its log. They
        begin where the anchor stands, which is before the first of their records."""
        if not any(wanted.values()):
            return
        ids = iter(self._client.init_producer_ids(sum(map(len, wanted.values()))))
        claims: dict[TopicPartition, Position] = {}
        for tp, ends in wanted.items():
            known = self.known[tp]
            anchor = known.strands[0]
            fresh = [Position(anchor.next_offset, *next(ids), 0, anchor.topic_id, end) for end in ends.values()]
            claims[tp] = join([*known.strands, *fresh], [*known.targets, *ends])
        self.write(claims)
        self.catch_up()
        self.write({tp: self.known[tp] for tp in claims if self.known[tp] != claims[tp]})  # invariant d of positions

    def write(self, entries: Mapping[TopicPartition, Position | None]) -> None:
        """None: it has none any more."""
        self._append(list(entries.items()))

    def _append(self, entries: Iterable[tuple[TopicPartition, Position | None]]) -> None:
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for tp, position in entries:
            key = key_of(self._alias, tp, self._under[0])
            value = None if position is None else encode(position)
            by_partition.setdefault(partition_for(key, self.partitions), []).append((key, value))
        for partition, pairs in by_partition.items():
            self._log.append(partition, pairs)

    def set_by_hand(self, entries: Mapping[TopicPartition, Position | None]) -> None:
        """An operator's change, read to the end before: each behind its fence, in one batch (`state.fence`)."""
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for tp, position in entries.items():
            key = key_of(self._alias, tp, self._under[0])
            partition = partition_for(key, self.partitions)
            pairs = by_partition.setdefault(partition, [])
            if (fence := self.fence(tp, position)) is not None:
                pairs.append(fence)
            pairs.append((key, None if position is None else encode(position)))
            if len(pairs) > BATCH_RECORDS - 2:  # a fence and its position are never parted
                self._log.append(partition, by_partition.pop(partition))
        for partition, pairs in by_partition.items():
            self._log.append(partition, pairs)

    def fence(self, tp: TopicPartition, position: Position | None) -> tuple[bytes, bytes] | None:
        """To write before this position is set by hand; None: nothing has to be fenced off."""
        return self._fences.pair(tp, self.known.get(tp), position)

    def repair(self) -> None:
        """Invariant c of `state.fence`. For the process that copies the flow."""
        with self._lock:
            counts = {tp: self.known.get(tp) for tp in self._overtaken}
            lost = {tp: position for tp, position in counts.items() if not self._fences.restores(tp, position)}
            self.write(lost)
            self._overtaken.clear()

    def doubt(self, ends: Mapping[TopicPartition, tuple[int, bool]]) -> None:
        """These positions without a producer id lie behind the end of their source (given, with whether nothing was
        ever copied): whoever wrote them, they are none. The last one before that can be true counts again. Where there
        is none the partition has no position if nothing was copied; otherwise it stays as it is, since only a person
        can say what is on the target."""
        claimed: dict[TopicPartition, Position] = {}
        with self._lock:
            for tp, (end, untouched) in ends.items():
                heard = self._era.get(tp, [])
                true = [one for one in heard if one.position.next_offset <= end]
                if not true and not untouched:
                    continue
                for one in heard[len(true) :]:
                    self._strangers.add(one.partition, one.offset, f"a position of {tp} behind the end of its source")
                self._era[tp] = true
                if not true:
                    self.known.pop(tp, None)
                elif true[-1].position.claimed:
                    claimed[tp] = true[-1].position
                else:
                    self.known[tp] = true[-1].position
            self._strangers.tell()
        self.write(claimed)
        self.catch_up()

    def _fold(self, partition: int, record: Record) -> None:
        into = self._refolded
        known, era = (self.known, self._era) if into is None else (into.known, into.era)
        reread = self._log.is_reread(partition, record.offset)
        tp = partition_of_key(record.key, self._alias, self._under)
        if tp is None:
            self._fences.hear(record.key, record.value, known)
            if not reread and not is_for_others(record.key, self._alias, self._under):
                self._strangers.add(partition, record.offset, "its key is no connector's")
            return
        if record.value is not None and decode(record.value) is None:
            if not reread:
                self._strangers.add(partition, record.offset, f"it is no position of {tp}")
            return
        if into is not None and not reread:
            into.changed.add(tp)
        before = known.get(tp)
        read = decode(record.value)
        void = read is not None and self._fences.voids(tp, read)
        if read is not None and void:
            self._overtaken.add(tp)
            position = self._fences.instead(tp, read, before)
        else:
            self._overtaken.discard(tp)
            position = fold(before, record.value)
        if position is None:
            known.pop(tp, None)
        else:
            known[tp] = position
        if position is None or position.claimed:
            era.pop(tp, None)
        else:
            era[tp] = _remembered(era.get(tp), before, Heard(position, partition, record.offset))


def _remembered(heard: list[Heard] | None, before: Position | None, new: Heard) -> list[Heard]:
    """Rising: what is not before a newer one will never be gone back to."""
    heard = heard or ([Heard(before, -1, -1)] if before is not None else [])
    kept = [one for one in heard if one.position.next_offset < new.position.next_offset]
    return [*kept, new][-REMEMBERED:]


class Wanted(NamedTuple):
    """A claim to be made, for each of its remote partitions: where it would start, and where that ends now: what the
    flow appends will lie behind it."""

    starts: tuple[int, ...]
    topic_id: UUID | None
    ends: tuple[int, ...]
    divided: bool = False
    targets: tuple[TopicPartition, ...] = ()
    kept: tuple[Position | None, ...] = ()  # of each, what is left as it is (invariant h of positions); empty: nothing

    @property
    def fresh(self) -> int:
        """Producer ids that it takes."""
        return len(self.ends) - sum(one is not None for one in self.kept)


def _ids(position: Position) -> list[int]:
    return [one.producer_id for one in (position, *position.strands)]


class Heard(NamedTuple):
    """A position, and where in the topic it stands."""

    position: Position
    partition: int
    offset: int


@dataclass(slots=True)
class Folded:
    """The topic from its start, while it is read again. `changed`: those with records that were not read before."""

    known: dict[TopicPartition, Position] = field(default_factory=dict)
    era: dict[TopicPartition, list[Heard]] = field(default_factory=dict)
    changed: set[TopicPartition] = field(default_factory=set)

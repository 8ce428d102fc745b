"""The offset map of a flow, read back: where the target has the record at a source offset.

Owned by the coordinator; tasks append to the topic (`mirror.task`). Answers from what is durable only: the map's
topic and the positions, which never run ahead of it. A run that lies behind the end of its remote partition was not
written by a task of ours: tasks write down only what was acknowledged.

Bounded: at most TOTAL_RUNS are held in memory by any reader (invariant c of `mirror.runs`), and the coordinator of a
flow that copies drops from the topic what it dropped itself, and what lies before the target's log start (`trim`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec
import structlog

from heliograph import policy
from heliograph.errors import BrokerError
from heliograph.mirror import offsetmap, positions
from heliograph.mirror.offsetmap import HEADER, OF_0_1, Generation, Segment, Span, Subject
from heliograph.mirror.positions import Position
from heliograph.state.compacted import CompactedLog
from heliograph.state.generations import Partition, Stored
from heliograph.state.strangers import Strangers
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client
from heliograph.wire.codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)

log = structlog.get_logger()

JUDGE_S = 2.0  # planning waits for it; a partition that does not answer within this proves nothing
# A copy that is not visible for so long is not there. Before that a broker that starts, or metadata that lags, may hide
# it: a segment that was dismissed would be missing until the process ends.
KEEP_S = 30.0
JUDGED_AT_ONCE = 200  # records: up to a thousand runs each are held in memory until their partition's end is known
TOTAL_RUNS = 2_500_000  # of all partitions, 24 bytes each: 60 MB
LEAST_RUNS = 256  # of a partition, however many there are
TRIM_EVERY_S = 60.0
APPENDED_AT_ONCE = 256 << 10  # bytes of records in a batch: a quarter of the default of `max.message.bytes`


class Unjudged(NamedTuple):
    """A record of the topic whose runs reach further than we know their remote partition to."""

    partition: int
    offset: int
    segment: Segment


class Claimed(NamedTuple):
    """A producer id is claimed: it copies from the source offset `start`, behind `end`, into the remote topic with this
    id. `fresh`: nothing of the source partition was copied before. `source_end`: where the source partition ends, or -1
    if that is not known."""

    subject: Subject
    start: int
    end: int
    copy: UUID | None
    fresh: bool = False
    source_end: int = -1


class OffsetMap:
    def __init__(self, client: Client, flow: Flow) -> None:
        self._flow = flow
        self._client = client
        self._log = CompactedLog(client, policy.offset_map_topic(flow.source.alias))
        self._partitions: dict[Subject, Partition] = {}  # by subjects without a producer id
        self._limit = TOTAL_RUNS  # of one generation
        self._count = self._counted = 1  # generations: now, and when the limit was set
        self._lock = threading.RLock()
        self._ends: dict[TopicPartition, int] = {}  # of remote partitions, as last asked for
        self._unjudged: list[Unjudged] = []
        self._kept = 0  # of them: those whose copy was not visible when it was last asked for
        self._hidden: dict[TopicPartition, float] = {}  # copies that are not visible, and since when (monotonic)
        self._strangers = Strangers(flow.name, self._log.topic)
        self._log.on_refold = self._forget

    def _forget(self) -> None:
        """The topic was recreated or lost its tail: it is read again from its start."""
        self._partitions, self._unjudged, self._kept = {}, [], 0

    @property
    def topic(self) -> str:
        """Empty: there is none."""
        return self._log.topic if self._log.partitions else ""

    @property
    def partitions(self) -> int:
        return self._log.partitions

    def ensure(self) -> None:
        flow = self._flow
        if flow.staged:  # no group's offsets are translated by it
            return
        try:
            self._log.ensure_storage(flow)
        except BrokerError as error:
            if error.code not in (TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED):
                raise
            # An MM2's principal may be allowed just MM2's topics. Copying goes on; groups far behind stay untranslated.
            log.warning(
                "no offset map: offsets of groups that are behind cannot be translated",
                flow=flow.name,
                topic=self._log.topic,
                why=str(error),
                fix=f"in {flow.target.alias}, allow this principal CREATE, DESCRIBE, READ and WRITE on this topic",
            )

    def catch_up(self) -> None:
        if not self._log.partitions:
            return
        with self._lock:
            for partition, record in self._log.news():
                segment = offsetmap.read(record.key, record.value, self._flow.source.alias)
                if segment is None:
                    self._strangers.add(partition, record.offset, "it is no run of offsets")
                    continue
                self._take(Unjudged(partition, record.offset, segment))
                if len(self._unjudged) - self._kept >= JUDGED_AT_ONCE:
                    self._judge()
            self._judge()
            self._thin()
            self._strangers.tell()

    def _take(self, one: Unjudged) -> None:
        """At once if it can be true; behind one that waits it waits too, since of two that contradict each other the
        later one counts."""
        subject = one.segment.subject
        waits = any(subject == other.segment.subject for other in self._unjudged)
        if not waits and _reach(one.segment.spans) <= self._ends.get(self._copy_of(subject), 0):
            self._add(one.segment)
        else:
            self._unjudged.append(one)

    def _add(self, segment: Segment) -> None:
        partition = self._partitions.setdefault(_whole(segment.subject), Partition())
        if segment.subject.producer not in partition.stored:
            self._count += 1
            if self._count >= 2 * self._counted:
                self._thin()
        stored = partition.of(segment.subject.producer)
        stored.take(segment)
        stored.runs.thin(self._limit)
        if stored.empty:
            del partition.stored[segment.subject.producer]

    def _thin(self) -> None:
        """Each generation gets its share of what may be held."""
        self._count = self._counted = max(sum(len(one.stored) for one in self._partitions.values()), 1)
        self._limit = max(TOTAL_RUNS // self._count, LEAST_RUNS)
        for partition in self._partitions.values():
            for stored in partition.stored.values():
                stored.runs.thin(self._limit)

    def _judge(self) -> None:
        if not self._unjudged:
            return
        remotes = {self._copy_of(one.segment.subject) for one in self._unjudged}
        found = self._client.list_offsets(list(remotes), at="latest", timeout_s=JUDGE_S)
        # Where there is no copy there are no runs, unless who copies is another and may call it otherwise. One that has
        # just no leader proves nothing against them.
        ours = self._flow.copies
        ends = {r: end if isinstance(end, int) else _no_answer(end, nothing=ours) for r, end in found.items()}
        self._ends |= {remote: end for remote, end in ends.items() if end < positions.OFFSETS}
        unjudged, self._unjudged = self._unjudged, []
        for one in unjudged:
            subject = one.segment.subject
            copy = self._copy_of(subject)
            if _reach(one.segment.spans) <= ends[copy]:
                self._add(one.segment)
            elif self._may_appear(copy, visible=isinstance(found[copy], int)):
                self._unjudged.append(one)
            else:
                self._strangers.add(one.partition, one.offset, f"a run behind the end of {subject.tp}'s copy")
        self._kept = len(self._unjudged)

    def _may_appear(self, copy: TopicPartition, *, visible: bool) -> bool:
        now = time.monotonic()
        if visible:
            self._hidden.pop(copy, None)
            return False
        return now - self._hidden.setdefault(copy, now) < KEEP_S

    def _copy_of(self, subject: Subject) -> TopicPartition:
        partition = subject.strand if subject.strand >= 0 else subject.tp.partition
        return TopicPartition(policy.remote_topic(self._flow, subject.tp.topic), partition)

    # ---------------------------------------------------------------- what tasks and reviews ask

    def last_run(self, tp: TopicPartition, position: Position) -> Span | None:
        """What the map of this generation ends with."""
        with self._lock:
            partition = self._partition(tp, position)
            partition.extend(position)
            own = partition.stored.get(position.producer_id)
            return own.runs.last if own is not None else None

    def last_point(self, tp: TopicPartition, strand: int, topic_id: UUID | None, producer: int) -> Span | None:
        with self._lock:
            partition = self._partitions.get(Subject(tp, topic_id, strand))
            own = partition.stored.get(producer) if partition is not None else None
            return own.runs.last if own is not None else None

    def find(self) -> bool:
        """Whether the topic is there; nothing is made."""
        return bool(self._log.count())

    def spans(self, tp: TopicPartition, position: Position) -> list[Span]:
        """Every run of this generation from the offset on from which none was dropped."""
        with self._lock:
            partition = self._partition(tp, position)
            partition.extend(position)
            producer = OF_0_1 if position.run is None else position.producer_id
            own = partition.stored.get(producer)
            return own.runs.exact() if own is not None else []

    def _partition(self, tp: TopicPartition, position: Position) -> Partition:
        return self._partitions.get(Subject(tp, position.topic_id)) or Partition()

    # ---------------------------------------------------------------- generations

    def begin(self, claims: Sequence[Claimed]) -> None:
        """These producer ids are about to be claimed. What the map has of copies that are gone is removed. Where this
        cannot be written the generation has no header, and no older one counts."""
        if not self._log.partitions:
            return
        with self._lock:
            beside: dict[TopicPartition, list[Subject]] = {}
            for known in self._partitions:
                beside.setdefault(known.tp, []).append(known)
            made = [(one, *self._made(one, beside.get(one.subject.tp, []))) for one in claims]
            kept = [segment for one, generation, _ in made for segment in self._last_runs(one.subject, generation)]
            self._append(
                (one.subject.tp, pair)
                for one, generation, void in made
                for pair in (
                    *((self._key(old, first), None) for old in void for first in self._stored(old).keys),
                    (self._key(one.subject, HEADER), offsetmap.encode_generation(generation)),
                )
            )
            self._append((one.subject.tp, (self._key(one.subject, one.first), _value(one))) for one in kept)
            for one, generation, void in made:
                for old in void:
                    self._partitions[_whole(old)].stored.pop(old.producer, None)
                partition = self._partitions.setdefault(_whole(one.subject), Partition())
                partition.of(one.subject.producer).generation = generation
                self._ends.pop(self._copy_of(one.subject), None)
                if void:
                    self._say_void(one.subject)
            for segment in kept:
                self._add(segment)

    def _last_runs(self, subject: Subject, generation: Generation) -> list[Segment]:
        """Of the generations it follows, as long as positions said they are: those positions are written over now."""
        stored = (self._partitions.get(_whole(subject)) or Partition()).stored
        last = [(pid, run) for pid in generation.follows if pid in stored and (run := stored[pid].runs.last)]
        return [Segment(subject._replace(producer=pid), [run], run.source) for pid, run in last]

    def _made(self, claim: Claimed, beside: list[Subject]) -> tuple[Generation, list[Subject]]:
        """The generation, and those whose place it takes: of its strand if they are gone, of the whole if it was not
        divided or is not any more, and of source topics of that name that were deleted."""
        subject = claim.subject
        partition = self._partitions.get(_whole(subject)) or Partition()
        follows = partition.still_true(subject.producer, claim.end, claim.copy)
        kept = {subject.producer, *follows}
        void = []
        for one in beside:
            other = one.strand != subject.strand
            if other and one.strand >= 0 <= subject.strand and one.topic_id == subject.topic_id:
                continue  # a strand beside it
            replaced = other or one.topic_id != subject.topic_id
            stored = self._partitions[one].stored
            void += [one._replace(producer=pid) for pid in stored if replaced or pid not in kept]
        made = Generation(
            claim.start, claim.end, str(claim.copy or ""), follows, claim.fresh, source_end=claim.source_end
        )
        return made, void

    def _say_void(self, subject: Subject) -> None:
        log.warning(
            "offset map begins again: the copy that it told of is gone",
            flow=self._flow.name,
            partition=str(subject.tp),
            remote=str(self._copy_of(subject)),
        )

    def adopt(self, claims: Sequence[tuple[Subject, Position, UUID | None]]) -> None:
        """Generations that 0.1 claimed get their headers, and their last runs if these are sure to reach to the
        position (of the strand, if the subject is one's). With each, the id of the remote topic."""
        if not self._log.partitions:
            return
        with self._lock:
            made = [one for claim in claims for one in self._adopted(*claim)]
            self._append((one.subject.tp, (self._key(one.subject, one.first), _value(one))) for one in made)
            for one in made:
                self._add(one)

    def _adopted(self, subject: Subject, position: Position, copy: UUID | None) -> list[Segment]:
        partition = self._partitions.get(_whole(subject)) or Partition()
        if partition.generation(subject.producer) is not None:
            return []
        start, end, spans = position.next_offset, max(position.target, 0), []
        if subject.strand < 0:
            partition.extend(position)
            last = partition.stored[OF_0_1].runs.last if OF_0_1 in partition.stored else None
            if last is not None and last.target + last.length == position.target:
                start, end, spans = last.source, last.target, [last]
        header = Segment(subject, [], HEADER, Generation(start, end, str(copy or ""), [OF_0_1]))
        return [header, Segment(subject, spans, start)] if spans else [header]

    def _stored(self, subject: Subject) -> Stored:
        return self._partitions[_whole(subject)].stored[subject.producer]

    # ---------------------------------------------------------------- translation

    def translate(self, tp: TopicPartition, offset: int, known: Mapping[TopicPartition, Position]) -> int | None:
        """Where the target has the first record at or after this source offset, or an offset before it where runs were
        dropped or the stretch was not copied by us. None: not known."""
        position = known.get(tp)
        if position is None or position.strands:
            return None
        if position.target >= 0 and position.claimed and offset >= position.next_offset:
            return position.target  # all that is counted lies before it, and all that comes behind it
        with self._lock:
            partition = self._partition(tp, position)
            partition.extend(position)
            return partition.floor(offset, position) if position.claimed else None

    def limit(self, tp: TopicPartition, offset: int, known: Mapping[TopicPartition, Position]) -> int | None:
        """Where that record lies at the furthest. None: not known."""
        position = known.get(tp)
        if position is None or position.strands or not position.claimed:
            return None
        if position.target >= 0 and offset >= position.next_offset:
            return position.target
        with self._lock:
            partition = self._partition(tp, position)
            partition.extend(position)
            found = partition.ceiling(offset, position)
        return found if found is not None or position.target < 0 else position.target

    def translate_strand(self, tp: TopicPartition, strand: int, offset: int, position: Position) -> int | None:
        """Before which offset of a divided topic's target partition no record lies that the source partition has at
        this offset or behind it: as far as that is known. None: nothing is."""
        own = position.strands[strand]
        with self._lock:
            partition = self._partitions.get(Subject(tp, position.topic_id, strand)) or Partition()
            began = partition.generation(own.producer_id)
            known = partition.behind(offset, own.producer_id, of_0_1=position.run is None)
        if own.target >= 0 and offset >= own.next_offset:
            return max(known or 0, own.target)  # all its records that are counted lie before it
        if own.target >= 0 and own.sequence == 0 and began is not None and (offset >= began.start or began.fresh):
            return max(known or 0, own.target)  # none is counted, and what comes lies behind where the copy began
        return known

    def generations(self, tp: TopicPartition, position: Position, remote: int) -> frozenset[int]:
        """The producer ids whose records in this remote partition are still there: the position's own, and older
        ones."""
        divided = bool(position.strands) and not position.targets and remote < len(position.strands)
        own = position.strands[remote] if divided else position
        with self._lock:
            partition = self._partitions.get(Subject(tp, position.topic_id, remote if divided else -1)) or Partition()
            generation = partition.generation(own.producer_id)
        return frozenset([own.producer_id, *(generation.follows if generation is not None else ())])

    # ---------------------------------------------------------------- the bound

    def trim(self) -> None:
        """Drop what no translation can need, in memory and from the topic. For the one process that owns the flow."""
        self.catch_up()
        with self._lock:
            remotes = {one: self._copy_of(one) for one in self._partitions}
        if not remotes:
            return
        starts = self._client.list_offsets(list(set(remotes.values())), at="earliest", timeout_s=JUDGE_S)
        with self._lock:
            for subject, remote in remotes.items():
                partition, start = self._partitions.get(subject), starts[remote]
                for producer, stored in list(partition.stored.items()) if partition is not None else ():
                    if isinstance(start, int):
                        stored.runs.trim(start)
                    if stored.scattered:
                        self._rewrite(subject._replace(producer=producer), stored)

    def _rewrite(self, subject: Subject, stored: Stored) -> None:
        """Fewer segments. Tombstones first: whoever reads them drops runs, and gets those that stay from what follows.
        A process that dies in between leaves a map that is less exact."""
        new = stored.rewrite()
        pairs: list[tuple[bytes, bytes | None]] = [(self._key(subject, first), None) for first in new.removed]
        pairs += [(self._key(subject, one[0].source), offsetmap.encode(one)) for one in new.segments]
        generation = stored.generation
        if generation is not None:
            generation = msgspec.structs.replace(generation, exact=stored.runs.exact_from)
            pairs.append((self._key(subject, HEADER), offsetmap.encode_generation(generation)))
        self._append((subject.tp, pair) for pair in pairs)
        stored.firsts, stored.generation = new.firsts, generation

    def _key(self, subject: Subject, first: int) -> bytes:
        return offsetmap.key_of(self._flow.source.alias, subject, first)

    def _append(self, records: Iterable[tuple[TopicPartition, tuple[bytes, bytes | None]]]) -> None:
        """In as few batches as their size allows."""
        batches: dict[int, list[tuple[bytes, bytes | None]]] = {}
        sizes: dict[int, int] = {}
        for tp, pair in records:
            key = positions.key_of(self._flow.source.alias, tp)
            partition = positions.partition_for(key, self._log.partitions)
            batches.setdefault(partition, []).append(pair)
            sizes[partition] = sizes.get(partition, 0) + len(pair[0]) + len(pair[1] or b"")
            if sizes[partition] > APPENDED_AT_ONCE:
                self._log.append(partition, batches.pop(partition))
                del sizes[partition]
        for partition, batch in batches.items():
            self._log.append(partition, batch)


def _whole(subject: Subject) -> Subject:
    """Of all generations."""
    return subject._replace(producer=OF_0_1)


def _value(segment: Segment) -> bytes:
    made = segment.generation
    return offsetmap.encode(segment.spans) if made is None else offsetmap.encode_generation(made)


def _no_answer(error: BrokerError, *, nothing: bool) -> int:
    """`nothing`: that there is no topic means that there are no records."""
    return 0 if nothing and error.code == UNKNOWN_TOPIC_OR_PARTITION else positions.OFFSETS


def _reach(spans: list[Span]) -> int:
    """The target offset behind the furthest of them."""
    return max((span.target + span.length for span in spans), default=0)

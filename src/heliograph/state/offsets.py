"""The offset map of a flow, read back: where the target has the record at a source offset.

Owned by the coordinator; tasks append to the topic (`mirror.task`). Answers from what is durable only: the map's
topic and the positions, which never run ahead of it. A run that lies behind the end of its remote partition is nobody
of ours': tasks write down only what was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import structlog

from heliograph import policy
from heliograph.errors import BrokerError
from heliograph.mirror import offsetmap, positions
from heliograph.mirror.offsetmap import Runs, Segment, Span, Subject
from heliograph.mirror.positions import Position
from heliograph.state.compacted import CompactedLog
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


class Unjudged(NamedTuple):
    """A record of the topic whose runs reach further than we know their remote partition to."""

    partition: int
    offset: int
    key: bytes
    segment: Segment


class OffsetMap:
    def __init__(self, client: Client, flow: Flow) -> None:
        self._flow = flow
        self._client = client
        self._log = CompactedLog(client, policy.offset_map_topic(flow.source.alias))
        self._runs: dict[Subject, Runs] = {}
        self._keys: dict[Subject, set[bytes]] = {}
        self._lock = threading.Lock()
        self._ends: dict[TopicPartition, int] = {}  # of remote partitions, as last asked for
        self._unjudged: list[Unjudged] = []
        self._kept = 0  # of them: those whose copy was not visible when it was last asked for
        self._hidden: dict[TopicPartition, float] = {}  # copies that are not visible, and since when (monotonic)
        self._strangers = Strangers(flow.name, self._log.topic)

    @property
    def topic(self) -> str:
        """Empty: there is none."""
        return self._log.topic if self._log.partitions else ""

    @property
    def partitions(self) -> int:
        return self._log.partitions

    def ensure(self) -> None:
        flow = self._flow
        if flow.staged:  # nobody's offsets are translated by it
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
                self._take(Unjudged(partition, record.offset, record.key or b"", segment))
                if len(self._unjudged) - self._kept >= JUDGED_AT_ONCE:
                    self._judge()
            self._judge()
            self._strangers.tell()

    def _take(self, one: Unjudged) -> None:
        """At once if it can be true; behind one that waits it waits too, since of two that contradict each other the
        later one counts."""
        subject, spans = one.segment
        waits = any(subject == other.segment.subject for other in self._unjudged)
        if not waits and _reach(spans) <= self._ends.get(self._copy_of(subject), 0):
            self._add(one)
        else:
            self._unjudged.append(one)

    def _add(self, one: Unjudged) -> None:
        subject, spans = one.segment
        if spans:
            self._keys.setdefault(subject, set()).add(one.key)
        self._runs.setdefault(subject, Runs()).add(spans)

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
                self._add(one)
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

    def last_run(self, tp: TopicPartition, position: Position) -> Span | None:
        with self._lock:
            runs = self._runs.get(Subject(tp, position.topic_id))
            return runs.open_to(position.target) if runs else None

    def last_point(self, tp: TopicPartition, strand: int, topic_id: UUID | None) -> Span | None:
        with self._lock:
            runs = self._runs.get(Subject(tp, topic_id, strand))
            return runs.last if runs else None

    def find(self) -> bool:
        """Whether the topic is there; nothing is made."""
        return bool(self._log.count())

    def spans(self, tp: TopicPartition, position: Position) -> list[Span]:
        """Every run of the partition up to its position."""
        with self._lock:
            runs = self._runs.get(Subject(tp, position.topic_id))
            return runs.spans(position.target) if runs else []

    def begin_anew(self, subject: Subject, source_start: int, target_end: int) -> None:
        """The partition is about to be copied from `source_start`, behind `target_end`. What the map says of records
        that come again, or of a remote topic that was there before this one, is void."""
        with self._lock:
            runs = self._runs.get(subject)
            last = runs.last if runs else None
            if last is None or (last.source + last.length <= source_start and last.target + last.length <= target_end):
                return
            key = positions.key_of(self._flow.source.alias, subject.tp)
            partition = positions.partition_for(key, self._log.partitions)
            self._log.append(partition, [(k, None) for k in self._keys.pop(subject, ())])
            del self._runs[subject]
        log.warning("copied anew: its offset map begins again", flow=self._flow.name, partition=str(subject.tp))

    def translate(self, tp: TopicPartition, offset: int, known: Mapping[TopicPartition, Position]) -> int | None:
        """Where the target has the first record at or after this source offset. None: nobody knows."""
        position = known.get(tp)
        if position is None or position.strands:
            return None
        with self._lock:
            runs = self._runs.get(Subject(tp, position.topic_id))
            if runs:
                return runs.translate(offset, position.target)
        caught_up = position.target >= 0 and position.sequence > 0 and offset >= position.next_offset
        return position.target if caught_up else None

    def translate_strand(self, tp: TopicPartition, strand: int, offset: int, position: Position) -> int | None:
        """Before which offset of a divided topic's target partition no record lies that the source partition has at
        this offset or behind it: as far as that is known. None: nothing is."""
        own = position.strands[strand]
        with self._lock:
            runs = self._runs.get(Subject(tp, position.topic_id, strand))
            known = runs.behind(offset) if runs else None
        if own.target >= 0 and (own.sequence == 0 or offset >= own.next_offset):
            # All its records that are counted lie before it, or there are none and it is where the copy began.
            return max(known or 0, own.target)
        return known


def _no_answer(error: BrokerError, *, nothing: bool) -> int:
    """`nothing`: that there is no topic means that there are no records."""
    return 0 if nothing and error.code == UNKNOWN_TOPIC_OR_PARTITION else positions.OFFSETS


def _reach(spans: list[Span]) -> int:
    """The target offset behind the furthest of them."""
    return max((span.target + span.length for span in spans), default=0)

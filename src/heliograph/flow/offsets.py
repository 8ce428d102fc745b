"""The offset map of a flow, read back: where the target has the record at a source offset.

Owned by the coordinator; tasks append to the topic (`mirror.task`). Answers from what is durable only: the map's
topic and the positions, which never run ahead of it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import structlog

from heliograph import policy
from heliograph.errors import BrokerError
from heliograph.flow.compacted import CompactedLog
from heliograph.mirror import positions
from heliograph.mirror.offsetmap import Runs, Span, Subject, decode, subject_of_key
from heliograph.mirror.positions import Position
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client
from heliograph.wire.codes import CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED

log = structlog.get_logger()


class OffsetMap:
    def __init__(self, client: Client, flow: Flow) -> None:
        self._flow = flow
        self._log = CompactedLog(client, policy.offset_map_topic(flow.source.alias))
        self._runs: dict[Subject, Runs] = {}
        self._keys: dict[Subject, set[bytes]] = {}
        self._lock = threading.Lock()
        self._nonsense = 0

    @property
    def topic(self) -> str:
        """Empty: there is none."""
        return self._log.topic if self._log.partitions else ""

    @property
    def partitions(self) -> int:
        return self._log.partitions

    def ensure(self) -> None:
        flow = self._flow
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
            for record in self._log.news():
                subject = subject_of_key(record.key, self._flow.source.alias)
                spans = decode(record.value)
                if subject is None or (record.value is not None and not spans):
                    self._unreadable(record.offset)
                    continue
                if record.key is not None and spans:
                    self._keys.setdefault(subject, set()).add(record.key)
                self._runs.setdefault(subject, Runs()).add(spans)

    def last_run(self, tp: TopicPartition, position: Position) -> Span | None:
        with self._lock:
            runs = self._runs.get(Subject(tp, position.topic_id))
            return runs.open_to(position.target) if runs else None

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
        if position is None:
            return None
        with self._lock:
            runs = self._runs.get(Subject(tp, position.topic_id))
            if runs:
                return runs.translate(offset, position.target)
        caught_up = position.target >= 0 and position.sequence > 0 and offset >= position.next_offset
        return position.target if caught_up else None

    def _unreadable(self, offset: int) -> None:
        self._nonsense += 1
        if self._nonsense == 1:
            log.warning(
                "a record that is not ours in the offset map: passed over",
                flow=self._flow.name,
                topic=self._log.topic,
                offset=offset,
                fix="find out who writes to this topic; only heliograph should",
            )

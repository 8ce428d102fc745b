"""The incidents and the quarantine topic on the target: made when they are first needed, appended to, read to the end.

Blocking: for coordinators and verbs, and for errands beside a task's loop. Nothing is made on a cluster on which
nothing ever went wrong. What the records mean is `incidents`' and `quarantine`'s affair.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from heliograph.batch import Record, decode_all, encode
from heliograph.errors import BrokerError, WireError
from heliograph.mirror import incidents
from heliograph.mirror.incidents import Book, Incident
from heliograph.types import TopicPartition
from heliograph.wire import Client, NewTopic
from heliograph.wire.codes import OFFSET_OUT_OF_RANGE, TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED

APPEAR_S = 30.0
FETCH_BYTES = 4 << 20
DAY_MS = 86_400_000

# What happened is kept for a quarter of a year: longer than any log a person goes back to, and never a growing burden.
INCIDENTS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": str(90 * DAY_MS)}

# What was refused is kept until it is sent again or given up (a tombstone), however long that takes. A record that is
# too large for its topic must fit here: up to what a broker takes in one request (socket.request.max.bytes is 100 MiB).
QUARANTINE: Mapping[str, str] = {"cleanup.policy": "compact", "max.message.bytes": str(95 << 20)}


def incidents_spec(topic: str, replication_factor: int) -> NewTopic:
    return NewTopic(topic, 1, replication_factor, dict(INCIDENTS))


def quarantine_spec(topic: str, replication_factor: int) -> NewTopic:
    return NewTopic(topic, 1, replication_factor, dict(QUARANTINE))


class Annals:
    """One such topic, of one partition: what happened has an order."""

    def __init__(self, client: Client, spec: NewTopic) -> None:
        self._client, self._spec = client, spec
        self._there = False
        self._read_to = 0
        self._lock = threading.RLock()
        self.tp = TopicPartition(spec.name, 0)

    def exists(self) -> bool:
        """Asked anew until it does."""
        if not self._there:
            topic = self._client.metadata([self.tp.topic]).topics.get(self.tp.topic)
            self._there = bool(topic and topic.partitions and not topic.error)
        return self._there

    def append(self, records: Sequence[Record]) -> None:
        """In one batch. Raises what the target says."""
        with self._lock:
            self._ensure()
            self._client.produce(self.tp, encode(records))

    def news(self) -> Iterator[Record]:
        """Every record since the last call, up to the end as it is now. Nothing while there is no such topic."""
        with self._lock:
            if not self.exists():
                return
            end = self._client.list_offsets([self.tp], at="latest")[self.tp]
            if isinstance(end, WireError):
                self._there = False  # deleted, perhaps
                raise end
            if end < self._read_to:
                self._read_to = 0  # made anew
            while self._read_to < end:
                yield from self._read(end)

    def _read(self, end: int) -> Iterator[Record]:
        before = self._read_to
        try:
            part = self._client.fetch(self.tp, before, max_bytes=FETCH_BYTES)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            start = self._client.list_offsets([self.tp], at="earliest")[self.tp]
            self._read_to = start if isinstance(start, int) and start > before else end  # retention took the beginning
            return
        for record, next_offset in decode_all(part.records):
            if record is not None and record.offset >= before:
                yield record
            self._read_to = max(self._read_to, next_offset)
        if self._read_to == before:
            self._read_to = end  # nothing but holes up to the end

    def _ensure(self) -> None:
        if self.exists():
            return
        error = self._client.create_topics([self._spec])[self.tp.topic]
        if error is not None and error.code != TOPIC_ALREADY_EXISTS:
            raise error
        deadline = time.monotonic() + APPEAR_S
        while not self.exists():
            if time.monotonic() > deadline:
                raise BrokerError(3, "UNKNOWN_TOPIC_OR_PARTITION", "created but not to be seen", topic=self.tp.topic)
            time.sleep(0.05)


class IncidentLog:
    """The incidents of flows from one source, written and read."""

    def __init__(self, client: Client, source_alias: str, topic: str, replication_factor: int) -> None:
        self._alias = source_alias
        self._annals = Annals(client, incidents_spec(topic, replication_factor))
        self.book = Book(source_alias)

    def write(self, incident: Incident) -> None:
        key, value = incidents.key_of(self._alias, incident), incidents.encode(incident)
        self._annals.append([Record(0, incident.at_ms, key, value, ())])
        self.book.add(key, value)

    def catch_up(self) -> list[Incident]:
        """What is new, this flow's alone."""
        found = [self.book.add(record.key, record.value) for record in self._annals.news()]
        return [incident for incident in found if incident is not None]


def why_not(error: WireError, topic: str) -> str:
    """What to do when one of these topics cannot be written."""
    if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED:
        return f"allow this principal CREATE, DESCRIBE, READ and WRITE on {topic}"
    return error.fix

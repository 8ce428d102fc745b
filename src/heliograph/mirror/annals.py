"""The incidents and the quarantine topic on the target: made when they are first needed, appended to, read to the end.

Blocking: for coordinators and verbs, and for errands beside a task's loop. Nothing is made on a cluster on which
nothing ever went wrong. What the records mean is `incidents`' and `quarantine`'s affair.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from heliograph.batch import Record
from heliograph.errors import BrokerError, WireError
from heliograph.mirror import incidents
from heliograph.mirror.incidents import Book, Incident, NotAnIncident
from heliograph.topiclog import TopicReader, TopicWriter
from heliograph.types import Factor, TopicPartition
from heliograph.wire import Client, NewTopic
from heliograph.wire.codes import TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED

log = structlog.get_logger()

APPEAR_S = 30.0
NAMED = 200  # offsets of foreign records in one line
DAY_MS = 86_400_000

# What happened is kept for a quarter of a year: longer than any log a person goes back to, and never a growing burden.
INCIDENTS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": str(90 * DAY_MS)}

# What was refused is kept until it is sent again or given up (a tombstone), however long that takes. A record that is
# too large for its topic must fit here: up to what a broker takes in one request (socket.request.max.bytes is 100 MiB).
QUARANTINE: Mapping[str, str] = {"cleanup.policy": "compact", "max.message.bytes": str(95 << 20)}


def incidents_spec(topic: str, factor: Factor) -> NewTopic:
    return NewTopic(topic, 1, factor.replicas, dict(INCIDENTS), lowerable=factor.lowerable)


def quarantine_spec(topic: str, factor: Factor) -> NewTopic:
    return NewTopic(topic, 1, factor.replicas, dict(QUARANTINE), lowerable=factor.lowerable)


class Annals:
    """One such topic, of one partition: what happened has an order. Read and written as `topiclog` says."""

    def __init__(self, client: Client, spec: NewTopic) -> None:
        self._client, self._spec = client, spec
        self._there = False
        self._lock = threading.RLock()
        self._reader, self._writer = TopicReader(client, spec.name), TopicWriter(client, spec.name)
        self.tp = TopicPartition(spec.name, 0)

    def exists(self) -> bool:
        """Asked again until it does."""
        self._there = self._there or self._reader.look()
        return self._there

    def append(self, records: Sequence[Record]) -> None:
        """In one batch. Raises what the target says."""
        with self._lock:
            self._ensure()
            self._writer.append(0, records)

    def on_refold(self, begin: Callable[[], None]) -> None:
        """`begin` is called before all records come again (`TopicReader`, invariant b)."""
        self._reader.on_refold = begin

    def is_reread(self, offset: int) -> bool:
        return self._reader.is_reread(0, offset)

    def news(self) -> Iterator[Record]:
        """Every record since the last call, up to the end as it is now. Nothing while there is no such topic."""
        with self._lock:
            if not self.exists():
                return
            try:
                for _, record in self._reader.read((0,)):
                    yield record
            except WireError:
                self._there = False  # deleted, perhaps
                raise

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

    def __init__(self, client: Client, source_alias: str, topic: str, factor: Factor) -> None:
        self._alias = source_alias
        self._annals = Annals(client, incidents_spec(topic, factor))
        self.book = Book(source_alias)

    def write(self, incident: Incident) -> None:
        key, value = incidents.key_of(self._alias, incident), incidents.encode(incident)
        self._annals.append([Record(0, incident.at_ms, key, value, ())])
        self.book.add(key, value)

    def catch_up(self) -> list[Incident]:
        """What is new, this flow's alone. The book keeps what the topic has lost: records that were passed over stay
        out of their producer id's count, whatever became of the topic. So a refold only adds."""
        found: list[Incident] = []
        foreign: dict[str, list[int]] = {}  # why -> offsets
        for record in self._annals.news():
            try:
                incidents.read(record.key, record.value, self._alias)
            except NotAnIncident as problem:
                foreign.setdefault(str(problem), []).append(record.offset)
                continue
            incident = self.book.add(record.key, record.value)
            if incident is not None and not self._annals.is_reread(record.offset):
                found.append(incident)
        self._name(foreign)
        return found

    def _name(self, foreign: Mapping[str, Sequence[int]]) -> None:
        """Records that are not ours, each once."""
        for why, offsets in foreign.items():
            new = [offset for offset in offsets if not self._annals.is_reread(offset)]
            if new:
                log.warning(
                    "records that are not ours: passed over",
                    topic=self._annals.tp.topic,
                    partition=self._annals.tp.partition,
                    offsets=new[:NAMED],
                    records=len(new),
                    why=why,
                    fix="find out who else writes to this topic: only mirrors should",
                )


def why_not(error: WireError, topic: str) -> str:
    """What to do when one of these topics cannot be written."""
    if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED:
        return f"allow this principal CREATE, DESCRIBE, READ and WRITE on {topic}"
    return error.fix

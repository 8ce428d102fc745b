"""The incidents of one flow, for its coordinator: written by it, read again and again, counted.

Tasks write most of them (`mirror.incident_handler`). Counts are taken from the topic, not from tasks: an incident that
was noticed twice because of a crash counts once there, and what was counted before a restart still counts. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph import policy
from heliograph.mirror.annals import IncidentLog, incidents_spec
from heliograph.mirror.incidents import Incident, Kind, span
from heliograph.mirror.offsetmap import Subject
from heliograph.types import STORAGE_FACTOR, Flow, TopicPartition
from heliograph.wire import Client, NewTopic

__all__ = ["Counts", "Incident", "Incidents", "Kind", "span", "topic_of"]

LOOK_EVERY_S = 2.0
RECENT = 20  # incidents that a status shows; `heliograph incidents` has all


@dataclass(frozen=True, slots=True)
class Counts:
    """Of all that the topic holds."""

    kinds: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[TopicPartition, int] = field(default_factory=dict)  # source offsets never copied
    held: Mapping[TopicPartition, int] = field(default_factory=dict)  # records refused and passed over
    recent: tuple[Incident, ...] = ()  # the last ones, oldest first


def topic_of(flow: Flow) -> NewTopic:
    """As it is made when it is first needed."""
    return incidents_spec(policy.incidents_topic(policy.annals_of(flow)), flow.factor(STORAGE_FACTOR))


class Incidents:
    def __init__(self, flow: Flow) -> None:
        self._client = Client(flow.target, timeout_s=flow.admin_timeout_s)
        topic = policy.incidents_topic(policy.annals_of(flow))
        self._log = IncidentLog(self._client, flow.source.alias, topic, flow.factor(STORAGE_FACTOR))
        self._lock = threading.Lock()  # held while the topic is read, which may take as long as a broker is silent
        self.counts = Counts()  # replaced, never changed: whoever shows a flow must not wait for a broker

    def look(self) -> list[Incident]:
        """Read what is new."""
        with self._lock:
            found = self._log.catch_up()
            if found:
                self._count()
            return found

    def write(self, incident: Incident) -> None:
        with self._lock:
            self._log.write(incident)
            self._count()

    def told(self, subject: Subject, at: int) -> frozenset[tuple[str, int, str]]:
        with self._lock:
            return self._log.book.told(subject, at)

    @property
    def all(self) -> list[Incident]:
        with self._lock:
            return self._log.book.incidents

    def close(self) -> None:
        self._client.close()

    def _count(self) -> None:
        kinds: Counter[str] = Counter()
        lost: Counter[TopicPartition] = Counter()
        known = self._log.book.incidents
        for one in known:
            kinds[str(one.kind)] += 1
            lost[one.tp] += one.lost
        self.counts = Counts(kinds, lost, self._log.book.held_records(), tuple(known[-RECENT:]))

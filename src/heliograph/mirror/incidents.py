"""What went wrong with records on their way, as it is written down: the format of the incidents topic, and what follows
from it for whoever counts records. Pure; `mirror.annals` reads and writes, `mirror.incident_handler` decides.

The topic lies on the target and is not compacted. A record says what happened (its kind), to which source offsets, what
was done about it (the policy), and why, in words.

Invariants:
  a. An incident is in the topic before anything is done about it: before a position passes what it tells of, before a
     position is given up, before a partition is parked for it. Whatever is killed in between, nothing is passed over
     that the topic does not name.
  b. The key says whose offsets (flow, topic with its id, partition), the kind and the first offset. What is noticed
     again after a crash has the same key: one incident, however often written. Records of a key add up: what one of
     them says was passed over stays passed over, whatever a later one says (a process that slept, a smaller batch).
  c. Offsets of refused records that are passed over (`held`) are not in their producer id's count of records (rule H of
     the ledger). The set of them only grows, for each producer id: what was appended behind a refused record was
     counted without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeGuard
from uuid import UUID

import msgspec

from heliograph.mirror.offsetmap import Subject
from heliograph.mirror.positions import OFFSETS
from heliograph.types import TopicPartition

NAME = "HeliographIncident"
# Of one incident, which is about one batch: a record has 7 bytes at least, so this is a batch of 14 MB of empty ones.
MOST_REFUSED = 2_000_000


class Kind(StrEnum):
    GAP = "gap"  # retention took source offsets [first, next) before they were read
    RECREATED = "recreated"  # the source topic was made anew; of its old self everything before `first` was copied
    TRUNCATED = "truncated"  # the source ends at `first`, while everything before `next` had been copied
    TARGET_LOST = "target-lost"  # the target's log ends before what it acknowledged; we stood at `first`
    REFUSED = "refused"  # the target will not take the records at `offsets`
    DENIED = "denied"  # a cluster no longer lets us read or write; we stood at `first`
    STORAGE = "storage"  # a disk of the target failed or is full; we stood at `first`


PASSING = frozenset({"skip", "quarantine"})  # the policies by which the partition goes on behind it


@dataclass(frozen=True, slots=True)
class Incident:
    kind: Kind
    tp: TopicPartition
    topic_id: UUID | None
    first: int  # source offsets
    next: int
    policy: str  # what was done: stop, skip, restart, quarantine
    why: str
    remote: TopicPartition
    at_ms: int
    offsets: tuple[tuple[int, int], ...] = ()  # refused: (offset, length) of consecutive source offsets
    target: tuple[int, int] = (-1, -1)  # target-lost: where the target's log ends, and where it ended
    producer: int = -1  # refused: the producer id whose count leaves these records out

    @property
    def subject(self) -> Subject:
        return Subject(self.tp, self.topic_id)

    @property
    def lost(self) -> int:
        """Source offsets that were never copied and never will be."""
        return self.next - self.first if self.kind is Kind.GAP and self.policy == "skip" else 0

    @property
    def held(self) -> int:
        """Records that were passed over because the target refused them."""
        passed = self.kind is Kind.REFUSED and self.policy in PASSING
        return sum(length for _, length in self.offsets) if passed else 0

    @property
    def words(self) -> str:
        return f"{self.kind} {self.tp} {span(self)} [{self.policy}]: {self.why}"


def span(incident: Incident) -> str:
    """`100-149`, `7`, `3, 9-11`: the offsets it is about, as people write them."""
    runs = incident.offsets or ((incident.first, max(incident.next - incident.first, 1)),)
    return ", ".join(str(at) if length == 1 else f"{at}-{at + length - 1}" for at, length in runs)


def key_of(source_alias: str, incident: Incident) -> bytes:
    about = {
        "cluster": source_alias,
        "from": incident.first,
        "id": str(incident.topic_id or ""),
        "kind": str(incident.kind),
        "partition": incident.tp.partition,
        "topic": incident.tp.topic,
    }
    return msgspec.json.encode([NAME, about])


def encode(incident: Incident) -> bytes:
    value: dict[str, Any] = {
        "next": incident.next,
        "policy": incident.policy,
        "why": incident.why,
        "remote": incident.remote.topic,
        "remotePartition": incident.remote.partition,
        "at": incident.at_ms,
    }
    if incident.offsets:
        value["offsets"] = incident.offsets
    if incident.target != (-1, -1):
        value["target"] = incident.target
    if incident.producer >= 0:
        value["producer"] = incident.producer
    return msgspec.json.encode(value)


class NotAnIncident(ValueError):
    """A record of the topic that nobody of us wrote, and why it makes no sense."""


def decode(key: bytes | None, value: bytes | None, source_alias: str) -> Incident | None:
    """None for other clusters' records and for nonsense."""
    try:
        return read(key, value, source_alias)
    except NotAnIncident:
        return None


def read(key: bytes | None, value: bytes | None, source_alias: str) -> Incident | None:
    """None for other clusters' records. Raises NotAnIncident."""
    try:
        name, about = msgspec.json.decode(key or b"")
        fields = msgspec.json.decode(value or b"")
        if name != NAME:
            raise NotAnIncident("its key is no incident's")
        if about["cluster"] != source_alias:
            return None
        kind, id_ = Kind(about["kind"]), about["id"]
        numbers = (about["partition"], about["from"], fields["next"], fields["remotePartition"], fields["at"])
        texts = (about["topic"], fields["policy"], fields["why"], fields["remote"])
        offsets = tuple((at, length) for at, length in fields.get("offsets", ()))
        end, was = fields.get("target", (-1, -1))
        producer = fields.get("producer", -1)
        topic_id = UUID(id_) if id_ else None
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as problem:
        raise problem if isinstance(problem, NotAnIncident) else NotAnIncident("it is no incident") from problem
    if not all(map(_offset, (*numbers, *(one for run in offsets for one in run)))):
        raise NotAnIncident("it has numbers that are no offsets")
    if not all(isinstance(text, str) for text in texts):
        raise NotAnIncident("it has texts that are none")
    if not all(number == -1 or _offset(number) for number in (end, was, producer)):
        raise NotAnIncident("it has numbers that are no offsets")
    _check_runs(offsets)
    partition, first, next_offset, remote_partition, at_ms = numbers
    topic, policy, why, remote = texts
    return Incident(
        *(kind, TopicPartition(topic, partition), topic_id, first, next_offset, policy, why),
        *(TopicPartition(remote, remote_partition), at_ms, offsets, (end, was), producer),
    )


def _check_runs(offsets: tuple[tuple[int, int], ...]) -> None:
    """Readers hold every offset of them in memory: one run of 2^62 would be the end of the process."""
    if any(length < 1 or at + length > OFFSETS for at, length in offsets):
        raise NotAnIncident("it has runs of offsets that cannot be")
    if sum(length for _, length in offsets) > MOST_REFUSED:
        raise NotAnIncident(f"it names more than {MOST_REFUSED:,} refused records, which no batch holds")


def _offset(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < OFFSETS


def runs_of(offsets: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Rising offsets as runs."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and sum(found[-1]) == offset:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((offset, 1))
    return tuple(found)


def merged(old: Incident, new: Incident) -> Incident:
    """Two records of one key and producer id (invariant b)."""
    if (old.policy in PASSING) != (new.policy in PASSING):
        return old if old.policy in PASSING else new
    offsets = {o for start, length in (*old.offsets, *new.offsets) for o in range(start, start + length)}
    return replace(new, next=max(old.next, new.next), offsets=runs_of(sorted(offsets)))


class Book:
    """The incidents of one source, folded."""

    def __init__(self, source_alias: str) -> None:
        self._alias = source_alias
        self._known: dict[tuple[bytes, int], Incident] = {}
        self._held: dict[tuple[Subject, int], set[int]] = {}  # by producer id (invariant c)

    def add(self, key: bytes | None, value: bytes | None) -> Incident | None:
        incident = decode(key, value, self._alias)
        if incident is None:
            return None
        # By what is in it, not by its bytes: a writer may order the fields otherwise.
        identity = key_of(self._alias, incident), incident.producer
        known = self._known.get(identity)
        self._known[identity] = incident if known is None else merged(known, incident)
        if incident.held:
            offsets = self._held.setdefault((incident.subject, incident.producer), set())
            offsets.update(o for start, length in incident.offsets for o in range(start, start + length))
        return incident

    @property
    def incidents(self) -> list[Incident]:
        return sorted(self._known.values(), key=lambda one: one.at_ms)

    def held(self, subject: Subject, at: int, producer_id: int) -> set[int]:
        """The source offsets from `at` on that are passed over (invariant c). Of this producer id: a copy that was
        begun again under another has not been refused anything yet."""
        return {offset for offset in self._held.get((subject, producer_id), ()) if offset >= at}

    def held_records(self) -> dict[TopicPartition, int]:
        """How many records of each partition were passed over. Incidents may overlap, and a record counts once."""
        found: dict[Subject, set[int]] = {}
        for (subject, _), offsets in self._held.items():
            found.setdefault(subject, set()).update(offsets)
        counted: Counter[TopicPartition] = Counter()
        for subject, offsets in found.items():
            counted[subject.tp] += len(offsets)
        return dict(counted)

    def told(self, subject: Subject, at: int) -> frozenset[tuple[str, int, str]]:
        """(kind, first offset, policy) of what is known from `at` on: not to be written again and again."""
        return frozenset(
            (str(one.kind), one.first, one.policy)
            for one in self._known.values()
            if one.subject == subject and one.next >= at
        )

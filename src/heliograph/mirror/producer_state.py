"""The producer-state probe: which records behind a position does the target hold already (rule D)?

Blocking, for a call beside a task's loop. What follows from the answers is the task's affair.

The broker's memory of a producer id comes first, since it is one question for many partitions. It is not relied on: a
broker forgets an id by the time in its records, and then accepts any sequence. So:

  a. An id that the broker does not know says nothing. The log's end is compared with the position's target offset, and
     where it is further the log itself is read.
  b. What the leader has appended and the followers have not is part of the answer. The log end offset counts it, and
     the answer waits (a retriable error) until it can be read.
  c. Batches whose answers were lost may still be waiting inside the broker. Where the broker may forget the id before
     it works on them (old records, or an id it does not know), two answers SETTLE_S apart must be the same.
  d. Order (rule H): sequences first, then the incidents. What was appended behind a refused record was appended after
     its incident was written, so a reader in this order knows every hole in what it counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from heliograph.errors import BatchError, BrokerError, HeliographError, WireError
from heliograph.mirror.annals import IncidentLog
from heliograph.mirror.assignment import Assignment, LaneSpec
from heliograph.mirror.ledger import already_there
from heliograph.mirror.offsetmap import Subject
from heliograph.mirror.positions import Position
from heliograph.mirror.target_log import Stored, behind, last_sequence, stored_since
from heliograph.types import TopicPartition
from heliograph.wire import Client, ProducerState
from heliograph.wire.codes import LEADER_NOT_AVAILABLE, broker_error

Key = TypeVar("Key")  # what the caller knows its partitions by
States = dict[int, ProducerState] | BrokerError

# How long the log must stand still after answers were lost. A broker works on a request that it has read within
# milliseconds; one that is frozen answers this question no sooner than that request.
SETTLE_S = 0.2


@dataclass(frozen=True, slots=True)
class Question:
    """About one copied partition, as it was when the question was asked."""

    spec: LaneSpec
    acked: Position
    unanswered: bool = False  # batches were sent whose answers will never come
    old_records: bool = False  # and their records are so old that the broker may forget the id at any moment


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How many records from the position on the target holds, at which offsets if it can be said, and which source
    offsets are not among them."""

    there: int
    placed: tuple[tuple[int, int], ...]
    end: int  # of the target's log; -1: not asked for
    held: frozenset[int]  # source offsets that are passed over (rule H)
    missing: int = 0  # records that the log does not hold although it holds later ones
    known: bool = True  # the broker knows the producer id, so that it refuses a repeat by itself


class ProducerStateProbe:
    def __init__(self, assignment: Assignment, client: Client, *, sleep: Callable[[float], None] = time.sleep) -> None:
        a = assignment
        self._client, self._sleep = client, sleep
        self._incidents = (
            IncidentLog(client, a.source.alias, a.incidents_topic, a.storage_factor) if a.incidents_topic else None
        )

    def prepare(self, remotes: Sequence[TopicPartition]) -> None:
        """Open connections and read the incidents that are there already, so that the question itself is quick."""
        self._client.describe_producers(remotes)
        if self._incidents is not None:
            self._incidents.catch_up()

    def ask(self, asked: Mapping[Key, Question], *, at_first: bool = False) -> dict[Key, ProbeResult | HeliographError]:
        """For all at once. `at_first`: this task has appended nothing yet, so the log's end need not be asked for where
        the broker's memory agrees with the position; if the log was cut all the same, the answer to the first append
        says so. (When epochs change this is the pause, and over distance every question counts.)"""
        found = self._probe(asked, at_first=at_first)
        unsettled = {key: asked[key] for key, result in found.items() if _unsettled(asked[key], result)}
        if not unsettled:
            return found
        self._sleep(SETTLE_S)
        for key, later in self._probe(unsettled, at_first=False).items():
            first = found[key]
            moved = isinstance(first, ProbeResult) and isinstance(later, ProbeResult) and first.there != later.there
            found[key] = _still_appending(asked[key].spec.remote) if moved else later
        return found

    def _probe(self, asked: Mapping[Key, Question], *, at_first: bool) -> dict[Key, ProbeResult | HeliographError]:
        states = self._client.describe_producers(list(dict.fromkeys(one.spec.remote for one in asked.values())))
        doubtful = {
            one.spec.remote: None
            for one in asked.values()
            if not isinstance(state := states[one.spec.remote], WireError)
            and not (at_first and _agrees(one.acked, state))
        }
        ends = self._client.list_offsets(list(doubtful), at="log_end") if doubtful else {}
        if self._incidents is not None:
            self._incidents.catch_up()
        found: dict[Key, ProbeResult | HeliographError] = {}
        for key, question in asked.items():
            remote = question.spec.remote
            try:
                found[key] = self._result(question, states[remote], ends.get(remote, -1))
            except (WireError, BatchError) as error:
                found[key] = error  # the other partitions do not wait for it
        return found

    def _result(self, question: Question, state: States, end: int | BrokerError) -> ProbeResult:
        if isinstance(state, WireError):
            raise state
        if isinstance(end, WireError):
            raise end
        spec, acked = question.spec, question.acked
        stored = self._stored(spec.remote, acked, state, end)
        there = already_there(acked, stored.last_sequence)
        known = acked.producer_id in state
        return ProbeResult(there, stored.placed, end, self._passed_over(spec, acked), stored.missing, known)

    def _stored(self, remote: TopicPartition, acked: Position, state: Mapping[int, ProducerState], end: int) -> Stored:
        known = state.get(acked.producer_id)
        if known is not None and known.last_sequence >= 0:
            if already_there(acked, known.last_sequence) <= 0:
                return Stored(known.last_sequence)
            if acked.target < 0:
                self._check_followers(remote, end)
                return Stored(known.last_sequence)
            read = stored_since(self._client, remote, acked, self._log_end(remote, end))
            return Stored(known.last_sequence, read.placed, read.missing)
        if acked.target < 0:
            return Stored(last_sequence(self._client, remote, acked.producer_id))
        if end <= acked.target:
            return Stored(None)  # nothing was appended since, by this producer id or any other
        return stored_since(self._client, remote, acked, end)

    def _check_followers(self, remote: TopicPartition, end: int) -> None:
        """Invariant b, where the log need not be read: what the broker remembers may be the leader's alone."""
        log_end = self._log_end(remote, end)
        high_watermark = self._client.list_offsets([remote], at="latest")[remote]
        if isinstance(high_watermark, WireError):
            raise high_watermark
        if high_watermark < log_end:
            raise behind(remote, high_watermark, log_end)

    def _log_end(self, remote: TopicPartition, end: int) -> int:
        """Asked for now, if it was not before."""
        found = end if end >= 0 else self._client.list_offsets([remote], at="log_end")[remote]
        if isinstance(found, WireError):
            raise found
        return int(found)

    def _passed_over(self, spec: LaneSpec, acked: Position) -> frozenset[int]:
        if self._incidents is None:
            return frozenset()
        subject = Subject(spec.tp, spec.topic_id)
        return frozenset(self._incidents.book.held(subject, acked.next_offset, acked.producer_id))


def _agrees(acked: Position, state: Mapping[int, ProducerState]) -> bool:
    """The broker knows the producer id and counts at least what the position says."""
    known = state.get(acked.producer_id)
    return known is not None and known.last_sequence >= 0 and already_there(acked, known.last_sequence) >= 0


def _unsettled(question: Question, result: ProbeResult | HeliographError) -> bool:
    """Invariant c."""
    if not question.unanswered or not isinstance(result, ProbeResult):
        return False
    return question.old_records or not result.known


def _still_appending(remote: TopicPartition) -> BrokerError:
    return broker_error(
        LEADER_NOT_AVAILABLE,
        "batches sent before the connection was lost, or another writer's, are still being appended",
        topic=remote.topic,
        partition=remote.partition,
    )

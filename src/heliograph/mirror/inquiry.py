"""Rule D's question: what does the target hold of these lanes' producer ids?

Blocking, for an errand beside a task's loop. What follows from the answers is the task's and the warden's affair.

Order (rule H): the last sequences first, then the incidents. What was appended behind a refused record was appended
after its incident was written, so whoever reads them in this order knows of every hole in what it counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from heliograph.errors import BrokerError, HeliographError, WireError
from heliograph.mirror.annals import IncidentLog
from heliograph.mirror.assignment import Assignment, LaneSpec
from heliograph.mirror.ledger import already_there
from heliograph.mirror.offsetmap import Subject
from heliograph.mirror.positions import Position
from heliograph.mirror.tail import last_sequence_in_log, places
from heliograph.types import TopicPartition
from heliograph.wire import Client, ProducerState

Who = TypeVar("Who")  # whatever the caller knows its lanes by
States = dict[int, ProducerState] | BrokerError


@dataclass(frozen=True, slots=True)
class Held:
    """How many records from the position on the target holds, at which offsets if it can be said, and which source
    offsets are not among them."""

    there: int
    placed: tuple[tuple[int, int], ...]
    end: int  # of the target's log; -1: not asked for
    held: frozenset[int]  # source offsets that are passed over (rule H)


class Inquiry:
    def __init__(self, assignment: Assignment, client: Client) -> None:
        a = assignment
        self._client = client
        self._incidents = (
            IncidentLog(client, a.source.alias, a.incidents_topic, a.storage_replication_factor)
            if a.incidents_topic
            else None
        )

    def prepare(self, remotes: Sequence[TopicPartition]) -> None:
        """Connections, and what is long known: so that the question takes no longer than it must."""
        self._client.describe_producers(remotes)
        if self._incidents is not None:
            self._incidents.catch_up()

    def ask(
        self, asked: Mapping[Who, tuple[LaneSpec, Position]], *, at_first: bool = False
    ) -> dict[Who, Held | HeliographError]:
        """For all at once. `at_first`: nothing was appended yet, so that a log's end need not be
        asked for where the target knows what we know; that it lost something anyway, the first answer to an append
        will tell. (When epochs change this is the pause, and over distance every question counts.)"""
        states = self._client.describe_producers(list(dict.fromkeys(spec.remote for spec, _ in asked.values())))
        doubtful = {
            spec.remote: None
            for spec, acked in asked.values()
            if not isinstance(state := states[spec.remote], WireError) and not (at_first and _agrees(acked, state))
        }
        ends = self._client.list_offsets(list(doubtful), at="latest") if doubtful else {}
        if self._incidents is not None:
            self._incidents.catch_up()
        found: dict[Who, Held | HeliographError] = {}
        for who, (spec, acked) in asked.items():
            try:
                found[who] = self._held(spec, acked, states[spec.remote], ends.get(spec.remote, -1))
            except WireError as error:
                found[who] = error  # its own affair: the others are not to wait for it
        return found

    def _held(self, spec: LaneSpec, acked: Position, state: States, end: int | BrokerError) -> Held:
        if isinstance(state, WireError):
            raise state
        if isinstance(end, WireError):
            raise end
        if acked.producer_id in state:
            last: int | None = state[acked.producer_id].last_sequence
        elif acked.sequence == 0:
            last = None  # a claim nobody has used yet
        else:
            last = last_sequence_in_log(self._client, spec.remote, acked.producer_id)
        there = already_there(acked, last)
        placed = places(self._client, spec.remote, acked, there) if there > 0 and acked.target >= 0 else []
        return Held(there, tuple(placed), end, self._passed_over(spec, acked))

    def _passed_over(self, spec: LaneSpec, acked: Position) -> frozenset[int]:
        if self._incidents is None:
            return frozenset()
        subject = Subject(spec.tp, spec.topic_id)
        return frozenset(self._incidents.book.held(subject, acked.next_offset, acked.producer_id))


def _agrees(acked: Position, state: Mapping[int, ProducerState]) -> bool:
    """The target counts at least what we do; or there was nothing to count."""
    if acked.producer_id not in state:
        return acked.sequence == 0 and acked.target <= 0
    return already_there(acked, state[acked.producer_id].last_sequence) >= 0

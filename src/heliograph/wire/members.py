"""A member of a group by Kafka's classic protocol: it joins, hears what the leader decided, says that it lives, leaves.

Answers for one round of each and for finding the coordinator; what members tell each other is theirs. Everything that
means "join again now" is Expelled, and the caller does. A coordinator that moves, loads or is not there yet is an error
that may be tried again, and takes its time: asked without a pause, it would only be asked more often. The broker elects
the leader, whoever that is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from heliograph.errors import BrokerError, WireError
from heliograph.wire import codes
from heliograph.wire.calls import Calls
from heliograph.wire.messages import Message

REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, MEMBER_ID_REQUIRED = 27, 22, 79
JOIN_AGAIN = frozenset({REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, codes.UNKNOWN_MEMBER_ID})
JOIN_EXTRA_S = 5.0  # over the time that the coordinator gives the others to come


class Expelled(Exception):
    """Join again; under a new id if the old one is not known any more."""

    def __init__(self, code: int) -> None:
        super().__init__(codes.name_of(code))
        self.forgotten = code == codes.UNKNOWN_MEMBER_ID


@dataclass(frozen=True, slots=True)
class Terms:
    group: str
    kind: str  # the protocol's type: groups of another are refused
    session_timeout_ms: int
    rebalance_timeout_ms: int


@dataclass(frozen=True, slots=True)
class Joined:
    member_id: str
    generation: int
    assignment: bytes


class Member:
    """Of one group. Not thread-safe: one thread joins and beats."""

    def __init__(self, client: Calls, terms: Terms) -> None:
        self._client, self._terms = client, terms
        self._coordinator: int | None = None
        self._member_id = ""

    def join(self, about: bytes, decide: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]) -> Joined:
        """`about` is told to the leader; if that is us, `decide` says what each member is told. Raises Expelled."""
        terms = self._terms
        answer = self._ask(
            "join_group",
            timeout_s=terms.rebalance_timeout_ms / 1000 + JOIN_EXTRA_S,
            session_timeout=terms.session_timeout_ms,
            rebalance_timeout=terms.rebalance_timeout_ms,
            member_id=self._member_id,
            protocol_type=terms.kind,
            protocols=[{"name": terms.kind, "metadata": about}],
        )
        if int(answer.error_code) == MEMBER_ID_REQUIRED:
            self._member_id = str(answer.member_id)
            return self.join(about, decide)
        self._require(answer)
        self._member_id = str(answer.member_id)
        told: Mapping[str, bytes] = {}
        if str(answer.leader) == self._member_id:
            told = decide({str(one.member_id): bytes(one.metadata) for one in answer.members})
        generation = int(answer.generation_id)
        synced = self._ask(
            "sync_group",
            timeout_s=terms.rebalance_timeout_ms / 1000 + JOIN_EXTRA_S,
            generation_id=generation,
            member_id=self._member_id,
            protocol_type=terms.kind,
            protocol_name=terms.kind,
            assignments=[{"member_id": one, "assignment": what} for one, what in told.items()],
        )
        self._require(synced)
        return Joined(self._member_id, generation, bytes(synced.assignment))

    def beat(self, generation: int) -> None:
        """Raises Expelled."""
        answer = self._ask("heartbeat", timeout_s=None, generation_id=generation, member_id=self._member_id)
        self._require(answer)

    def leave(self, timeout_s: float) -> None:
        """So that the others need not wait until we are missed."""
        if self._member_id:
            member = {"member_id": self._member_id, "reason": "it is stopped"}
            self._ask("leave_group", timeout_s=timeout_s, members=[member], member_id=self._member_id)

    def _ask(self, api: str, *, timeout_s: float | None, **fields: Any) -> Message:
        if self._coordinator is None:
            found = self._client.call(
                "find_coordinator", key_type=0, coordinator_keys=[self._terms.group], key=self._terms.group
            )
            one = found.coordinators[0] if hasattr(found, "coordinators") else found
            if int(one.error_code):
                raise self._error(int(one.error_code))
            self._coordinator = int(one.node_id)
        try:
            return self._client.call(
                api, broker=self._coordinator, timeout_s=timeout_s, retry=False, group_id=self._terms.group, **fields
            )
        except WireError:
            self._coordinator = None  # it may be another next time
            raise

    def _require(self, answer: Message) -> None:
        code = int(answer.error_code)
        if not code:
            return
        if code in codes.COORDINATOR_MOVED:
            self._coordinator = None
        if code == codes.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code in JOIN_AGAIN:
            raise Expelled(code)
        raise self._error(code)

    def _error(self, code: int) -> BrokerError:
        return codes.broker_error(code, "", cluster=self._client.alias, group=self._terms.group)

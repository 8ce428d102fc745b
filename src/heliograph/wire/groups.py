"""Consumer groups as an administrator sees them: which there are, how they fare, what they committed.

Answers for the shape of these calls, for finding the broker that coordinates a group and for asking again when that
changed. A failure of one group is a value, not an exception. Nobody joins a group here, and whether an offset may be
written is decided elsewhere: the broker only refuses it while the group has members.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from heliograph.errors import BrokerError, ProtocolError, VersionUnsupported, WireError
from heliograph.types import TopicPartition
from heliograph.wire import codes
from heliograph.wire.backoff import Backoff
from heliograph.wire.calls import Calls, sleep
from heliograph.wire.messages import Message

T = TypeVar("T")
# (broker, groups, seconds left) -> a result for each group, or for some of them.
_Ask: TypeAlias = Callable[[int, Sequence[str], float], Mapping[str, T | BrokerError]]

DEAD = "Dead"  # Kafka's word for a group that is not there
EMPTY = "Empty"  # offsets, but no members

# As Java's Admin.listConsumerGroups: "" are groups nobody ever joined, whose offsets a tool committed. Groups of
# KIP-848 say "consumer" too; Connect's, share and streams groups say something else.
_CONSUMER_PROTOCOLS = ("consumer", "")
_GROUP_KEYS = 0  # FindCoordinator: group ids, not transactional ids
# Groups in one request. A group may have thousands of partitions and members, and the answer is one frame.
_AT_ONCE = 100
# From these versions on topics go by id, and a committed offset may be of a topic that is gone and has none.
_LAST_FETCH_BY_NAME = 9
_LAST_COMMIT_BY_NAME = 9


@dataclass(frozen=True, slots=True)
class Committed:
    """The next offset a group will read of a partition. `leader_epoch` -1: not known."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def list_all(client: Calls, *, timeout_s: float) -> dict[str, str]:
    """Group id -> state, of all brokers. A part of the answer would look like groups that were deleted, so while one
    broker cannot tell, all are asked again: its groups may have moved to one that has answered already."""
    deadline = time.monotonic() + timeout_s
    pause = Backoff()
    while True:
        try:
            return _list(client, deadline)
        except WireError as error:
            if not error.retriable or not sleep(pause, deadline):
                raise


def _list(client: Calls, deadline: float) -> dict[str, str]:
    found: dict[str, str] = {}
    for broker in sorted(client.metadata([], timeout_s=_left_s(deadline)).brokers):
        answer = client.call("list_groups", broker=broker, timeout_s=_left_s(deadline), retry=False)
        if answer.error_code:
            raise codes.broker_error(answer.error_code, "ListGroups", cluster=client.alias, broker=broker)
        for group in answer.groups:
            if str(group.protocol_type) in _CONSUMER_PROTOCOLS:
                found[str(group.group_id)] = str(group.group_state)
    return found


def offsets(
    client: Calls, groups: Iterable[str], *, timeout_s: float
) -> dict[str, dict[TopicPartition, Committed] | BrokerError]:
    """All that each group committed. Nothing ({}) for a group that is not there."""

    def ask(
        broker: int, some: Sequence[str], left_s: float
    ) -> dict[str, dict[TopicPartition, Committed] | BrokerError]:
        answer = client.call(
            "offset_fetch",
            broker=broker,
            timeout_s=left_s,
            retry=False,
            at_most=_LAST_FETCH_BY_NAME,
            groups=[{"group_id": group, "topics": None} for group in some],  # from v8
            group_id=some[0],  # until v7, which answers for this one alone
            topics=None,
            require_stable=False,  # what is committed so far, also while a transaction is open
        )
        if not hasattr(answer, "groups"):
            return {some[0]: _committed(client, some[0], answer)}
        return {str(one.group_id): _committed(client, str(one.group_id), one) for one in answer.groups}

    return _per_coordinator(client, groups, ask, timeout_s)


def _committed(client: Calls, group: str, answer: Message) -> dict[TopicPartition, Committed] | BrokerError:
    code = int(answer.error_code)
    if code == codes.GROUP_ID_NOT_FOUND:
        return {}
    if code:
        return _error(client, code, group)
    return {
        TopicPartition(str(topic.name), int(part.partition_index)): Committed(
            int(part.committed_offset), int(part.committed_leader_epoch), part.metadata or ""
        )
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code and part.committed_offset >= 0
    }


def states(client: Calls, groups: Iterable[str], *, timeout_s: float) -> dict[str, str | BrokerError]:
    """Kafka's word for each: Empty, Stable, PreparingRebalance …; Dead for one that is not there."""
    deadline = time.monotonic() + timeout_s
    found = _per_coordinator(client, groups, _describer(client, "describe_groups", "groups"), timeout_s)
    # Of a group of the new protocol (KIP-848) the classic call says that there is none.
    unknown = [group for group, state in found.items() if state == DEAD]
    try:
        ask = _describer(client, "consumer_group_describe", "group_ids")
        found.update(_per_coordinator(client, unknown, ask, _left_s(deadline)))
    except VersionUnsupported:
        pass  # brokers before 3.7 have no such groups
    return found


def _describer(client: Calls, api: str, key: str) -> _Ask[str]:
    def ask(broker: int, some: Sequence[str], left_s: float) -> dict[str, str | BrokerError]:
        fields: dict[str, Any] = {key: some, "include_authorized_operations": False}
        answer = client.call(api, broker=broker, timeout_s=left_s, retry=False, **fields)
        return {str(one.group_id): _state(client, one) for one in answer.groups}

    return ask


def _state(client: Calls, described: Any) -> str | BrokerError:
    code = int(described.error_code)
    # UNSUPPORTED_VERSION: a broker of 3.x that knows the new protocol and has it switched off.
    if code in (codes.GROUP_ID_NOT_FOUND, codes.UNSUPPORTED_VERSION):
        return DEAD
    if code:
        return _error(client, code, str(described.group_id), getattr(described, "error_message", ""))
    return str(described.group_state)


def commit(
    client: Calls, group: str, wanted: Mapping[TopicPartition, Committed], *, timeout_s: float
) -> dict[TopicPartition, BrokerError | None]:
    """As a tool does it, without being a member: refused by the broker (UNKNOWN_MEMBER_ID) while the group has any.
    Epochs are of the cluster they were read from, so none is sent."""
    if not wanted:
        return {}
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, committed in wanted.items():
        part = {
            "partition_index": tp.partition,
            "committed_offset": committed.offset,
            "committed_leader_epoch": -1,
            "committed_metadata": committed.metadata,
        }
        topics.setdefault(tp.topic, []).append(part)

    def ask(
        broker: int, some: Sequence[str], left_s: float
    ) -> dict[str, dict[TopicPartition, BrokerError | None] | BrokerError]:
        answer = client.call(
            "offset_commit",
            broker=broker,
            timeout_s=left_s,
            retry=False,
            at_most=_LAST_COMMIT_BY_NAME,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": name, "partitions": parts} for name, parts in topics.items()],
        )
        return {group: _commits(client, group, answer)}

    result = _per_coordinator(client, [group], ask, timeout_s)[group]
    return dict.fromkeys(wanted, result) if isinstance(result, BrokerError) else result


def _commits(client: Calls, group: str, answer: Message) -> dict[TopicPartition, BrokerError | None] | BrokerError:
    results: dict[TopicPartition, BrokerError | None] = {}
    for topic in answer.topics:
        for part in topic.partitions:
            tp, code = TopicPartition(str(topic.name), int(part.partition_index)), int(part.error_code)
            if code in codes.COORDINATOR_MOVED:
                return _error(client, code, group)
            results[tp] = (
                codes.broker_error(code, cluster=client.alias, group=group, topic=tp.topic, partition=tp.partition)
                if code
                else None
            )
    return results


# -- by coordinator ----------------------------------------------------------------------------------------------------


def _per_coordinator(
    client: Calls, groups: Iterable[str], ask: _Ask[T], timeout_s: float
) -> dict[str, T | BrokerError]:
    """`ask` of each coordinator. Groups whose coordinator moved are asked again where they are now, until the time is
    over."""
    deadline = time.monotonic() + timeout_s
    pause = Backoff()
    left = list(dict.fromkeys(groups))
    done: dict[str, T | BrokerError] = {}
    while left:
        for broker, its in _coordinators(client, left, done, deadline).items():
            done.update(_ask_all(client, ask, broker, its, deadline))
        left = [group for group in left if _moved(done[group])]
        if left and not sleep(pause, deadline):
            break
    return done


def _ask_all(
    client: Calls, ask: _Ask[T], broker: int, groups: Sequence[str], deadline: float
) -> dict[str, T | BrokerError]:
    """By portions; what an answer leaves out is asked next. A broker that is gone is like a coordinator that moved."""
    left = list(groups)
    done: dict[str, T | BrokerError] = {}
    while left:
        try:
            answers = ask(broker, left[:_AT_ONCE], _left_s(deadline))
        except WireError as error:
            if isinstance(error, BrokerError) or not error.retriable:
                raise
            gone = {g: _error(client, codes.COORDINATOR_NOT_AVAILABLE, g, error.message) for g in left}
            return {**done, **gone}
        if answers.keys().isdisjoint(left):
            raise ProtocolError(f"{client.alias}: broker {broker} did not answer for {left[0]}", cluster=client.alias)
        done.update(answers)
        left = [group for group in left if group not in done]
    return done


def _coordinators(client: Calls, groups: Sequence[str], done: dict[str, Any], deadline: float) -> dict[int, list[str]]:
    """Groups by the broker that coordinates them; those without one get an error in `done`."""
    homes: dict[int, list[str]] = {}
    left = list(groups)
    while left:
        some = left[:_AT_ONCE]
        answer = client.call(
            "find_coordinator",
            timeout_s=_left_s(deadline),
            key_type=_GROUP_KEYS,
            coordinator_keys=some,  # from v4
            key=some[0],  # until v3, which answers for this one alone
        )
        several = hasattr(answer, "coordinators")
        for found in answer.coordinators if several else [answer]:
            group, code = str(found.key) if several else some[0], int(found.error_code)
            if code:
                done[group] = _error(client, code, group, found.error_message)
            else:
                homes.setdefault(int(found.node_id), []).append(group)
        left = left[len(some) if several else 1 :]
    return homes


def _moved(result: object) -> bool:
    return isinstance(result, BrokerError) and result.code in codes.COORDINATOR_MOVED


def _error(client: Calls, code: int, group: str, message: str | None = "") -> BrokerError:
    return codes.broker_error(code, message, cluster=client.alias, group=group)


def _left_s(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.01)

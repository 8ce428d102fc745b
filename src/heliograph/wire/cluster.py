"""A cluster as a whole: bootstrap, metadata, leaders, and calls that wait and retry.

Answers for control traffic: coordinators, the metadata of tasks, positions. Not for the data path, which owns its
connections and never blocks. One lock: a Client may be shared by threads, and serves them one after the other.

Retries: lost and unreachable brokers always, with backoff, until the call's timeout; error codes where it says so. A
lost connection may hide a call that was done, so what is retried here is safe to do twice (a second CreateTopics says
TOPIC_ALREADY_EXISTS; a batch with a sequence is stored once). A batch without a sequence is not sent again once the
broker may have stored it: the caller gets an error and the outcome is unknown.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from heliograph.errors import BrokerError, ConnectionLost, TimedOut
from heliograph.types import Isolation, TopicPartition
from heliograph.wire import acls, codes, groups, placement, topics
from heliograph.wire.acks import Produced, produced
from heliograph.wire.acls import Acl
from heliograph.wire.backoff import Backoff
from heliograph.wire.calls import QUESTION_S, Calls, sleep
from heliograph.wire.connection import Connection
from heliograph.wire.fetch import FetchSession
from heliograph.wire.fetched import FIRST_VERSION_WITH_TOPIC_IDS, Fetched
from heliograph.wire.groups import Committed
from heliograph.wire.messages import Buffer, Message, build
from heliograph.wire.produce import produce_request
from heliograph.wire.topics import ConfigEntry, Foreseen, NewTopic

T = TypeVar("T")

_TIMESTAMPS = {"earliest": -2, "latest": -1, "log_end": -1}
# ListOffsets answers consumers with the high watermark, any other replica id with the log end offset.
_CONSUMER_REPLICA_ID, _DEBUGGING_REPLICA_ID = -1, -2
# Of a call that brings records, at least: over a slow link a batch takes its time, however short calls are to be.
FETCH_S = 30.0
# Error codes after which the leader has the batch in its log all the same: not replicated in time.
_MAYBE_STORED = frozenset({codes.REQUEST_TIMED_OUT, codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
_PRODUCER_ID, _INT64 = slice(43, 51), struct.Struct(">q")  # of a v2 record batch; `batch` is not ours to import
# Requests in flight at a time when many are sent on one connection: enough to hide a long round trip.
_PIPELINE = 64


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition's leader holds of one producer id."""

    epoch: int
    last_sequence: int
    last_timestamp: int


class Client(Calls):
    """What coordinators and tasks ask of a cluster. Blocking, thread-safe; close it, or use it by `with`."""

    # -- offsets, producers ------------------------------------------------------------------------------------------

    def list_offsets(
        self,
        tps: Iterable[TopicPartition],
        *,
        at: Literal["earliest", "latest", "log_end"] | int,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int | BrokerError]:
        """The first or next offset of each, or the first with this time (ms) or later (-1: none). With read_committed,
        latest is the last stable offset. `latest` is the high watermark; `log_end` is the leader's log end offset,
        which also counts batches that the followers do not have yet."""
        when = _TIMESTAMPS[at] if isinstance(at, str) else at
        replica_id = _DEBUGGING_REPLICA_ID if at == "log_end" else _CONSUMER_REPLICA_ID

        def partition(tp: TopicPartition) -> dict[str, int]:
            # Followers answer a debugging replica too, with their own log end. The epoch keeps them from it.
            epoch = self._leader_epoch(tp) if at == "log_end" else -1
            return {"partition_index": tp.partition, "current_leader_epoch": epoch, "timestamp": when}

        def ask(broker: int, group: list[TopicPartition], left_s: float) -> dict[TopicPartition, int | BrokerError]:
            answer = self.call(
                "list_offsets",
                broker=broker,
                timeout_s=left_s,
                retry=False,
                replica_id=replica_id,
                isolation_level=int(isolation == "read_committed"),
                timeout=int(left_s * 1000),
                topics=[
                    {"name": name, "partitions": [partition(TopicPartition(name, p)) for p in parts]}
                    for name, parts in _by_topic(group).items()
                ],
            )
            return self._read(answer, lambda part: int(part.offset))

        return self._per_leader(tps, ask, timeout_s, each_s=QUESTION_S)

    def epoch_end_offsets(
        self, epochs: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int | BrokerError]:
        """Where the records of each leader epoch end in the log as it is now (KIP-320); -1: the leader does not know
        the epoch. Below an offset that was read in that epoch, the log was truncated since."""

        def ask(broker: int, group: list[TopicPartition], left_s: float) -> dict[TopicPartition, int | BrokerError]:
            named = [
                {
                    "topic": name,
                    "partitions": [{"partition": p, "leader_epoch": epochs[TopicPartition(name, p)]} for p in parts],
                }
                for name, parts in _by_topic(group).items()
            ]
            answer = self.call(
                "offset_for_leader_epoch", broker=broker, timeout_s=left_s, retry=False, replica_id=-1, topics=named
            )
            found: dict[TopicPartition, int | BrokerError] = {}
            for topic in answer.topics:
                for part in topic.partitions:
                    tp, code = TopicPartition(str(topic.topic), int(part.partition)), int(part.error_code)
                    found[tp] = self._error(code, tp) if code else int(part.end_offset)
            return found

        return self._per_leader(epochs, ask, timeout_s, each_s=QUESTION_S)

    def describe_producers(
        self, tps: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, dict[int, ProducerState] | BrokerError]:
        """Producer id -> its last sequence, as the leader of each partition holds it. VersionUnsupported before 2.8."""

        def ask(
            broker: int, group: list[TopicPartition], left_s: float
        ) -> dict[TopicPartition, dict[int, ProducerState] | BrokerError]:
            named = [{"name": name, "partition_indexes": parts} for name, parts in _by_topic(group).items()]
            answer = self.call("describe_producers", broker=broker, timeout_s=left_s, retry=False, topics=named)
            return self._read(answer, _producers)

        return self._per_leader(tps, ask, timeout_s, each_s=QUESTION_S)

    def _read(self, answer: Message, value: Callable[[Any], T]) -> dict[TopicPartition, T | BrokerError]:
        found: dict[TopicPartition, T | BrokerError] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                tp = TopicPartition(str(topic.name), int(part.partition_index))
                code = int(part.error_code)
                found[tp] = self._error(code, tp, getattr(part, "error_message", "")) if code else value(part)
        return found

    def init_producer_ids(self, count: int, *, timeout_s: float | None = None) -> list[tuple[int, int]]:
        """(producer id, epoch) `count` times, without transactional ids; pipelined on one connection."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        pause = Backoff()
        found: list[tuple[int, int]] = []
        while True:
            left_s = max(deadline - time.monotonic(), 0.01)
            last_error = self._with(lambda c, end: _init_producer_ids(c, count, found, end), timeout_s=left_s)
            if len(found) >= count:
                return found
            if not codes.is_retriable(last_error) or not sleep(pause, deadline):
                raise codes.broker_error(last_error, "InitProducerId", cluster=self.alias)

    # -- topics ------------------------------------------------------------------------------------------------------

    def create_topics(
        self, specs: Sequence[NewTopic], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, BrokerError | None]:
        return topics.create(self, specs, validate_only=validate_only, timeout_s=timeout_s or self.timeout_s)

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, BrokerError | None]:
        """Topic -> how many partitions it shall have in all."""
        return topics.grow(self, counts, validate_only=validate_only, timeout_s=timeout_s or self.timeout_s)

    def delete_topics(self, names: Iterable[str], *, timeout_s: float | None = None) -> dict[str, BrokerError | None]:
        return topics.delete(self, names, timeout_s=timeout_s or self.timeout_s)

    def describe_topic_configs(
        self, names: Iterable[str], *, inherited: bool = False, timeout_s: float | None = None
    ) -> dict[str, dict[str, ConfigEntry] | BrokerError]:
        """Topic -> setting -> its value and where that comes from; with `inherited` also what it would be otherwise."""
        return topics.describe_configs(self, names, inherited=inherited, timeout_s=timeout_s or self.timeout_s)

    def alter_topic_configs(
        self,
        changes: Mapping[str, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, BrokerError | None]:
        """Topic -> setting -> its new value; None: no value of the topic's own. What is not named stays."""
        return topics.alter_configs(self, changes, validate_only=validate_only, timeout_s=timeout_s or self.timeout_s)

    def foresee_topics(self, specs: Sequence[NewTopic]) -> dict[str, Foreseen | BrokerError]:
        """What `create_topics` would make, or why not."""
        return topics.foresee(self, specs, timeout_s=self.timeout_s) if specs else {}

    # -- brokers and replicas ----------------------------------------------------------------------------------------

    def registered_brokers(self, at_least: int = 0, *, timeout_s: float | None = None) -> dict[int, bool]:
        """Broker id -> whether it is up (`placement.registered`)."""
        return placement.registered(self, at_least=at_least, timeout_s=timeout_s or self.timeout_s)

    def broker_racks(self) -> dict[int, str | None]:
        """Broker that is up -> its rack."""
        return placement.racks(self, timeout_s=self.timeout_s)

    def reassign(
        self, replicas: Mapping[TopicPartition, Sequence[int]], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Partition -> the brokers that shall hold it. Answered when the controller knows; moving takes longer."""
        return placement.reassign(self, replicas, timeout_s=timeout_s or self.timeout_s)

    def reassignments(self, tps: Iterable[TopicPartition], *, timeout_s: float | None = None) -> set[TopicPartition]:
        """Those of these partitions whose reassignment is under way."""
        return placement.under_way(self, list(tps), timeout_s=timeout_s or self.timeout_s)

    def log_sizes(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int | BrokerError]:
        """Bytes on the disks of each partition's leader. Asks for DESCRIBE on the cluster."""

        def ask(broker: int, group: list[TopicPartition], left_s: float) -> dict[TopicPartition, int | BrokerError]:
            named = [{"topic": name, "partitions": parts} for name, parts in _by_topic(group).items()]
            answer = self.call("describe_log_dirs", broker=broker, timeout_s=left_s, retry=False, topics=named)
            return self._sizes(answer, group)

        return self._per_leader(tps, ask, None)

    def _sizes(self, answer: Message, group: list[TopicPartition]) -> dict[TopicPartition, int | BrokerError]:
        """Who may not ask gets an empty list, with an error only in newer versions."""
        code = int(getattr(answer, "error_code", 0)) or codes.CLUSTER_AUTHORIZATION_FAILED
        found: dict[TopicPartition, int | BrokerError] = {tp: self._error(code, tp) for tp in group}
        for folder in answer.results:
            for topic in folder.topics:
                for part in topic.partitions:
                    if not part.is_future_key:
                        found[TopicPartition(str(topic.name), int(part.partition_index))] = int(part.partition_size)
        return found

    # -- permissions -------------------------------------------------------------------------------------------------

    def describe_acls(self, *, timeout_s: float | None = None) -> list[Acl] | BrokerError:
        """Every permission on topics. The BrokerError is SECURITY_DISABLED where there is no authorizer."""
        return acls.describe(self, timeout_s=timeout_s or self.timeout_s)

    def create_acls(self, wanted: Sequence[Acl], *, timeout_s: float | None = None) -> dict[Acl, BrokerError | None]:
        return acls.create(self, wanted, timeout_s=timeout_s or self.timeout_s)

    # -- consumer groups ---------------------------------------------------------------------------------------------

    def list_groups(self, *, timeout_s: float | None = None) -> dict[str, str]:
        """Every consumer group of the cluster -> its state. Raises if not every broker can be asked."""
        return groups.list_all(self, timeout_s=timeout_s or self.timeout_s)

    def describe_groups(self, names: Iterable[str], *, timeout_s: float | None = None) -> dict[str, str | BrokerError]:
        """Group -> Empty, Stable …, or Dead when there is none of this name."""
        return groups.states(self, names, timeout_s=timeout_s or self.timeout_s)

    def group_offsets(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, dict[TopicPartition, Committed] | BrokerError]:
        """What each group committed, of all topics."""
        return groups.offsets(self, names, timeout_s=timeout_s or self.timeout_s)

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Committed], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Written without being a member; the broker refuses it (UNKNOWN_MEMBER_ID) while the group has members."""
        return groups.commit(self, group, offsets, timeout_s=timeout_s or self.timeout_s)

    # -- small reads and writes --------------------------------------------------------------------------------------

    def produce(self, tp: TopicPartition, batch: Buffer, *, acks: int = -1, timeout_s: float | None = None) -> Produced:
        """Append one batch; waits for the leader's word. Raises BrokerError if it says no for good. A batch with a
        sequence is sent until it is acknowledged; one without is sent again only while it cannot be stored yet."""
        stored_once = _has_sequence(batch)

        def ask(
            broker: int, group: list[TopicPartition], left_s: float
        ) -> dict[TopicPartition, Produced | BrokerError]:
            def send(connection: Connection, end: float) -> Produced:
                parts = [(tp.topic, tp.partition, batch)]
                timeout_ms = int(left_s * 1000)
                request = produce_request(connection.version("produce"), parts, acks=acks, timeout_ms=timeout_ms)
                return produced(connection.call(request, timeout_s=end - time.monotonic()))[0]

            try:
                result = self._with(send, broker=broker, timeout_s=left_s, retry=False)
            except (ConnectionLost, TimedOut) as error:
                if stored_once:
                    raise
                raise self._unknown_outcome(tp, error.message) from error
            if result.error in _MAYBE_STORED and not stored_once:
                raise self._unknown_outcome(tp, result.message)
            return {tp: self._error(result.error, tp, result.message) if result.error else result}

        return _value(self._per_leader([tp], ask, timeout_s)[tp])

    def _unknown_outcome(self, tp: TopicPartition, why: str) -> BrokerError:
        text = f"the batch has no sequence and may have been stored, so it is not sent again: {why}"
        return self._error(codes.REQUEST_TIMED_OUT, tp, text)

    def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        isolation: Isolation = "read_uncommitted",
        topic_id: uuid.UUID | None = None,
        timeout_s: float | None = None,
    ) -> Fetched:
        """One read of one partition, outside any session. Raises BrokerError (OFFSET_OUT_OF_RANGE, say). With
        `topic_id`, only from the topic with this id: INCONSISTENT_TOPIC_ID once the name belongs to another."""
        pinned = topic_id

        def ask(broker: int, group: list[TopicPartition], left_s: float) -> dict[TopicPartition, Fetched | BrokerError]:
            def send(connection: Connection, end: float) -> Fetched | None:
                topic_id = self._topic_id(tp.topic)
                if pinned is not None and topic_id != pinned:
                    text = f"the topic was recreated: its id is {topic_id}, not {pinned}"
                    raise self._error(codes.INCONSISTENT_TOPIC_ID, tp, text)
                at_most = FIRST_VERSION_WITH_TOPIC_IDS - 1 if topic_id is None else None
                once = FetchSession(
                    connection.version("fetch", at_most=at_most),
                    isolation=isolation,
                    max_wait_ms=max_wait_ms,
                    max_bytes=max_bytes,
                    once=True,
                )
                once.want(tp, offset, topic_id=topic_id, max_bytes=max_bytes)
                found = once.take(connection.call(once.request(), timeout_s=end - time.monotonic()))
                return found[0] if found else None

            found = self._with(send, broker=broker, timeout_s=left_s, retry=False)
            if found is None:
                return {tp: self._error(codes.UNKNOWN_TOPIC_ID, tp)}
            return {tp: self._error(found.error, tp) if found.error else found}

        timeout_s = max(self.timeout_s, FETCH_S) if timeout_s is None else timeout_s
        return _value(self._per_leader([tp], ask, timeout_s)[tp])


def _value(result: T | BrokerError) -> T:
    if isinstance(result, BrokerError):
        raise result
    return result


def _has_sequence(batch: Buffer) -> bool:
    """Whether a v2 batch names a producer id: brokers store such a batch once."""
    return len(batch) >= _PRODUCER_ID.stop and _INT64.unpack(bytes(batch[_PRODUCER_ID]))[0] >= 0


def _by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for tp in tps:
        grouped.setdefault(tp.topic, []).append(tp.partition)
    return grouped


def _producers(part: Any) -> dict[int, ProducerState]:
    return {
        int(one.producer_id): ProducerState(int(one.producer_epoch), int(one.last_sequence), int(one.last_timestamp))
        for one in part.active_producers
    }


def _init_producer_ids(connection: Connection, count: int, found: list[tuple[int, int]], deadline: float) -> int:
    """Adds to `found`; returns the last error code."""
    version = connection.version("init_producer_id")
    request = build("init_producer_id", version, transactional_id=None, transaction_timeout=0)
    error = 0
    while len(found) < count and not error:
        burst = min(count - len(found), _PIPELINE)
        for answer in connection.call_many([request] * burst, timeout_s=deadline - time.monotonic()):
            if answer.error_code:
                error = int(answer.error_code)
            else:
                found.append((int(answer.producer_id), int(answer.producer_epoch)))
    return error

"""A cluster as a whole: bootstrap, metadata, leaders, and calls that wait and retry.

Answers for control traffic: coordinators, the metadata of tasks, positions. Not for the data path, which owns its
connections and never blocks. One lock: a Client may be shared by threads, and serves them one after the other.

Retries: lost and unreachable brokers always, with backoff, until the call's timeout; error codes where it says so. A
lost connection may hide a call that was done, so what is retried here is safe to do twice (a second CreateTopics says
TOPIC_ALREADY_EXISTS; a batch with a sequence is stored once).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from heliograph.errors import BrokerError, WireError
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import codes, metadata, topics
from heliograph.wire.backoff import Backoff
from heliograph.wire.connection import Connection
from heliograph.wire.fetch import FIRST_VERSION_WITH_TOPIC_IDS, Fetched, FetchSession, Isolation
from heliograph.wire.messages import Buffer, Message, build
from heliograph.wire.metadata import Metadata, TopicMeta
from heliograph.wire.pool import Pool
from heliograph.wire.produce import Produced, produce_request, produced
from heliograph.wire.topics import ConfigEntry, NewTopic

T = TypeVar("T")

_TIMESTAMPS = {"earliest": -2, "latest": -1}
# Requests in flight at a time when many are sent on one connection: enough to hide a long round trip.
_PIPELINE = 64
# A topic just created may be unknown to the next broker asked for a moment; after that it is not there.
_PROPAGATION_S = 2.0


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition's leader holds of one producer id."""

    epoch: int
    last_sequence: int
    last_timestamp: int


class Client:
    """Blocking calls on a cluster. Thread-safe by one lock. Close it, or use it as a context manager."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str = "heliograph",
        timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s  # of a call, unless the call says otherwise
        self._lock = threading.RLock()
        self._pool = Pool(cluster, client_id, connect_timeout_s)
        self._topics: dict[str, TopicMeta] = {}
        self._controller = -1
        self._cluster_id = ""

    @property
    def alias(self) -> str:
        return self.cluster.alias

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(
        self,
        api: str,
        *,
        broker: int | None = None,
        controller: bool = False,
        timeout_s: float | None = None,
        at_most: int | None = None,
        retry: bool = True,
        **fields: Any,
    ) -> Message:
        """One request to any broker, to this one, or to the controller; the response as kio has it. Error codes inside
        it are the caller's to read. Without `retry` a connection that fails is the end of it."""

        def ask(connection: Connection, deadline: float) -> Message:
            request = build(api, connection.version(api, at_most=at_most), **fields)
            return connection.call(request, timeout_s=deadline - time.monotonic())

        return self._with(ask, broker=broker, controller=controller, timeout_s=timeout_s, retry=retry)

    def call_controller(self, api: str, *, timeout_s: float, **fields: Any) -> Message:
        """As call(controller=True), and asks again while any result says NOT_CONTROLLER (clusters with ZooKeeper)."""
        deadline = time.monotonic() + timeout_s
        pause = Backoff()
        while True:
            answer = self.call(api, controller=True, timeout_s=deadline - time.monotonic(), **fields)
            results = next(getattr(answer, n) for n in ("topics", "results", "responses") if hasattr(answer, n))
            moved = any(int(result.error_code) == codes.NOT_CONTROLLER for result in results)
            if not moved or not _sleep(pause, deadline):
                return answer
            self.metadata([])

    def _with(
        self,
        ask: Callable[[Connection, float], T],
        *,
        broker: int | None = None,
        controller: bool = False,
        timeout_s: float | None = None,
        retry: bool = True,
    ) -> T:
        """Runs `ask` on a connection, again on another while connections fail and there is time."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        pause = Backoff()
        with self._lock:
            while True:
                try:
                    return ask(self._connection(broker, controller, deadline), deadline)
                except WireError as error:
                    if broker is not None or controller:
                        self._forget_addresses()
                    if isinstance(error, BrokerError) or not error.retriable or not retry:
                        raise
                    if not _sleep(pause, deadline):
                        raise

    def _connection(self, broker: int | None, controller: bool, deadline: float) -> Connection:
        if broker is None and not controller:
            return self._pool.to_any(deadline)
        if not self._cluster_id:
            self._refresh([], deadline)
        if controller:
            # KRaft names any broker; it forwards. -1 is an election in ZooKeeper: any broker will say so.
            return (
                self._pool.to_any(deadline)
                if self._controller < 0
                else self._pool.to_broker(self._controller, deadline)
            )
        assert broker is not None
        return self._pool.to_broker(broker, deadline)

    def _forget_addresses(self) -> None:
        self._cluster_id = ""  # the next use asks again

    # -- metadata ----------------------------------------------------------------------------------------------------

    def metadata(self, topics: Sequence[str] | None = None, *, timeout_s: float | None = None) -> Metadata:
        """Fresh from a broker. None: all topics. Never creates a topic."""

        def ask(connection: Connection, deadline: float) -> Metadata:
            return self._ask_metadata(connection, topics, deadline)

        return self._with(ask, timeout_s=timeout_s)

    def _ask_metadata(self, connection: Connection, names: Sequence[str] | None, deadline: float) -> Metadata:
        request = build("metadata", connection.version("metadata"), **metadata.request_fields(names))
        found = metadata.read(connection.call(request, timeout_s=deadline - time.monotonic()))
        if names is None:
            self._topics.clear()
        self._topics.update(found.topics)
        self._controller, self._cluster_id = found.controller, found.cluster_id
        self._pool.learn(found)
        return found

    def _refresh(self, names: Sequence[str], deadline: float) -> None:
        self._ask_metadata(self._pool.to_any(deadline), names, deadline)

    def cluster_id(self) -> str:
        with self._lock:
            return self._cluster_id or self.metadata([]).cluster_id

    # -- by leader ---------------------------------------------------------------------------------------------------

    def _per_leader(
        self,
        tps: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition], float], Mapping[TopicPartition, T | BrokerError]],
        timeout_s: float | None,
    ) -> dict[TopicPartition, T | BrokerError]:
        """`ask(broker, partitions, seconds left)` for each leader; what fails for a reason that passes is asked again,
        with fresh metadata, until the time is over."""
        began = time.monotonic()
        deadline = began + (self.timeout_s if timeout_s is None else timeout_s)
        pause = Backoff()
        left = dict.fromkeys(tps)
        done: dict[TopicPartition, T | BrokerError] = {}
        while left:
            groups = self._leaders(left, done, deadline)
            for broker, group in groups.items():
                done.update(self._ask_leader(ask, broker, group, deadline))
            absent_is_final = time.monotonic() - began > _PROPAGATION_S
            left = {tp: None for tp in left if _may_retry(done.get(tp), absent_is_final)}
            if left and not _sleep(pause, deadline):
                break
            for topic in {tp.topic for tp in left}:
                self._topics.pop(topic, None)
        return done

    def _ask_leader(
        self,
        ask: Callable[[int, list[TopicPartition], float], Mapping[TopicPartition, T | BrokerError]],
        broker: int,
        group: list[TopicPartition],
        deadline: float,
    ) -> Mapping[TopicPartition, T | BrokerError]:
        """A broker that is gone is like a leader that moved: do not insist, ask the cluster who leads now."""
        try:
            return ask(broker, group, max(deadline - time.monotonic(), 0.01))
        except WireError as error:
            if isinstance(error, BrokerError) or not error.retriable:
                raise
            return {tp: self._error(codes.LEADER_NOT_AVAILABLE, tp, error.message) for tp in group}

    def _leaders(
        self, tps: Iterable[TopicPartition], done: dict[TopicPartition, Any], deadline: float
    ) -> dict[int, list[TopicPartition]]:
        """Partitions by the broker that leads them; those without one get an error in `done`."""
        with self._lock:
            missing = {tp.topic for tp in tps if tp.topic not in self._topics or not self._cluster_id}
            if missing:
                self.metadata(sorted(missing), timeout_s=max(deadline - time.monotonic(), 0.01))
            groups: dict[int, list[TopicPartition]] = {}
            for tp in tps:
                topic = self._topics.get(tp.topic)
                part = topic.partitions.get(tp.partition) if topic else None
                if part is not None and part.leader >= 0:
                    groups.setdefault(part.leader, []).append(tp)
                else:
                    code = (topic.error if topic else 0) or (part.error if part else codes.UNKNOWN_TOPIC_OR_PARTITION)
                    done[tp] = self._error(code or codes.LEADER_NOT_AVAILABLE, tp)
            return groups

    def _error(self, code: int, tp: TopicPartition, message: str | None = "") -> BrokerError:
        return codes.broker_error(code, message, cluster=self.alias, topic=tp.topic, partition=tp.partition)

    # -- offsets, producers ------------------------------------------------------------------------------------------

    def list_offsets(
        self,
        tps: Iterable[TopicPartition],
        *,
        at: Literal["earliest", "latest"] | int,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int | BrokerError]:
        """The first or next offset of each, or the first with this time (ms) or later (-1: none). With read_committed,
        latest is the last stable offset."""
        when = _TIMESTAMPS[at] if isinstance(at, str) else at

        def ask(broker: int, group: list[TopicPartition], left_s: float) -> dict[TopicPartition, int | BrokerError]:
            answer = self.call(
                "list_offsets",
                broker=broker,
                timeout_s=left_s,
                retry=False,
                replica_id=-1,
                isolation_level=int(isolation == "read_committed"),
                timeout=int(left_s * 1000),
                topics=[
                    {"name": name, "partitions": [{"partition_index": p, "timestamp": when} for p in parts]}
                    for name, parts in _by_topic(group).items()
                ],
            )
            return self._read(answer, lambda part: int(part.offset))

        return self._per_leader(tps, ask, timeout_s)

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

        return self._per_leader(tps, ask, timeout_s)

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
            if not codes.is_retriable(last_error) or not _sleep(pause, deadline):
                raise codes.broker_error(last_error, "InitProducerId", cluster=self.alias)

    # -- topics ------------------------------------------------------------------------------------------------------

    def create_topics(
        self, specs: Sequence[NewTopic], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, BrokerError | None]:
        return topics.create(self, specs, validate_only=validate_only, timeout_s=timeout_s or self.timeout_s)

    def create_partitions(
        self, counts: Mapping[str, int], *, timeout_s: float | None = None
    ) -> dict[str, BrokerError | None]:
        """Topic -> how many partitions it shall have in all."""
        return topics.grow(self, counts, timeout_s=timeout_s or self.timeout_s)

    def delete_topics(self, names: Iterable[str], *, timeout_s: float | None = None) -> dict[str, BrokerError | None]:
        return topics.delete(self, names, timeout_s=timeout_s or self.timeout_s)

    def describe_topic_configs(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, dict[str, ConfigEntry] | BrokerError]:
        return topics.describe_configs(self, names, timeout_s=timeout_s or self.timeout_s)

    # -- small reads and writes --------------------------------------------------------------------------------------

    def produce(self, tp: TopicPartition, batch: Buffer, *, acks: int = -1, timeout_s: float | None = None) -> Produced:
        """Append one batch; waits for the leader's word. Raises BrokerError if it says no for good."""

        def ask(
            broker: int, group: list[TopicPartition], left_s: float
        ) -> dict[TopicPartition, Produced | BrokerError]:
            def send(connection: Connection, end: float) -> Produced:
                parts = [(tp.topic, tp.partition, batch)]
                timeout_ms = int(left_s * 1000)
                request = produce_request(connection.version("produce"), parts, acks=acks, timeout_ms=timeout_ms)
                return produced(connection.call(request, timeout_s=end - time.monotonic()))[0]

            result = self._with(send, broker=broker, timeout_s=left_s, retry=False)
            return {tp: self._error(result.error, tp, result.message) if result.error else result}

        return _value(self._per_leader([tp], ask, timeout_s)[tp])

    def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float | None = None,
    ) -> Fetched:
        """One read of one partition, outside any session. Raises BrokerError (OFFSET_OUT_OF_RANGE, say)."""

        def ask(broker: int, group: list[TopicPartition], left_s: float) -> dict[TopicPartition, Fetched | BrokerError]:
            def send(connection: Connection, end: float) -> Fetched | None:
                topic_id = self._topic_id(tp.topic)
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

        return _value(self._per_leader([tp], ask, timeout_s)[tp])

    def _topic_id(self, name: str) -> uuid.UUID | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.id

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        with self._lock:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _sleep(pause: Backoff, deadline: float) -> bool:
    """Wait a little longer than last time; False if the time is over."""
    wait_s = pause.next_s()
    if time.monotonic() + wait_s >= deadline:
        return False
    time.sleep(wait_s)
    return True


def _may_retry(result: object, absent_is_final: bool) -> bool:
    if not isinstance(result, BrokerError) or not result.retriable:
        return False
    return not (absent_is_final and result.code == codes.UNKNOWN_TOPIC_OR_PARTITION)


def _value(result: T | BrokerError) -> T:
    if isinstance(result, BrokerError):
        raise result
    return result


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

"""Calls on a cluster that wait and retry: to any broker, to the controller, to the leaders of partitions.

Answers for connections that fail (others are tried, with backoff, until the call's timeout), for what is known of the
cluster, and for asking again with fresh metadata when a leader moved. Knows the shape of Metadata only.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from heliograph.errors import BrokerError, WireError
from heliograph.types import Cluster, TopicPartition
from heliograph.wire import codes, metadata
from heliograph.wire.backoff import Backoff
from heliograph.wire.connection import Connection
from heliograph.wire.messages import Message, build
from heliograph.wire.metadata import Metadata, TopicMeta
from heliograph.wire.pool import Pool

T = TypeVar("T")

CLOSE_S = 0.1

# A broker that has not answered a question for so long is asked no more: another may know, or lead by now. And so much
# each has, whatever those before it took: most answer at once.
QUESTION_S, LEAST_S = 10.0, 1.0

# A topic just created may be unknown to the next broker asked for a moment; after that it is not there.
_PROPAGATION_S = 2.0


class Calls:
    """One cluster, blocking. Thread-safe by one lock. Close it, or use it as a context manager."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str = "heliograph",
        timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        patience_s: float = float("inf"),
    ) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s  # of a call, unless the call says otherwise
        self._patience_s = patience_s  # how much of that partitions may cost that nobody leads or can be asked about
        self._lock = threading.RLock()
        self._pool = Pool(cluster, client_id, connect_timeout_s)
        self._topics: dict[str, TopicMeta] = {}
        self._controller = -1
        self._cluster_id = ""
        self._closing = False

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
            if not moved or not sleep(pause, deadline):
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
            try:
                while True:
                    try:
                        return ask(self._connection(broker, controller, deadline), deadline)
                    except WireError as error:
                        if broker is not None or controller:
                            self._forget_addresses()
                        if isinstance(error, BrokerError) or not error.retriable or not retry or self._closing:
                            raise
                        if not sleep(pause, deadline):
                            raise
            finally:
                if self._closing:
                    self._pool.close()

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
            return self._ask_metadata(connection, topics, min(deadline, time.monotonic() + QUESTION_S))

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
        *,
        each_s: float = float("inf"),
    ) -> dict[TopicPartition, T | BrokerError]:
        """`ask(broker, partitions, seconds left)` for each leader; what fails for a reason that passes is asked again,
        with fresh metadata, until the time or the patience is over. `each_s`: what one broker may take of that."""
        began = time.monotonic()
        deadline = began + (self.timeout_s if timeout_s is None else timeout_s)
        insist_until = min(began + self._patience_s, deadline)
        pause = Backoff()
        left = dict.fromkeys(tps)
        done: dict[TopicPartition, T | BrokerError] = {}
        while left:
            groups = self._leaders(left, done, deadline)
            for broker, group in groups.items():
                now = time.monotonic()
                until = max(min(deadline, now + each_s), now + LEAST_S)
                done.update(self._ask_leader(ask, broker, group, until))
            absent_is_final = time.monotonic() - began > _PROPAGATION_S
            left = {tp: None for tp in left if _may_retry(done.get(tp), absent_is_final)}
            for topic in {tp.topic for tp in left}:
                self._topics.pop(topic, None)
            if left and not sleep(pause, insist_until):
                break
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

    def _topic_id(self, name: str) -> uuid.UUID | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.id

    def _leader_epoch(self, tp: TopicPartition) -> int:
        """By the last metadata; -1: not known."""
        topic = self._topics.get(tp.topic)
        part = topic.partitions.get(tp.partition) if topic else None
        return -1 if part is None else part.leader_epoch

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Does not wait for a call of another thread: that one closes when it is done, and does not try again."""
        self._closing = True
        if self._lock.acquire(timeout=CLOSE_S):
            try:
                self._pool.close()
            finally:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sleep(pause: Backoff, deadline: float) -> bool:
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

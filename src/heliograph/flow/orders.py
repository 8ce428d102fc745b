"""What operators told a flow: pause or stop all of it, a topic, or a partition; kept on the target, so that a restart,
or another process that runs the flow, goes by it too.

The records stand in the positions topic (as `flow.presence`'s do: MM2 and `state.positions` pass them over), those of
one flow in one partition of it, which is all that has to be read again and again.

`paused`: its records are not copied; tasks keep its place. `stopped`: tasks give it up as well, and of a whole flow
everything rests, heartbeats included.

Invariants:
  a. Of the records about one scope the one with the latest time counts; who writes makes his later than what he knows.
  b. An order counts here from the moment it is given, written or not; one that could not be written is said to be so.
  c. Before an order is written, what others have given is read: ours gets a later time than theirs, though their clock
     is an hour ahead. An order whose writing took longer than SLEPT_S, since this process was frozen between, gives way
     to what came meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import msgspec
import structlog

from heliograph import policy
from heliograph.batch import Record
from heliograph.health.status import Order, Scope, Word
from heliograph.mirror.positions import partition_for
from heliograph.state.compacted import CompactedLog
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client

log = structlog.get_logger()

NAME = "HeliographOrder"
LOOK_EVERY_S = 1.0
SLEPT_S = 15.0  # between giving an order and writing it: neither a call nor a busy machine takes as long
LATEST_MS = 253_402_300_800_000  # the year 10000: no calendar goes further


class Orders:
    """Of one flow. Thread-safe: `known` is replaced, never changed, and nobody who reads it waits for a broker."""

    def __init__(self, flow: Flow, client: Client, others: Callable[[Record], object] = lambda record: None) -> None:
        """`others` is handed the records of this partition that are no orders."""
        self._flow, self._client, self._others = flow, client, others
        self._log = CompactedLog(client, flow.positions_topic or policy.positions_topic(flow.source.alias))
        self._talking = threading.Lock()  # held while the topic is read or written
        self._lock = threading.Lock()
        self._said: set[Scope] = set()
        self.known: Mapping[Scope, Order] = {}
        self._given_at = 0.0
        self._written: dict[Scope, Order] = {}  # by us

    def of(self, tp: TopicPartition) -> Order | None:
        """What counts for a partition: stopped stands before paused, and the wider before the narrower."""
        known = self.known
        if not known:
            return None
        found = [known.get(scope) for scope in ((None, None), (tp.topic, None), (tp.topic, tp.partition))]
        standing = [one for one in found if one is not None and one.word != "running"]
        return next((one for one in standing if one.word == "stopped"), standing[0] if standing else None)

    @property
    def standing(self) -> tuple[Order, ...]:
        """Those that hold something back, the whole flow's first."""
        found = [one for one in self.known.values() if one.word != "running"]
        return tuple(sorted(found, key=lambda one: (one.topic or "", -1 if one.partition is None else one.partition)))

    @property
    def whole(self) -> Order | None:
        one = self.known.get((None, None))
        return one if one is not None and one.word != "running" else None

    def look(self) -> bool:
        """Read what is new; whether anything is."""
        with self._talking:
            if not self._log.partitions and not self._log.count():
                return False
            news = [self._order(record) for _, record in self._log.news(self._home)]
        return self._take(one for one in news if one is not None)

    def give(self, scope: Scope, word: Word, by: str) -> tuple[Order, ...]:
        """From now on. `running` takes back the order about this scope and those about all that is in it; what was
        taken back is returned, or the order that was given. Write it down next (`write`)."""
        self._given_at = time.monotonic()
        with self._lock:
            at_ms = max([_now_ms(), *(one.at_ms + 1 for one in self.known.values())])
            order = Order(*scope, word, by, at_ms)
            if word != "running":
                self.known = {**self.known, scope: order}
                return (order,)
            taken = [one for one in self.known.values() if order.covers(one.scope) and one.word != "running"]
            new = {one.scope: Order(*one.scope, "running", by, at_ms) for one in taken}
            self.known = {**self.known, **new}
        return tuple(taken)

    def write(self, given: Iterable[Order]) -> None:
        """As it is known now (invariant c)."""
        mine = {one.scope: self.known[one.scope] for one in given}
        with self._talking:
            if not self._log.partitions:
                self._log.ensure_storage(self._flow)
            news = [one for _, record in self._log.news(self._home) if (one := self._order(record)) is not None]
            self._take(news)
            met = {one.scope: one for one in news if one != self._written.get(one.scope)}
            standing = self._restate(mine, met)
            self._written.update({one.scope: one for one in standing})
            self._log.append(self._home, [(_key(self._flow, one.scope), _value(one)) for one in standing])

    def _restate(self, mine: Mapping[Scope, Order], met: Mapping[Scope, Order]) -> list[Order]:
        """Which of our orders are to be written, each later than what others gave about its scope."""
        slept = time.monotonic() - self._given_at > SLEPT_S
        with self._lock:
            yielded = {scope: met[scope] for scope in mine if slept and scope in met}
            kept = [one for scope, one in mine.items() if scope not in yielded]
            after = max((self.known[one.scope].at_ms for one in kept), default=0)
            kept = [one if self.known[one.scope] == one else replace(one, at_ms=after + 1) for one in kept]
            self.known = {**self.known, **yielded, **{one.scope: one for one in kept}}
        for scope, theirs in yielded.items():
            log.warning(
                "this process slept before it could write an order: a later one stands",
                flow=self._flow.name,
                order=f"{mine[scope].where} {mine[scope].words}",
                stands=theirs.words,
            )
        return kept

    def close(self) -> None:
        self._client.close()

    @property
    def _home(self) -> int:
        return home(self._flow, self._log.partitions)

    def _take(self, news: Iterable[Order]) -> bool:
        with self._lock:
            before = self.known
            known = dict(before)
            for one in news:
                if (other := known.get(one.scope)) is None or one.at_ms >= other.at_ms:  # invariant a
                    known[one.scope] = one
            if known == before:
                return False
            self.known = known
            return True

    def _order(self, record: Record) -> Order | None:
        scope = _scope_of(record.key, self._flow)
        if scope is None:
            self._others(record)
            return None
        order = _order_of(scope, record.value)
        if order is None and record.value is not None and scope not in self._said:
            self._said.add(scope)
            log.warning("an order that cannot be read is passed over", flow=self._flow.name, offset=record.offset)
        return order


def home(flow: Flow, partitions: int) -> int:
    """The partition of the positions topic where orders about a flow stand, and who runs it."""
    return partition_for(_key(flow, (None, None)), partitions)


def _key(flow: Flow, scope: Scope) -> bytes:
    topic, partition = scope
    about = {"cluster": flow.source.alias, "partition": partition, "target": flow.target.alias, "topic": topic}
    return msgspec.json.encode([NAME, {**about, **whose(flow)}])


def whose(flow: Flow) -> dict[str, str]:
    """What keys about a connector's flow have besides its clusters, which other connectors may have too."""
    return {"connector": flow.label} if flow.label else {}


def is_about(about: Mapping[str, object], flow: Flow) -> bool:
    named = about["cluster"], about["target"], about.get("connector", "")
    return named == (flow.source.alias, flow.target.alias, flow.label)


def _scope_of(key: bytes | None, flow: Flow) -> Scope | None:
    try:
        name, about = msgspec.json.decode(key or b"")
        if name != NAME or not is_about(about, flow):
            return None
        topic, partition = about["topic"], about["partition"]
    except (AttributeError, TypeError, ValueError, KeyError, RecursionError):
        return None
    is_topic, is_partition = isinstance(topic, str), isinstance(partition, int) and not isinstance(partition, bool)
    if not (is_topic or topic is None) or not (is_partition or partition is None) or (is_partition and not is_topic):
        return None
    return topic, partition


def _value(order: Order) -> bytes:
    return msgspec.json.encode({"word": order.word, "by": order.by, "at": order.at_ms})


def _order_of(scope: Scope, value: bytes | None) -> Order | None:
    try:
        about = msgspec.json.decode(value or b"")
        word, by, at_ms = about["word"], str(about["by"]), int(about["at"])
    except (TypeError, ValueError, KeyError, RecursionError):
        return None
    known = word in ("paused", "stopped", "running") and 0 <= at_ms < LATEST_MS
    return Order(*scope, word, by, at_ms) if known else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

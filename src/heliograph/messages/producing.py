"""Events sent to a topic: at a rate, in batches, each once.

Answers for the rate and for what a broker says no to. Invariants:
  a. Batches carry a producer id and a sequence, one at a time of a partition, so one that is sent again after a lost
     connection is stored once.
  b. A batch that is too large for the topic is sent in parts, and those that follow are smaller from the beginning;
     only a single event that is too large is an error.
  c. Which partition an event goes to follows from its key as for Kafka's default partitioner, and without one from its
     number: the same events lie in the same partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from heliograph.batch import Record, encode
from heliograph.batch.codec import NAMES, NONE
from heliograph.errors import BrokerError, ConfigError
from heliograph.messages.sample import Recipe, event
from heliograph.mirror.positions import SEQUENCES, partition_for
from heliograph.types import TopicPartition
from heliograph.wire import NewTopic, Produced
from heliograph.wire.codes import MESSAGE_TOO_LARGE, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION

CODECS = NAMES
APPEAR_S = 30.0
TICK_S = 0.05  # between two looks at the clock, where a rate is to be held
AT_ONCE = 5_000  # events made before they are sent
AT_ONCE_BYTES = 4 << 20
BATCH_BYTES = 512 << 10  # before packing: half of what a topic takes as it comes
BATCH_RECORDS = 5_000
OVERHEAD_BYTES = 20  # of a record, besides what is in it: enough for a limit that is not sharp


class Writing(Protocol):
    """What is needed of a `Client`."""

    @property
    def alias(self) -> str: ...

    def init_producer_ids(self, count: int) -> list[tuple[int, int]]: ...

    def produce(self, tp: TopicPartition, batch: bytes) -> Produced: ...


class Making(Protocol):
    """And to make a topic."""

    @property
    def alias(self) -> str: ...

    def create_topics(self, specs: Sequence[NewTopic]) -> dict[str, BrokerError | None]: ...

    def list_offsets(
        self, tps: Sequence[TopicPartition], *, at: Literal["latest"]
    ) -> dict[TopicPartition, int | BrokerError]: ...


@dataclass(frozen=True, slots=True)
class Order:
    """How many, how fast, where."""

    count: int | None = None  # None: without end
    first: int = 0  # the first event's number
    per_s: float | None = None  # None: as fast as it goes
    partition: int | None = None  # None: by key, or in turns
    from_ms: int | None = None  # the first event's time; None: each has the time at which it is made
    step_ms: float = 1.0  # between two events' times, from there on


@dataclass(slots=True)
class Sent:
    events: int = 0
    bytes: int = 0  # of keys, values and headers
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)  # of each partition: first, and behind the last


class Sender:
    """Events into batches into partitions of one topic."""

    def __init__(self, client: Writing, topic: str, codec: int = NONE) -> None:
        self._client, self._topic, self._codec = client, topic, codec
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self._batch_bytes = BATCH_BYTES
        self.sent = Sent()

    def send(self, partition: int, records: Sequence[Record]) -> None:
        for batch in batches(records, self._batch_bytes):
            self._append(partition, batch)

    def _append(self, partition: int, records: Sequence[Record]) -> None:
        if self._producer is None:
            self._producer = self._client.init_producer_ids(1)[0]
        producer_id, epoch = self._producer
        sequence = self._sequences.get(partition, 0)
        numbered = [replace(record, offset=i) for i, record in enumerate(records)]
        marks = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        try:
            answer = self._client.produce(
                TopicPartition(self._topic, partition), encode(numbered, codec=self._codec, **marks)
            )
        except BrokerError as error:
            if error.code != MESSAGE_TOO_LARGE or len(records) == 1:
                raise
            whole = sum(size_of(record) + OVERHEAD_BYTES for record in records)
            self._batch_bytes = min(self._batch_bytes, whole // 2)  # invariant b
            self.send(partition, records)
            return
        self._sequences[partition] = (sequence + len(records)) % SEQUENCES
        self._count(partition, answer.base_offset, records)

    def _count(self, partition: int, base_offset: int, records: Sequence[Record]) -> None:
        self.sent.events += len(records)
        self.sent.bytes += sum(size_of(record) for record in records)
        first, _ = self.sent.offsets.get(partition, (base_offset, 0))
        self.sent.offsets[partition] = (first, base_offset + len(records))


def batches(records: Sequence[Record], most_bytes: int = BATCH_BYTES) -> list[list[Record]]:
    found: list[list[Record]] = [[]]
    size = 0
    for record in records:
        more = size_of(record) + OVERHEAD_BYTES
        if found[-1] and (size + more > most_bytes or len(found[-1]) >= BATCH_RECORDS):
            found.append([])
            size = 0
        found[-1].append(record)
        size += more
    return found if found[0] else []


def size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def run(
    sender: Sender,
    partitions: int,
    recipe: Recipe,
    order: Order,
    *,
    tick: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until all are sent."""
    began_s = clock()
    done = 0
    while order.count is None or done < order.count:
        due = done + AT_ONCE if order.per_s is None else int((clock() - began_s) * order.per_s) + 1
        due = due if order.count is None else min(due, order.count)
        if due <= done:
            assert order.per_s is not None
            sleep(min(max(began_s + done / order.per_s - clock(), 0.001), TICK_S))
        else:
            done += _send(sender, partitions, recipe, order, done, due)
        tick()


def _send(sender: Sender, partitions: int, recipe: Recipe, order: Order, done: int, due: int) -> int:
    """Some of the events from `done` to before `due`: how many."""
    made: dict[int, list[Record]] = {}
    size = 0
    now_ms = time.time_ns() // 1_000_000
    end = min(due, done + AT_ONCE)
    for at in range(done, end):
        key, value, headers = event(recipe, order.first + at)
        when_ms = now_ms if order.from_ms is None else order.from_ms + int(at * order.step_ms)
        record = Record(0, when_ms, key, value, headers)
        made.setdefault(partition_of(key, order.first + at, partitions, order.partition), []).append(record)
        size += size_of(record)
        if size >= AT_ONCE_BYTES:
            end = at + 1
            break
    for partition, records in made.items():
        sender.send(partition, records)
    return end - done


def partition_of(key: bytes | None, number: int, partitions: int, chosen: int | None) -> int:
    """Invariant c."""
    if chosen is not None:
        return chosen
    return number % partitions if key is None else partition_for(key, partitions)


def make_topic(client: Making, spec: NewTopic) -> bool:
    """Whether it had to be made; then its leaders know it."""
    error = client.create_topics([spec])[spec.name]
    if error is not None and error.code == TOPIC_ALREADY_EXISTS:
        return False
    if error is not None:
        raise ConfigError(f"{spec.name} cannot be made on {client.alias}: {error}")
    tps = [TopicPartition(spec.name, number) for number in range(max(spec.partitions, 1))]
    deadline = time.monotonic() + APPEAR_S
    while any(_unknown(end) for end in client.list_offsets(tps, at="latest").values()):
        if time.monotonic() > deadline:
            raise ConfigError(f"{spec.name} was made on {client.alias}, but its leaders do not know it yet: try again")
        time.sleep(TICK_S)
    return True


def _unknown(end: int | BrokerError) -> bool:
    return isinstance(end, BrokerError) and end.code == UNKNOWN_TOPIC_OR_PARTITION

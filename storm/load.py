"""The load of one side: numbered records into its topics at an even rate, and which of them were acknowledged."""

from __future__ import annotations

import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from confluent_kafka import KafkaError, Message, Producer
from tests.kit import wait_until

from storm.clusters import OLD_MS, TopicShape
from storm.identity import Identity, IntArray, identity_of, value_of

KEYS = 991
FLUSH_S = 120.0
TICK_S = 0.01

# An idempotent producer never gives up, so that every record is stored once. Where brokers forget producers by the
# age of their records (--old), idempotence would not hold for the load itself: there each record is sent once, and one
# without an answer may be in the source or not.
IDEMPOTENT = {"enable.idempotence": True, "message.timeout.ms": 0}
AT_MOST_ONCE = {
    "enable.idempotence": False,
    "acks": "all",
    "message.send.max.retries": 0,
    "max.in.flight": 1,
    "message.timeout.ms": 15_000,
}


class TopicLoad:
    """The records of one topic."""

    def __init__(self, shape: TopicShape) -> None:
        self.shape = shape
        self.generation = 0
        self.lock = threading.Lock()  # held while the topic is being recreated: nothing is sent or committed then
        self.sent = 0
        self.in_flight = 0
        self.next = [0] * shape.partitions
        self.ends = [0] * shape.partitions  # one behind the last acknowledged offset
        self._acknowledged: dict[tuple[int, int], array[int]] = {}
        self.unknown = 0  # without an answer: stored or not

    def acknowledge(self, identity: Identity, offset: int) -> None:
        key = identity.generation, identity.partition
        self._acknowledged.setdefault(key, array("q")).append(identity.number)
        if identity.generation == self.generation and offset >= 0:
            self.ends[identity.partition] = max(self.ends[identity.partition], offset + 1)

    def acknowledged(self) -> dict[tuple[int, int], IntArray]:
        return {key: np.array(numbers, np.int64) for key, numbers in self._acknowledged.items()}

    def count(self) -> int:
        return sum(map(len, self._acknowledged.values()))

    def begin_generation(self) -> None:
        self.generation += 1
        self.next = [0] * self.shape.partitions
        self.ends = [0] * self.shape.partitions


class Load:
    """One side's producer, from a thread. `rate`: records a second over all topics."""

    def __init__(self, client: Mapping[str, str], shapes: Sequence[TopicShape], *, rate: float, old: bool) -> None:
        self.topics = {shape.name: TopicLoad(shape) for shape in shapes}
        self.failures: Counter[str] = Counter()
        self._rate, self._old = rate, old
        settings = {
            "linger.ms": 10,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000,
            "reconnect.backoff.max.ms": 500,
            "partitioner": "murmur2_random",
            "log_level": 0,
        }
        self._producer = Producer({**client, **settings, **(AT_MOST_ONCE if old else IDEMPOTENT)})
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No more records, and an answer for each that was sent."""
        self.stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        deadline = time.monotonic() + FLUSH_S
        while any(one.in_flight for one in self.topics.values()):
            self._producer.poll(0.1)
            if time.monotonic() > deadline:
                left = {name: one.in_flight for name, one in self.topics.items()}
                raise TimeoutError(f"the load's own records had no answer after {FLUSH_S:g} s: {left}")

    def acknowledged(self) -> int:
        return sum(one.count() for one in self.topics.values())

    @contextmanager
    def paused(self, topic: str) -> Iterator[TopicLoad]:
        """Nothing is sent to this topic, and every record that was has its answer."""
        load = self.topics[topic]
        with load.lock:
            wait_until(lambda: not load.in_flight, what=f"answers for {topic}", timeout_seconds=FLUSH_S)
            yield load

    def _run(self) -> None:
        shares = dict.fromkeys(self.topics, 0.0)
        before = time.monotonic()
        while not self.stopping.wait(TICK_S):
            now = time.monotonic()
            due_s, before = min(now - before, 1.0), now
            for name, load in self.topics.items():
                shares[name] = min(shares[name] + due_s * self._rate * load.shape.share, self._rate)
                if load.lock.acquire(blocking=False):
                    try:
                        shares[name] -= self._send(load, int(shares[name]))
                    finally:
                        load.lock.release()
            self._producer.poll(0)

    def _send(self, load: TopicLoad, count: int) -> int:
        timestamp_ms = int(time.time() * 1000) - (OLD_MS if self._old else 0)
        for done in range(count):
            partition = load.sent % load.shape.partitions
            identity = Identity(load.generation, partition, load.next[partition])
            key = None if load.sent % 7 == 0 else b"key-%d" % (load.sent % KEYS)
            try:
                self._producer.produce(
                    *(load.shape.name, value_of(identity), key),
                    partition=partition,
                    timestamp=timestamp_ms,
                    on_delivery=self._delivered,
                )
            except BufferError:  # the broker is down: the rest is not sent at all
                return done
            load.in_flight += 1
            load.next[partition] += 1
            load.sent += 1
        return count

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        load = self.topics[message.topic()]
        load.in_flight -= 1
        if error is None:
            load.acknowledge(identity_of(message.value()), message.offset())
        else:
            load.unknown += 1
            self.failures[error.name()] += 1

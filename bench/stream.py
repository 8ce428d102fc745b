"""Records at a steady rate into the source, and how late each arrives on the target, by one clock.

The producer stamps the moment of sending into the value, the consumer in the same process subtracts. The same for
every peer, so what producer and consumer add themselves is added to all.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from typing import ClassVar, Self

from confluent_kafka import KafkaError, Producer, TopicPartition

from bench.watch import Watch

_STAMP_AT = len('{"sent_ns": ')
_STAMP_DIGITS = 19  # nanoseconds since 1970, until 2286


def stamped(chance: random.Random, size_bytes: int) -> Iterator[bytes]:
    """JSON values, each with the time at which it was taken from the iterator."""
    while True:
        filler = f"{chance.getrandbits(4 * max(size_bytes - 60, 1)):x}"
        yield json.dumps({"sent_ns": time.time_ns(), "payload": filler}).encode()


def stamp_of(value: bytes) -> int:
    return int(value[_STAMP_AT : _STAMP_AT + _STAMP_DIGITS])


class Source:
    """A thread that produces records, round robin over the partitions, until stopped.

    It trickles until `full()` is called, so that a copier which takes long to start does not start with a backlog.
    """

    TRICKLE_PER_S = 5
    LINGER_MS = 0

    def __init__(self, watch: Watch, topic: str, partitions: int, rate_per_s: int, value_bytes: int) -> None:
        self.sent = 0
        self.failed: list[str] = []
        self._topic, self._partitions = topic, partitions
        self._full_rate_per_s, self._rate_per_s = rate_per_s, self.TRICKLE_PER_S
        self._values = stamped(random.Random(20), value_bytes)
        self._producer = Producer({**watch.settings, "linger.ms": self.LINGER_MS, "enable.idempotence": True})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def full(self) -> None:
        """From now on the rate that was asked for."""
        self._rate_per_s = self._full_rate_per_s

    def finish(self) -> None:
        """Ends the stream; returns when all of it is on the source."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(20)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += 1 / self._rate_per_s
            topic, key, partition = self._place()
            self._producer.produce(topic, next(self._values), key, partition, on_delivery=self._delivered)
            self._producer.poll(0)
            self.sent += 1

    def _place(self) -> tuple[str, bytes | None, int]:
        """Topic, key and partition of the next record."""
        return self._topic, b"%08d" % self.sent, self.sent % self._partitions

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))


class Sink:
    """A thread that reads remote topics and keeps (moment of arrival, milliseconds since sending)."""

    # The broker answers as soon as there is one byte; the wait only bounds how long an empty fetch hangs.
    FETCHING: ClassVar[dict[str, int]] = {"fetch.min.bytes": 1, "fetch.wait.max.ms": 100}

    def __init__(self, watch: Watch, topic: str, partitions: int) -> None:
        self.arrivals: list[tuple[float, float]] = []  # (monotonic s, latency ms)
        self._watch = watch
        self._places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._watch.consumer(**self.FETCHING) as consumer:
            consumer.assign(self._places)
            while not self._stop.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    now_ns, now_s = time.time_ns(), time.monotonic()
                    late_ms = (now_ns - stamp_of(message.value() or b"")) / 1e6
                    self._arrived(message.topic() or "", now_s, late_ms)

    def _arrived(self, topic: str, now_s: float, late_ms: float) -> None:
        self.arrivals.append((now_s, late_ms))

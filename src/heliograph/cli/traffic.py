"""Events for the demos: a thread that produces to all clusters at an even rate, with confluent-kafka.

The records are made to show what a copy must keep: keys and none, values and none, headers doubled and empty,
timestamps of their own, every codec. Each is different from every other, so a missing, doubled or moved one shows.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer

from heliograph.errors import EmbeddedError

CODECS = ("lz4", "zstd", "snappy", "gzip", "none")
TICK_S = 0.05
NOTE_MOST = 400
# What notes are cut from: text that packs about as well as real events do, not a run of one letter.
NOTES = "".join(f"{word * 2654435761 % 2**32:08x} " for word in range(4096))


@dataclass(frozen=True, slots=True)
class Stream:
    """Where events go: one topic of one cluster, by its confluent-kafka settings."""

    cluster: str
    client: Mapping[str, str]
    topic: str
    partitions: int


class Events:
    def __init__(self, streams: Sequence[Stream], records_per_s: float) -> None:
        self._streams = streams
        self._rate = records_per_s
        self._producers: list[Producer] = [
            Producer(
                {
                    **stream.client,
                    "enable.idempotence": True,
                    "linger.ms": 20,
                    "log_level": 2,  # what matters comes back as an error; the end of a demo's broker does not
                    "compression.type": CODECS[index % len(CODECS)],
                }
            )
            for index, stream in enumerate(streams)
        ]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="events", daemon=True)
        self._failure: KafkaError | KafkaException | None = None
        self.produced = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, flush: bool = True) -> int:
        """Ends the stream, waits until the brokers have every record, and says how many there were."""
        self._stop.set()
        self._thread.join()
        if not flush:
            return self.produced
        left = sum(producer.flush(30) for producer in self._producers)
        self._producers.clear()  # their connections must not outlive the brokers
        if self._failure or left:
            raise EmbeddedError(
                f"the demo's own producer could not write: {self._failure or f'{left} records unacknowledged'}",
                fix="See whether the machine has memory and disk left: heliograph doctor",
            )
        return self.produced

    def produced_to(self, index: int) -> int:
        """How many of them went to that stream."""
        rounds, further = divmod(self.produced, len(self._streams))
        return rounds + (index < further)

    def _produce(self) -> None:
        began = time.monotonic()
        try:
            while not self._stop.wait(TICK_S):
                due = int((time.monotonic() - began) * self._rate)
                while self.produced < due and not self._stop.is_set():
                    self._send(self.produced)
                    self.produced += 1
                for producer in self._producers:
                    producer.poll(0)
        except KafkaException as failure:
            self._failure = failure

    def _send(self, number: int) -> None:
        index = number % len(self._streams)
        stream, producer = self._streams[index], self._producers[index]
        while True:
            try:
                producer.produce(
                    stream.topic,
                    value=_value(number),
                    key=None if number % 7 == 0 else f"customer-{number % 997}".encode(),
                    partition=(number // len(self._streams)) % stream.partitions,
                    headers=_headers(number),
                    timestamp=_timestamp(number),
                    on_delivery=self._delivered,
                )
                return
            except BufferError:
                producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failure = error


def _timestamp(number: int) -> int:
    """Of one in ten not the moment of sending: copies must keep it. Of the others it is, so that a latency is one."""
    return int(time.time() * 1000) - (number % 1000 if number % 10 == 0 else 0)


def _value(number: int) -> bytes | None:
    if number % 101 == 100:
        return None  # a tombstone; its headers still tell it from the others
    at = number * 61 % (len(NOTES) - NOTE_MOST)
    note = NOTES[at : at + 100 + number % (NOTE_MOST - 100)]
    event = {"event": number, "kind": "order", "amount_cents": number * 37 % 100_000, "note": note}
    return json.dumps(event).encode()


def _headers(number: int) -> list[tuple[str, str | bytes | None]]:
    headers: list[tuple[str, str | bytes | None]] = [("event", str(number).encode())]
    if number % 5 == 0:
        headers += [("trace", b"a"), ("trace", b"b"), ("empty", None)]
    return headers

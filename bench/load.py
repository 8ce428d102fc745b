"""Fills the source topic of a scenario, quickly, with batches as a real producer makes them.

librdkafka (confluent-kafka) produces some two thousand batches of distinct records into a scratch topic; their bytes
are read back and appended to the scenario's topic over and over, with fresh times. So batches are a real producer's, no
two neighbours are alike, and eight million records take seconds.

librdkafka's `batch.size` counts bytes before compression, the Java producer's after. For `lz4` it is set so that the
stored batches have the 16 KiB that a Java producer under load makes with its defaults; for uncompressed topics the two
agree.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Producer

from bench.batches import Appender, Batch, Fetcher, split
from bench.scenarios import Scenario
from bench.watch import Watch
from heliograph.types import Cluster

TEMPLATES = 2000
TEMPLATE_BYTES = 96 << 20  # of records before compression, at most
LZ4_RATIO = 0.5  # of these records, roughly: what turns stored bytes into bytes before compression

_EVENTS = ("page_view", "add_to_cart", "checkout", "search", "login", "logout", "rate_item", "wish_list")
_AGENTS = ("Firefox/131.0", "Chrome/129.0.6668.59", "Safari/17.6", "okhttp/4.12.0", "curl/8.9.1")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A topic that is ready to be copied. `bytes` as stored on the source."""

    topic: str
    ends: list[int]
    bytes: int
    batches: int

    @property
    def records(self) -> int:
        return sum(self.ends)


def value(chance: random.Random, size_bytes: int) -> bytes:
    """A JSON event of about so many bytes, half of it guessable."""
    event = {
        "id": chance.getrandbits(48),
        "user": f"user-{chance.randrange(200_000):06d}",
        "event": chance.choice(_EVENTS),
        "at": 1_790_000_000_000 + chance.randrange(10**9),
        "amount": round(chance.random() * 1000, 2),
        "session": f"{chance.getrandbits(64):016x}",
        "agent": chance.choice(_AGENTS),
        "path": f"/shop/{chance.randrange(40)}/item/{chance.randrange(100_000)}",
    }
    text = json.dumps(event)[:-1] + ', "note": "'
    missing = max(size_bytes - len(text) - 2, 0)
    filler = f"{chance.getrandbits(4 * missing + 4):0{missing + 1}x}"[:missing]
    return (text + filler + '"}').encode()


def producer_settings(scenario: Scenario) -> dict[str, object]:
    """librdkafka's settings that give the scenario's batches."""
    compressed = scenario.codec != "none"
    settings: dict[str, object] = {
        "compression.type": scenario.codec,
        "batch.size": int(scenario.batch_bytes / LZ4_RATIO) if compressed else max(scenario.batch_bytes, 1024),
        "linger.ms": 1000,  # records are waiting anyway: let size alone decide where a batch ends
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 512 << 10,
        "enable.idempotence": True,
    }
    if scenario.batch_bytes <= scenario.value_bytes:
        settings |= {"batch.num.messages": 1, "linger.ms": 0}
    return settings


def templates(watch: Watch, cluster: Cluster, scenario: Scenario) -> list[Batch]:
    """Distinct batches as librdkafka makes them for this scenario."""
    chance = random.Random(20)
    per_batch = max(producer_settings(scenario)["batch.size"] // (scenario.value_bytes + 30), 1)  # type: ignore[operator]
    wanted = min(TEMPLATES * per_batch, TEMPLATE_BYTES // scenario.value_bytes, max(scenario.records, 1))
    scratch = f"templates-{scenario.name}"
    watch.create(scratch, 1)
    try:
        producer = Producer({**watch.settings, **producer_settings(scenario)})
        for _ in range(wanted):
            key = b"user-%06d" % chance.randrange(200_000)
            producer.produce(scratch, value(chance, scenario.value_bytes), key=key)
        if producer.flush(120):
            raise RuntimeError(f"the source broker at {cluster.bootstrap} does not take records: see its log")
        return read_batches(cluster, scratch, wanted)
    finally:
        watch.delete([scratch])


def read_batches(cluster: Cluster, topic: str, records: int) -> list[Batch]:
    """The batches of a one-partition topic that hold its first `records` records."""
    fetcher = Fetcher(cluster, topic, 1)
    found: list[Batch] = []
    have = 0
    while have < records:
        for _, data in fetcher.fetch():
            for begin, end, _, count in split(data):
                found.append(Batch(bytes(data[begin:end]), count))
                have += count
    fetcher.close()
    return found


def load(watch: Watch, cluster: Cluster, topic: str, scenario: Scenario, progress: Callable[[int], None]) -> Loaded:
    """Makes the topic and fills it with at least the scenario's records, whole batches, evenly over its partitions."""
    supply = itertools.cycle(templates(watch, cluster, scenario))
    watch.create(topic, scenario.partitions)
    sent = [0] * scenario.partitions
    totals = {"bytes": 0, "batches": 0}
    share = -(-scenario.records // scenario.partitions)

    def next_batch(partition: int) -> Batch | None:
        if sent[partition] >= share:
            return None
        batch = next(supply)
        sent[partition] += batch.count
        totals["bytes"] += len(batch.data)
        totals["batches"] += 1
        if totals["batches"] % 512 == 0:
            progress(sum(sent))
        return batch

    appender = Appender(cluster, topic, scenario.partitions)
    appender.run(next_batch, now_ms=time.time_ns() // 1_000_000)
    appender.close()
    ends = watch.ends(topic, scenario.partitions)
    if ends != sent:
        raise RuntimeError(f"{topic} holds {ends} records and {sent} were written: run the scenario again")
    return Loaded(topic, ends, totals["bytes"], totals["batches"])

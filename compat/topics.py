"""Topics that are hard to copy: what is in each, in three parts (before the first start, around the kill, after it)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Producer
from tests.kit import Record, alter_topic, create_topic, end_offsets, produce, read_all, wait_until

Client = Mapping[str, str]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.0001"}
LARGE_BYTES = 900_000  # just below the default max.message.bytes
CLEANED_S = 90.0


@dataclass(frozen=True, slots=True)
class HardTopic:
    """`fill(client, topic, part)` produces one part. `column`: where it stands in the matrix."""

    name: str
    column: str
    partitions: int
    fill: Callable[[Client, str, int], None]
    config: Mapping[str, str] = field(default_factory=dict)
    copies: int = 0  # target.partitions; 0: as many as the source has
    groups: bool = True  # a group's offset leads to the very record


def varied(part: int, count: int, partitions: int) -> list[Record]:
    """Records that differ from one another, with every shape of key, value and headers among them."""
    keys, now_ms = (b"key-%d", None, b""), int(time.time() * 1000) - 3_600_000
    found = []
    for n in range(count):
        key = keys[n % 3]
        value = None if n % 17 == 3 else b"" if n % 17 == 5 else b"%d-%d:" % (part, n) + b"abcdefgh" * (n % 15)
        some: list[tuple[str, bytes | None]] = [("n", b"%d-%d" % (part, n))]
        if n % 4 == 1:
            some += [("twice", b"1"), ("twice", b"2"), ("null", None), ("empty", b""), ("", b"nameless")]
        elif n % 4 == 2:
            some += [("größe", "ß".encode())]
        when = now_ms + (n * 7919) % 100_000  # not in order
        found.append(Record(key % n if key else key, value, tuple(some), when, n % partitions))
    return found


def _codec(codec: str) -> Callable[[Client, str, int], None]:
    def fill(client: Client, topic: str, part: int) -> None:
        settings = {"linger.ms": 100, "batch.num.messages": 500, "compression.type": codec, "enable.idempotence": True}
        produce(client, topic, varied(part, 3000, 3), config=settings)

    return fill


def _compacted(client: Client, topic: str, part: int) -> None:
    """The first part is cleaned, batches without records and tombstones among them; then the cleaner is switched off,
    so that what the source holds does not change while it is compared."""
    for codec in ("none", "lz4"):
        records = [
            Record(b"%s-%d" % (codec.encode(), n * n % 90), None if n % 40 == 7 else b"%d-%d" % (part, n))
            for n in range(600)
        ]
        produce(client, topic, records, config={"batch.num.messages": 40, "compression.type": codec})
    if part == 0:
        total = sum(end_offsets(client, topic).values())

        def cleaned() -> bool:
            produce(client, topic, [Record(b"roll", b"%d" % time.monotonic_ns())])
            return len(read_all(client, topic)[0]) < total // 3

        wait_until(cleaned, what=f"the log cleaner on {topic}", timeout_seconds=CLEANED_S, every_seconds=0.2)
        alter_topic(client, topic, {"cleanup.policy": "delete", "segment.ms": None})
        time.sleep(2)  # a round of the cleaner that is under way ends


def _transactional(client: Client, topic: str, part: int) -> None:
    """Committed, aborted and interleaved with records outside transactions."""
    producer = Producer({**client, "transactional.id": f"{topic}-{part}", "linger.ms": 0, "log_level": 3})
    producer.init_transactions(60)
    for n in range(30):
        producer.begin_transaction()
        for i in range(n % 7 + 1):
            producer.produce(topic, b"%d-%d-%d" % (part, n, i), b"k", partition=i % 2)
        producer.flush(30)  # what is still queued when a transaction is aborted would never be written
        if n % 5 == 0:
            produce(client, topic, [Record(None, b"%d-outside-%d" % (part, n), partition=n % 2)])
        (producer.abort_transaction if n % 3 == 2 else producer.commit_transaction)(30)


def _large(client: Client, topic: str, part: int) -> None:
    records = []
    for n in range(12):
        records.append(Record(b"large", b"%d-%d:" % (part, n) + bytes([n]) * LARGE_BYTES))
        records += [Record(b"small", b"%d-%d-%d" % (part, n, i)) for i in range(20)]
    produce(client, topic, records)


def _append_time(client: Client, topic: str, part: int) -> None:
    produce(client, topic, varied(part, 1000, 2), config={"batch.num.messages": 50, "compression.type": "zstd"})


def _divided(client: Client, topic: str, part: int) -> None:
    """Each value says which record of which source partition it is."""
    records = []
    for n in range(4000):
        key = None if n % 5 == 4 else b"key-%d" % (n * 31 % 200)
        records.append(Record(key, b"%d:%d" % (n % 4, part * 1000 + n // 4), partition=n % 4))
    produce(client, topic, records, config={"compression.type": "lz4", "enable.idempotence": True})


HARD: Sequence[HardTopic] = (
    *(HardTopic(f"codec-{codec}", "codecs", 3, _codec(codec)) for codec in CODECS),
    HardTopic("compacted", "compacted with holes", 1, _compacted, COMPACTED),
    HardTopic("transactional", "transactions", 2, _transactional),
    HardTopic("large", "900 KB records", 1, _large),
    HardTopic("append-time", "LogAppendTime", 2, _append_time, {"message.timestamp.type": "LogAppendTime"}),
    HardTopic("divided", "4 → 3 partitions", 4, _divided, copies=3, groups=False),
)
COLUMNS = tuple(dict.fromkeys(topic.column for topic in HARD))


def create(client: Client) -> None:
    for topic in HARD:
        create_topic(client, topic.name, topic.partitions, config=topic.config)


def fill(client: Client, part: int) -> None:
    for topic in HARD:
        topic.fill(client, topic.name, part)

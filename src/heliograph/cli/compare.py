"""A topic and its copy compared record by record: key, value, headers, timestamp, order within the partition.

Read with confluent-kafka, which shares no code with ours. Records are kept as digests, so a long demo fits in memory.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from heliograph.errors import TimedOut

NOT_LED_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
Digests = dict[int, list[bytes]]  # by partition, in the order of the log


@dataclass(frozen=True, slots=True)
class Difference:
    """What is wrong with the copy of one partition."""

    topic: str
    partition: int
    lost: int
    doubled: int
    foreign: int  # records that the source does not have: changed ones, mostly
    moved: int  # places at which the right records stand in the wrong order
    first: int | None  # where the two begin to differ, counted in records

    def __str__(self) -> str:
        parts = {"lost": self.lost, "twice": self.doubled, "changed": self.foreign, "out of order": self.moved}
        words = ", ".join(f"{count:,} {word}" for word, count in parts.items() if count)
        return f"{self.topic}-{self.partition}: {words}, first at record {self.first}"


def compare(topic: str, source: Digests, copy: Digests) -> list[Difference]:
    found = []
    for partition in sorted(source.keys() | copy.keys()):
        difference = _compare(topic, partition, source.get(partition, []), copy.get(partition, []))
        if difference:
            found.append(difference)
    return found


def _compare(topic: str, partition: int, source: Sequence[bytes], copy: Sequence[bytes]) -> Difference | None:
    if source == copy:
        return None
    there, here = Counter(source), Counter(copy)
    lost, surplus = there - here, here - there
    doubled = sum(count for digest, count in surplus.items() if digest in there)
    first = next((i for i, (a, b) in enumerate(zip(source, copy, strict=False)) if a != b), min(len(source), len(copy)))
    same = not lost and not surplus
    moved = sum(a != b for a, b in zip(source, copy, strict=True)) if same else 0
    return Difference(topic, partition, lost.total(), doubled, surplus.total() - doubled, moved, first)


def read(client: Mapping[str, str], topic: str, timeout_s: float = 60) -> Digests:
    """Every record of the topic up to its end as of now. Raises TimedOut when a partition does not get there."""
    digests: Digests = {}
    for partition in scan(
        client, topic, lambda one, message: digests.setdefault(one, []).append(digest(message)), timeout_s
    ):
        digests.setdefault(partition, [])
    return digests


def scan(
    client: Mapping[str, str], topic: str, take: Callable[[int, Message], None], timeout_s: float = 60
) -> Sequence[int]:
    """Lets `take` have every record with its partition, in the order of each log; which partitions there are."""
    consumer = Consumer(
        {
            **client,
            "group.id": "heliograph-compare",  # required by the library, never joined: partitions are assigned
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
        unread = set(partitions)
        deadline = time.monotonic() + timeout_s
        while unread:
            if time.monotonic() > deadline:
                raise TimedOut(f"{topic} could not be read to its end in {timeout_s:g} s", topic=topic)
            for message in consumer.consume(5_000, timeout=0.2):
                error = message.error()
                partition = message.partition()
                if error is None and partition is not None:
                    take(partition, message)
                elif error is not None and error.code() == KafkaError._PARTITION_EOF and partition is not None:
                    unread.discard(partition)
                else:
                    raise KafkaException(error)
        return partitions
    finally:
        consumer.close()


def digest(message: Message, more: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """Of a record as it is, or as it would be with `more` headers."""
    headers = [*(message.headers() or ()), *more] or None
    content = (message.key(), message.value(), headers, message.timestamp())
    return hashlib.blake2b(repr(content).encode(), digest_size=16).digest()


def end_offsets(client: Mapping[str, str], topic: str) -> int:
    """How far the topic reaches, all partitions together; 0 when it is not there yet."""
    consumer = Consumer({**client, "group.id": "heliograph-compare", "log_level": 2})
    try:
        known = consumer.list_topics(timeout=10).topics.get(topic)
        partitions = known.partitions if known else ()
        return sum(_end(consumer, TopicPartition(topic, one)) for one in partitions)
    finally:
        consumer.close()


def topics_of(client: Mapping[str, str]) -> list[str]:
    consumer = Consumer({**client, "group.id": "heliograph-compare", "log_level": 2})
    try:
        return sorted(consumer.list_topics(timeout=10).topics)
    finally:
        consumer.close()


def _end(consumer: Consumer, partition: TopicPartition, timeout_s: float = 10) -> int:
    """A partition that was made this moment is in the metadata before its broker leads it."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=timeout_s)[1])
        except KafkaException as error:
            if error.args[0].code() not in NOT_LED_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.05)

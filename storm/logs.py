"""What both clusters hold, read by confluent-kafka into columns for `verify`. No code of the engine takes part."""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from storm.identity import Identity, IntArray, columns_of, identity_of
from storm.verify import CopyLog, SourceLog

READ_S = 900.0
ASK_S = 15.0
MANY = 20_000

Client = Mapping[str, str]


def consumer(client: Client, group: str = "storm-reader", **more: object) -> Consumer:
    settings = {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.max.bytes": 64 << 20,
        "fetch.wait.max.ms": 10,
        "queued.max.messages.kbytes": 65536,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,  # brokers are killed here on purpose
    }
    return Consumer({**client, **settings, **more})


def partitions_of(reader: Consumer, topic: str, timeout_s: float = ASK_S) -> list[int]:
    """Empty where the topic is not there."""
    found = reader.list_topics(topic, timeout=timeout_s).topics.get(topic)
    return sorted(found.partitions) if found is not None and found.error is None else []


def ends(reader: Consumer, topic: str, timeout_s: float = ASK_S) -> dict[int, int]:
    """The high watermarks. A broker that was restarted may not know yet what it leads, so it is asked again."""
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = max(deadline - time.monotonic(), 0.1)
        try:
            return {
                one: int(reader.get_watermark_offsets(TopicPartition(topic, one), timeout=left_s)[1])
                for one in partitions_of(reader, topic, left_s)
            }
        except KafkaException:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)


class _Partition:
    """What was read of one partition, packed into columns as it comes: the values of millions would not fit."""

    def __init__(self, end: int) -> None:
        self.end = end
        self._offsets: list[int] = []
        self._values: list[bytes] = []
        self._packed: list[tuple[IntArray, ...]] = []

    def add(self, offset: int, value: bytes) -> None:
        self._offsets.append(offset)
        self._values.append(value)
        if len(self._offsets) >= MANY:
            self._pack()

    def _pack(self) -> None:
        self._packed.append((np.array(self._offsets, np.int64), *columns_of(self._values)))
        self._offsets.clear()
        self._values.clear()

    def log(self) -> CopyLog:
        self._pack()
        offsets, generations, partitions, numbers = (np.concatenate(one) for one in zip(*self._packed, strict=True))
        return CopyLog(offsets, generations, partitions, numbers, self.end)


def read_copies(client: Client, topic: str) -> dict[int, CopyLog]:
    """Every record of a topic up to its end as of now, by partition."""
    reader = consumer(client)
    try:
        found = {one: _Partition(end) for one, end in ends(reader, topic).items()}
        reader.assign([TopicPartition(topic, one, 0) for one in found])
        left = {one for one, log in found.items() if log.end > 0}
        deadline = time.monotonic() + READ_S
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: partitions {sorted(left)} were not read to their end in {READ_S:g} s")
            for message in reader.consume(MANY, timeout=0.1):
                error = message.error()
                if error is None:
                    found[message.partition()].add(message.offset(), message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= found[message.partition()].end:
                        left.discard(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
        return {one: log.log() for one, log in found.items()}
    finally:
        reader.close()


def read_source(client: Client, topic: str, generation: int) -> dict[int, SourceLog]:
    """The same of a source topic, which holds one generation of one partition in each partition."""
    found = {}
    for partition, log in read_copies(client, topic).items():
        strange = np.flatnonzero((log.generations != generation) | (log.partitions != partition))
        if len(strange):
            raise ValueError(
                f"{topic}-{partition} holds {log.identity(int(strange[0]))}: the storm's own load is wrong"
            )
        found[partition] = SourceLog(log.offsets, log.numbers)
    return found


def last_records(reader: Consumer, topic: str) -> dict[int, Identity | None]:
    """The last record of each partition; None where it is empty."""
    last = ends(reader, topic)
    found: dict[int, Identity | None] = dict.fromkeys(last)
    left = {one for one, end in last.items() if end > 0}
    reader.assign([TopicPartition(topic, one, last[one] - 1) for one in left])
    deadline = time.monotonic() + ASK_S
    while left and time.monotonic() < deadline:
        for message in reader.consume(len(left), timeout=0.2):
            if message.error() is None and message.offset() >= last[message.partition()] - 1:
                found[message.partition()] = identity_of(message.value())
                left.discard(message.partition())
    reader.unassign()
    if left:
        raise TimeoutError(f"{topic}: the last records of {sorted(left)} did not come")
    return found


def group_offsets(client: Client, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Where a group stands in each partition that it has an offset for."""
    reader = consumer(client, group)
    try:
        found = reader.committed([TopicPartition(topic, one) for one in range(partitions)], timeout=ASK_S)
        return {one.partition: one.offset for one in found if one.offset != OFFSET_INVALID}
    finally:
        reader.close()


class Checkpoint(NamedTuple):
    """A record of MM2's checkpoints topic. `topic` is the remote topic."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int


def decode_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """MM2's format: each begins with a version; strings have 16-bit lengths."""

    def string(data: bytes, at: int) -> tuple[str, int]:
        (length,) = struct.unpack_from(">h", data, at)
        return data[at + 2 : at + 2 + length].decode(), at + 2 + length

    group, at = string(key, 0)
    topic, at = string(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    _, upstream, downstream = struct.unpack_from(">hqq", value, 0)
    return Checkpoint(group, topic, partition, upstream, downstream)


def read_checkpoints(client: Client, topic: str) -> dict[str, list[Checkpoint]]:
    """Every checkpoint that is still in the topic, by remote topic; none where there is no such topic."""
    reader = consumer(client)
    found: dict[str, list[Checkpoint]] = defaultdict(list)
    try:
        last = ends(reader, topic)
        reader.assign([TopicPartition(topic, one, 0) for one in last])
        left = {one for one, end in last.items() if end > 0}
        deadline = time.monotonic() + READ_S
        while left and time.monotonic() < deadline:
            for message in reader.consume(MANY, timeout=0.1):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
                elif message.key() is not None and message.value() is not None:
                    one = decode_checkpoint(message.key(), message.value())
                    found[one.topic].append(one)
        return dict(found)
    finally:
        reader.close()

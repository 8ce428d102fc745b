"""Produce: batches into one request. What the broker says of each: `wire.acks`.

Answers for the shape of the request. Does not look into batches.

The request is written by hand from version 9 on, which every broker from 2.8 on speaks: a mirror sends thousands a
second, and through kio's writers a batch cost 50 µs of Python, more than everything else done to it. (That of a fetch
is too: `wire.fetch_request`.) A test holds it against kio's own bytes, version by version.
"""

from __future__ import annotations

import datetime
import functools
import struct
from collections.abc import Sequence
from typing import Any

from kio.index import load_entity_module
from kio.static.constants import EntityType

from heliograph.wire.fields import unsigned_bytes
from heliograph.wire.messages import Buffer, Message

FIRST_FLEXIBLE_VERSION = 9
_HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_BODY = struct.Struct(">hi")  # acks, timeout


@functools.cache
def _schema(version: int) -> Any:
    return load_entity_module("produce", version, EntityType.request)


class ProduceFrame:
    """A produce request that writes itself. Behaves towards a connection as kio's entities do."""

    __slots__ = ("__version__", "acks", "timeout_ms", "topics")
    __api_key__ = 0

    def __init__(self, version: int, topics: dict[str, dict[int, Buffer]], acks: int, timeout_ms: int) -> None:
        self.__version__ = version
        self.topics = topics
        self.acks = acks
        self.timeout_ms = timeout_ms

    def frame(self, correlation_id: int, client_id: str) -> list[memoryview]:
        """Size, header and body; the batches stand in the list as they were given."""
        name = client_id.encode()
        buffers: list[memoryview] = []
        small = bytearray(4)  # the frame's size comes here, once it is known
        size = 0
        small += _HEADER.pack(0, self.__version__, correlation_id, len(name))
        small += name
        # no tagged fields in the header; no transactional id
        small += b"\0\0" + _BODY.pack(self.acks, self.timeout_ms) + unsigned_bytes(len(self.topics) + 1)
        for topic, partitions in self.topics.items():
            text = topic.encode()
            small += unsigned_bytes(len(text) + 1) + text + unsigned_bytes(len(partitions) + 1)
            for partition, batch in partitions.items():
                small += partition.to_bytes(4, "big") + unsigned_bytes(len(batch) + 1)
                size += len(small) + len(batch)
                buffers += (memoryview(small), memoryview(batch))
                small = bytearray(1)  # no tagged fields after a partition
            small += b"\0"
        small += b"\0"
        buffers.append(memoryview(small))
        buffers[0][:4] = (size + len(small) - 4).to_bytes(4, "big")
        return buffers


def produce_request(
    version: int,
    parts: Sequence[tuple[str, int, Buffer]],
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> Message:
    """One batch for each (topic, partition) of `parts`.

    The batches are not copied, neither here nor when sent: they must not change until the answer is there.
    """
    topics: dict[str, dict[int, Buffer]] = {}
    for topic, partition, batch in parts:
        partitions = topics.setdefault(topic, {})
        if partition in partitions:
            raise ValueError(f"two batches for one partition of {topic!r} in one request: the broker takes one")
        partitions[partition] = batch
    if version >= FIRST_FLEXIBLE_VERSION:
        return ProduceFrame(version, topics, acks, timeout_ms)
    return kio_request(version, topics, acks, timeout_ms)


def kio_request(version: int, topics: dict[str, dict[int, Buffer]], acks: int, timeout_ms: int) -> Message:
    """The same by kio's schema, for older brokers and for comparison."""
    schema = _schema(version)
    return schema.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=datetime.timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            schema.TopicProduceData(
                name=topic,
                partition_data=tuple(
                    schema.PartitionProduceData(index=partition, records=batch)
                    for partition, batch in partitions.items()
                ),
            )
            for topic, partitions in topics.items()
        ),
    )

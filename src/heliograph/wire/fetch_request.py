"""The fetch request, written by hand from version 12 on, which every broker from 2.8 on speaks.

A task sends one for every few records that are live, and through kio's entities and writers it cost more than
everything else done to such a record. A test holds it against kio's own bytes, version by version. Which partitions are
named is the session's business (`wire.fetch`).
"""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

from heliograph.wire.fields import unsigned_bytes
from heliograph.wire.messages import Message, build

FIRST_WRITTEN_BY_HAND = 12
_FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITHOUT_REPLICA_ID = 15  # it became a tagged field, which consumers leave out (KIP-903)

_HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_FRONT = struct.Struct(">iiibii")  # max wait, min bytes, max bytes, isolation level, session id, session epoch
# Index, leader's epoch, offset, last fetched epoch and log start offset (followers'), max bytes, no tagged fields.
_PARTITION = struct.Struct(">iiqiqib")
_INT = struct.Struct(">i")
_CONSUMER = _INT.pack(-1)  # a replica id
_NO_ID = uuid.UUID(int=0)


class Partition(NamedTuple):
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int


class Topic(NamedTuple):
    """By name or by id: what the version asks for."""

    topic: str
    topic_id: uuid.UUID | None
    partitions: tuple[Partition, ...]


class ForgottenTopic(NamedTuple):
    topic: str
    topic_id: uuid.UUID | None
    partitions: tuple[int, ...]


class FetchFrame:
    """A fetch request that writes itself. Behaves towards a connection as kio's entities do."""

    __slots__ = (
        "__version__", "forgotten_topics_data", "isolation_level", "max_bytes", "max_wait_ms", "min_bytes",
        "session_epoch", "session_id", "topics",
    )  # fmt: skip
    __api_key__ = 1

    def __init__(
        self,
        version: int,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        session_id: int,
        session_epoch: int,
        topics: list[Topic],
        forgotten_topics_data: list[ForgottenTopic],
    ) -> None:
        self.__version__ = version
        self.max_wait_ms, self.min_bytes, self.max_bytes = max_wait_ms, min_bytes, max_bytes
        self.isolation_level, self.session_id, self.session_epoch = isolation_level, session_id, session_epoch
        self.topics, self.forgotten_topics_data = topics, forgotten_topics_data

    def frame(self, correlation_id: int, client_id: str) -> list[memoryview]:
        """Size, header and body."""
        name, version = client_id.encode(), self.__version__
        out = bytearray(4)  # the frame's size comes here, once it is known
        out += _HEADER.pack(1, version, correlation_id, len(name))
        out += name
        out += b"\0"  # no tagged fields in the header
        if version < _FIRST_WITHOUT_REPLICA_ID:
            out += _CONSUMER
        out += _FRONT.pack(
            self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation_level, self.session_id, self.session_epoch
        )
        out += unsigned_bytes(len(self.topics) + 1)
        for topic in self.topics:
            out += self._name(topic.topic, topic.topic_id)
            out += unsigned_bytes(len(topic.partitions) + 1)
            for partition, offset, max_bytes, leader_epoch in topic.partitions:
                out += _PARTITION.pack(partition, leader_epoch, offset, -1, -1, max_bytes, 0)
            out += b"\0"
        out += unsigned_bytes(len(self.forgotten_topics_data) + 1)
        for gone in self.forgotten_topics_data:
            out += self._name(gone.topic, gone.topic_id)
            out += unsigned_bytes(len(gone.partitions) + 1)
            for partition in gone.partitions:
                out += _INT.pack(partition)
            out += b"\0"
        out += b"\1\0"  # no rack, no tagged fields
        out[:4] = _INT.pack(len(out) - 4)
        return [memoryview(out)]

    def _name(self, topic: str, topic_id: uuid.UUID | None) -> bytes:
        if self.__version__ >= _FIRST_WITH_TOPIC_IDS:
            return (topic_id or _NO_ID).bytes
        name = topic.encode()
        return unsigned_bytes(len(name) + 1) + name


def kio_request(request: FetchFrame) -> Message:
    """The same by kio's schema, for older brokers and for comparison."""
    return build(
        "fetch",
        request.__version__,
        max_wait=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=[
            {"topic": one.topic, "topic_id": one.topic_id, "partitions": [part._asdict() for part in one.partitions]}
            for one in request.topics
        ],
        forgotten_topics_data=[one._asdict() for one in request.forgotten_topics_data],
    )

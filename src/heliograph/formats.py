"""The records of MM2's own topics, byte for byte: heartbeats, checkpoints, offset syncs. Pure.

Kafka's classic types: big-endian integers, a string is an INT16 length and UTF-8. Keys have no version. Decoding gives
None for what cannot be read: somebody else wrote nonsense into the topic, or a later version of MM2 wrote what we
do not know, and a reader goes on behind it. Bytes behind the last field are ignored, as Java does.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from heliograph.types import TopicPartition

_INT16, _INT32, _INT64, _PAIR = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">qq")
VERSION = 0  # of values that have one


@dataclass(frozen=True, slots=True)
class Heartbeat:
    source_alias: str
    target_alias: str
    timestamp_ms: int

    def key(self) -> bytes:
        return _string(self.source_alias) + _string(self.target_alias)

    def value(self) -> bytes:
        return _INT16.pack(VERSION) + _INT64.pack(self.timestamp_ms)

    @classmethod
    def read(cls, key: bytes | None, value: bytes | None) -> Heartbeat | None:
        try:
            source, at = _read_string(key, 0)
            target, _ = _read_string(key, at)
            return cls(source, target, _INT64.unpack_from(value or b"", _after_version(value))[0])
        except (struct.error, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A group's committed offset on the source, and the offset of the same record on the target."""

    group: str
    tp: TopicPartition  # as it is called on the target
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        return _string(self.group) + _string(self.tp.topic) + _INT32.pack(self.tp.partition)

    def value(self) -> bytes:
        return _INT16.pack(VERSION) + _PAIR.pack(self.upstream, self.downstream) + _string(self.metadata)

    @staticmethod
    def read_key(key: bytes | None) -> tuple[str, TopicPartition] | None:
        """Whose it is: group and partition."""
        try:
            group, at = _read_string(key, 0)
            topic, at = _read_string(key, at)
            partition = _INT32.unpack_from(key or b"", at)[0]
        except (struct.error, ValueError):
            return None
        return (group, TopicPartition(topic, partition)) if partition >= 0 else None

    @classmethod
    def read(cls, key: bytes | None, value: bytes | None) -> Checkpoint | None:
        whose = cls.read_key(key)
        if whose is None:
            return None
        try:
            at = _after_version(value)
            upstream, downstream = _PAIR.unpack_from(value or b"", at)
            metadata, _ = _read_string(value, at + _PAIR.size)
        except (struct.error, ValueError):
            return None
        return cls(*whose, upstream, downstream, metadata) if min(upstream, downstream) >= 0 else None


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """The source record at `upstream` was stored at `downstream` on the target."""

    tp: TopicPartition  # as it is called on the source
    upstream: int
    downstream: int

    def key(self) -> bytes:
        return _string(self.tp.topic) + _INT32.pack(self.tp.partition)

    def value(self) -> bytes:
        return _PAIR.pack(self.upstream, self.downstream)

    @classmethod
    def read(cls, key: bytes | None, value: bytes | None) -> OffsetSync | None:
        try:
            topic, at = _read_string(key, 0)
            partition = _INT32.unpack_from(key or b"", at)[0]
            upstream, downstream = _PAIR.unpack_from(value or b"", 0)
        except (struct.error, ValueError):
            return None
        if min(partition, upstream, downstream) < 0:
            return None
        return cls(TopicPartition(topic, partition), upstream, downstream)


def _after_version(value: bytes | None) -> int:
    if _INT16.unpack_from(value or b"")[0] != VERSION:
        raise ValueError("a version that is not known")
    return _INT16.size


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _read_string(data: bytes | None, at: int) -> tuple[str, int]:
    if data is None:
        raise ValueError("null")
    length = _INT16.unpack_from(data, at)[0]
    begin, end = at + _INT16.size, at + _INT16.size + length
    if length < 0 or end > len(data):
        raise ValueError("a string that does not fit")
    return data[begin:end].decode(), end

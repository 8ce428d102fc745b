"""Messages of the formats before Kafka 0.11 (magic 0 and 1), turned into v2 batches at their own offsets.

Brokers hand them out as they lie in segments that nobody has rewritten since. After `upgrade` nobody else has to know:
a buffer of v2 batches comes out, with holes where the offsets had them. Python speed: such segments are rare and old.

A message is `offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | timestamp i64 (magic 1) | key | value`, the
CRC an ordinary CRC-32 from the magic on. A compressed one is a wrapper: its value is a packed row of messages. In magic
1 the wrapper carries the offset of its last message and those inside count from anywhere; in magic 0 those inside carry
their own.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace

from heliograph.batch import codec as codecs
from heliograph.batch import header
from heliograph.batch.records import Record, encode
from heliograph.errors import BatchError, CorruptBatch

_HEAD = struct.Struct(">qiIbb")
_PREFIX = 12
_LOG_APPEND_TIME = 0x08

# A v2 batch made of loose messages holds at most so much: small enough for any target.
_MOST_RECORDS = 1000
_MOST_BYTES = 256 << 10
_MOST_UNPACKED_BYTES = 32 << 20  # of one wrapper: each message in it becomes a Python object, ten times its size
_MOST_DELTA = (1 << 31) - 1  # an offset delta is an i32


def as_batches(records: header.Bytes, *, check_crc: bool) -> memoryview:
    """A fetched buffer as it is, or upgraded where it begins with an old message: they lie at a log's beginning."""
    view = memoryview(records)
    if len(view) > header.MAGIC and view[header.MAGIC] < 2:
        return memoryview(upgrade(view, check_crc))
    return view


def upgrade(view: memoryview, check_crc: bool) -> bytes:
    """A fetched buffer with its old messages as v2 batches; the v2 batches in it stay as they are.

    A message cut off at the end is left out. A malformed one, and all behind it, stays as it is: whoever walks the
    result stops there.
    """
    out = _Batches()
    at = 0
    while len(view) - at > header.MAGIC:
        end = at + _PREFIX + struct.unpack_from(">i", view, at + header.LENGTH)[0]
        if end > len(view):
            break
        if end <= at + header.MAGIC:
            out.add(view[at:])
            break
        if view[at + header.MAGIC] >= 2:
            out.add(view[at:end])
        else:
            try:
                records, codec = _read(view[at:end], check_crc)
            except BatchError:
                out.add(view[at:])
                break
            if codec == codecs.NONE:
                out.add_loose(records[0], end - at)
            elif records:
                out.add(encode(records, codec=codec))
        at = end
    return out.joined()


class _Batches:
    """The batches made so far, and the messages that wait to become one."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._loose: list[Record] = []
        self._loose_bytes = 0

    def add(self, batch: bytes | memoryview) -> None:
        self._flush()
        self._parts.append(batch)

    def add_loose(self, record: Record, size_bytes: int) -> None:
        if self._loose and (
            len(self._loose) >= _MOST_RECORDS
            or self._loose_bytes >= _MOST_BYTES
            or not self._loose[-1].offset < record.offset <= self._loose[0].offset + _MOST_DELTA
        ):
            self._flush()
        self._loose.append(record)
        self._loose_bytes += size_bytes

    def joined(self) -> bytes:
        self._flush()
        return b"".join(self._parts)

    def _flush(self) -> None:
        if self._loose:
            self._parts.append(encode(self._loose))
            self._loose, self._loose_bytes = [], 0


def _read(message: memoryview, check_crc: bool) -> tuple[list[Record], int]:
    """The records of a message, one unless it is a wrapper, and the codec they came in."""
    record, attributes, magic = _parse(message, check_crc)
    codec = attributes & header.CODEC_MASK
    if not codec:
        return [record], codecs.NONE
    if codec > codecs.LZ4:  # zstd came with v2
        raise CorruptBatch(f"An old message is compressed with {codecs.name_of(codec)}", offset=record.offset)
    if record.value is None:
        raise CorruptBatch("A compressed message without a value", offset=record.offset)
    packed = _mended(record.value) if magic == 0 and codec == codecs.LZ4 else record.value
    unpacked = codecs.decompress(codec, packed, limit_bytes=_MOST_UNPACKED_BYTES, offset=record.offset)
    inner = list(_unwrap(bytes(unpacked), magic))
    if magic == 1 and inner:
        shift = record.offset - inner[-1].offset
        stamp = record.timestamp if attributes & _LOG_APPEND_TIME else None
        inner = [replace(r, offset=r.offset + shift, timestamp=r.timestamp if stamp is None else stamp) for r in inner]
    offsets = [r.offset for r in inner]
    if inner and (sorted(set(offsets)) != offsets or not 0 <= offsets[0] >= offsets[-1] - _MOST_DELTA):
        raise CorruptBatch("The offsets inside a compressed message do not rise", offset=record.offset)
    return inner, codec


def _unwrap(payload: bytes, magic: int) -> Iterator[Record]:
    view = memoryview(payload)
    at = 0
    while at < len(view):
        if len(view) - at < _PREFIX:
            raise CorruptBatch("A compressed message ends inside another")
        end = at + _PREFIX + struct.unpack_from(">i", view, at + header.LENGTH)[0]
        if end <= at or end > len(view):
            raise CorruptBatch("A compressed message ends inside another")
        # The wrapper's CRC covers them all.
        record, attributes, inner_magic = _parse(view[at:end], check_crc=False)
        if inner_magic != magic or attributes & header.CODEC_MASK:
            raise CorruptBatch("A compressed message holds one of another kind", offset=record.offset)
        yield record
        at = end


def _parse(message: memoryview, check_crc: bool) -> tuple[Record, int, int]:
    """(record, attributes, magic) of one whole message."""
    try:
        offset, _, crc, magic, attributes = _HEAD.unpack_from(message)
        if check_crc and zlib.crc32(message[header.MAGIC :]) != crc:
            raise CorruptBatch("The CRC of an old message does not match", offset=offset)
        at = _HEAD.size
        timestamp = -1
        if magic == 1:
            timestamp = struct.unpack_from(">q", message, at)[0]
            at += 8
        elif magic != 0:
            raise CorruptBatch(f"A message with magic {magic} among old ones", offset=offset)
        key, at = _sized(message, at)
        value, at = _sized(message, at)
    except struct.error as error:
        raise CorruptBatch(f"An old message is too short: {error}") from error
    if at != len(message):
        raise CorruptBatch(f"{len(message) - at} bytes behind the value of an old message", offset=offset)
    return Record(offset, timestamp, key, value), attributes, magic


def _sized(message: memoryview, at: int) -> tuple[bytes | None, int]:
    size = struct.unpack_from(">i", message, at)[0]
    at += 4
    if size < 0:
        return None, at
    if at + size > len(message):
        raise CorruptBatch(f"{size} bytes where {len(message) - at} are left")
    return bytes(message[at : at + size]), at + size


def _mended(frame: bytes) -> bytes:
    """An lz4 frame of magic 0 with the header checksum it should have had.

    Clients of that time hashed the frame's magic along with its descriptor, and every lz4 but Kafka's refuses it.
    """
    if len(frame) < 7:
        raise CorruptBatch("An lz4 frame shorter than its header")
    end = 6 + (8 if frame[4] & 0x08 else 0)
    checksum = (_xxh32(frame[4:end]) >> 8) & 0xFF
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :]


_M32 = 0xFFFFFFFF
_PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_PRIME_1 = 0x9E3779B1


def _xxh32(data: bytes) -> int:
    """xxHash-32 of fewer than 16 bytes, as frame descriptors are."""
    acc = (_PRIME_5 + len(data)) & _M32
    at = 0
    while at + 4 <= len(data):
        acc = (acc + int.from_bytes(data[at : at + 4], "little") * _PRIME_3) & _M32
        acc = _rotate(acc, 17) * _PRIME_4 & _M32
        at += 4
    for byte in data[at:]:
        acc = (acc + byte * _PRIME_5) & _M32
        acc = _rotate(acc, 11) * _PRIME_1 & _M32
    acc = (acc ^ acc >> 15) * _PRIME_2 & _M32
    acc = (acc ^ acc >> 13) * _PRIME_3 & _M32
    return acc ^ acc >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _M32

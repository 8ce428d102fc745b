"""The 61 bytes in front of a v2 record batch: where its fields are, how to read, patch and check them.

Answers for the header only. What a batch needs before it may be appended elsewhere is `chunk`'s business, the records
inside are `kernels`' and `records`'.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from heliograph.errors import CorruptBatch

Bytes = bytes | bytearray | memoryview

# Offsets of the fields, in bytes. Base offset and leader epoch lie outside the CRC, which covers ATTRIBUTES to the end.
BASE_OFFSET = 0
LENGTH = 8
LEADER_EPOCH = 12
MAGIC = 16
CRC = 17
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
BASE_TIMESTAMP = 27
MAX_TIMESTAMP = 35
PRODUCER_ID = 43
PRODUCER_EPOCH = 51
BASE_SEQUENCE = 53
COUNT = 57
SIZE = 61  # of the header; the records follow

PREFIX = 12  # base offset and length: what the length field does not count

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
# What a copy must not carry: the target decides on its timestamp type, our appends are idempotent and not
# transactional, and a delete horizon belongs to the log cleaner of the source.
CLEARED = LOG_APPEND_TIME | TRANSACTIONAL | DELETE_HORIZON

NO_PRODUCER = (-1, -1, -1)

FIELDS = struct.Struct(">qiibIhiqqqhii")
_FRONT = struct.Struct(">qii")  # base offset, length, leader epoch
_CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header, for people, tests and the places where speed is not the point."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @classmethod
    def parse(cls, batch: Bytes) -> Header:
        if len(batch) < SIZE:
            raise CorruptBatch(f"A record batch of {len(batch)} bytes: its header alone takes {SIZE}", size=len(batch))
        header = cls(*FIELDS.unpack_from(batch))
        if header.magic != 2:
            raise CorruptBatch(f"A record batch with magic {header.magic}, not 2", offset=header.base_offset)
        return header

    @property
    def size_bytes(self) -> int:
        return self.length + PREFIX

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)


def patch(batch: bytearray | memoryview, producer_id: int, producer_epoch: int, sequence: int) -> None:
    """Make a whole v2 batch ready to be appended under our own producer; the records are not touched.

    Nothing else of the header needs a change: a batch does not say which topic or cluster it belongs to.
    """
    _FRONT.pack_into(batch, 0, 0, len(batch) - PREFIX, -1)
    batch[ATTRIBUTES] = 0  # no attribute is defined in the high byte
    batch[ATTRIBUTES + 1] &= ~CLEARED & 0xFF
    _PRODUCER.pack_into(batch, PRODUCER_ID, producer_id, producer_epoch, sequence)
    _CRC.pack_into(batch, CRC, checksum(batch))


def base_timestamp(batch: Bytes) -> int:
    """The first record's, in ms."""
    return int.from_bytes(batch[BASE_TIMESTAMP:MAX_TIMESTAMP], "big", signed=True)


def leader_epoch(batch: Bytes) -> int:
    return int.from_bytes(batch[LEADER_EPOCH:MAGIC], "big", signed=True)


def claimed_bytes(buffer: Bytes) -> int:
    """How long the first batch of a buffer is, as its length field says; 0: that is cut off itself."""
    if len(buffer) < LEADER_EPOCH:
        return 0
    return int.from_bytes(buffer[LENGTH:LEADER_EPOCH], "big", signed=True) + PREFIX


def checksum(batch: Bytes) -> int:
    """The CRC-32C of what the header's CRC covers."""
    # A slice of a bytearray would copy the payload, one of a memoryview does not.
    return crc32c(memoryview(batch)[ATTRIBUTES:])


def verify_crc(batch: Bytes) -> bool:
    """Whether the CRC-32C in the header is that of what follows it."""
    return bool(_CRC.unpack_from(batch, CRC)[0] == checksum(batch))


def write(
    batch: bytearray | memoryview,
    *,
    codec: int,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
) -> None:
    """Fill in the header of a batch built by us; the producer's fields and the CRC come with `patch`."""
    FIELDS.pack_into(
        batch, 0, 0, len(batch) - PREFIX, -1, 2, 0, codec, last_offset_delta, base_timestamp, max_timestamp,
        *NO_PRODUCER, count,
    )  # fmt: skip


def headers(buffer: Bytes) -> Iterator[Header]:
    """The header of each whole v2 batch of a fetched buffer; stops at anything else."""
    at = 0
    while len(buffer) - at >= SIZE and buffer[at + MAGIC] == 2:
        header = Header(*FIELDS.unpack_from(buffer, at))
        if header.size_bytes < SIZE or at + header.size_bytes > len(buffer):
            return
        yield header
        at += header.size_bytes

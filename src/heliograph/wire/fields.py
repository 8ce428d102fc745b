"""Single fields of Kafka's flexible messages, for what is read and written by hand. Knows no versions, no messages."""

from __future__ import annotations

import struct

from kio.serial.readers import read_unsigned_varint

_LEADER = struct.Struct(">ii")  # id, epoch
_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def unsigned(frame: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint and where it ends."""
    value, size = read_unsigned_varint(frame, at)
    return value, at + size


def unsigned_bytes(value: int) -> bytes:
    """An unsigned varint as it is written."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def bytes_at(frame: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    if size < 0 or at + size > len(frame):
        raise ValueError(f"a field of {size} bytes at {at}, of {len(frame)} in all")
    return frame[at : at + size], at + size


def text(frame: memoryview, at: int) -> tuple[str, int]:
    """A compact string and where it ends; null reads as nothing."""
    length, at = unsigned(frame, at)
    found, at = bytes_at(frame, at, max(length - 1, 0))
    return str(found, "utf-8"), at


def leader_among_tagged(frame: memoryview, at: int, wanted: int) -> tuple[tuple[int, int], int]:
    """Who leads a partition now, by the tagged field of this number, as (id, epoch); -1: it is not among them."""
    leader = (-1, -1)
    tags, at = unsigned(frame, at)
    for _ in range(tags):
        tag, at = unsigned(frame, at)
        size, at = unsigned(frame, at)
        if tag == wanted:
            leader = _LEADER.unpack_from(frame, at)
        _, at = bytes_at(frame, at, size)
    return leader, at


def skip_tagged(frame: memoryview, at: int) -> int:
    tags, at = unsigned(frame, at)
    for _ in range(tags):
        _, at = unsigned(frame, at)
        size, at = unsigned(frame, at)
        _, at = bytes_at(frame, at, size)
    return at

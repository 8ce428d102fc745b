"""Records as Python objects, and one batch of them as bytes.

For positions, internal topics and tests: a few records at a time, correctness before speed. The data path never comes
here; it has `kernels`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from heliograph.batch import codec as codecs
from heliograph.batch import header
from heliograph.errors import CorruptBatch

_I64_MASK = (1 << 64) - 1

# Names of headers that are not UTF-8, which Java never writes and others can, come back as the bytes they were.
NOT_UTF8 = "surrogateescape"

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    timestamp: int  # ms since 1970; -1: none
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def encode(
    records: Sequence[Record],
    *,
    codec: int = codecs.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_timestamp: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    max_timestamp: int | None = None,
    leader_epoch: int = -1,
) -> bytes:
    """One batch, with its CRC. Offsets may have holes; the base offset is the first record's.

    To append it, records are numbered from 0. `attributes` are the flags besides the codec, and `last_offset_delta`,
    `max_timestamp` can be said otherwise than the records do, as a log cleaner or a LogAppendTime topic would.
    """
    if not records:
        raise ValueError("a record batch without records cannot be produced")
    base = records[0].offset
    first_timestamp = records[0].timestamp if base_timestamp is None else base_timestamp
    payload = codecs.compress(codec, b"".join(_encode_record(r, base, first_timestamp) for r in records))
    batch = bytearray(header.SIZE) + payload
    header.FIELDS.pack_into(
        batch,
        0,
        base,
        len(batch) - header.PREFIX,
        leader_epoch,
        2,
        0,
        codec | attributes,
        records[-1].offset - base if last_offset_delta is None else last_offset_delta,
        first_timestamp,
        max(r.timestamp for r in records) if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    struct.pack_into(">I", batch, header.CRC, header.checksum(batch))
    return bytes(batch)


def decode(batch: bytes | bytearray | memoryview, *, check_crc: bool = True) -> list[Record]:
    """The records of one v2 batch; what a consumer would see of it, control records included."""
    head = header.Header.parse(batch)
    if head.size_bytes != len(batch):
        raise CorruptBatch(
            f"A record batch of {len(batch)} bytes says it has {head.size_bytes}", offset=head.base_offset
        )
    if check_crc and not header.verify_crc(batch):
        raise CorruptBatch("The CRC of a record batch does not match", offset=head.base_offset)
    view = memoryview(batch)[header.SIZE :]
    reader = _Reader(bytes(codecs.decompress(head.codec, view, offset=head.base_offset)))
    try:
        records = [_decode_record(reader, head) for _ in range(head.count)]
    except (IndexError, struct.error) as error:
        raise CorruptBatch(f"A record in a batch makes no sense: {error}", offset=head.base_offset) from error
    if reader.at != len(reader.data):
        raise CorruptBatch(f"{len(reader.data) - reader.at} bytes after the last record", offset=head.base_offset)
    return records


def decode_all(
    buffer: bytes | bytearray | memoryview, *, check_crc: bool = True
) -> Iterator[tuple[Record | None, int]]:
    """The records of all whole batches in a row, as a fetch returns them, each with the offset to go on from.

    A batch ends with (None, offset) when something lies behind its last record: a control record, or holes.
    """
    view = memoryview(buffer)
    at = 0
    for head in header.headers(view):
        after = head.base_offset
        if not head.control:
            for record in decode(view[at : at + head.size_bytes], check_crc=check_crc):
                after = record.offset + 1
                yield record, after
        if after <= head.last_offset:
            yield None, head.last_offset + 1
        at += head.size_bytes


def _encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    body = b"".join(
        (
            b"\x00",
            varint(record.timestamp - base_timestamp),
            varint(record.offset - base_offset),
            _sized(record.key),
            _sized(record.value),
            varint(len(record.headers)),
            *(_sized(name.encode(errors=NOT_UTF8)) + _sized(value) for name, value in record.headers),
        )
    )
    return varint(len(body)) + body


def _decode_record(reader: _Reader, head: header.Header) -> Record:
    size = reader.varint()
    end = reader.at + size
    if size < 0 or end > len(reader.data):
        raise IndexError(f"a record of {size} bytes where {len(reader.data) - reader.at} are left")
    reader.at += 1  # attributes: none are defined
    delta = reader.varint()
    timestamp = head.max_timestamp if head.log_append_time else _wrap(head.base_timestamp + delta)
    offset = head.base_offset + reader.varint()
    key, value = reader.sized(), reader.sized()
    count = reader.varint()
    if count < 0:
        raise IndexError(f"{count} headers")
    headers = tuple(_decode_header(reader) for _ in range(count))
    if reader.at != end:
        raise IndexError(f"a record ends at {reader.at}, not at {end}")
    return Record(offset, timestamp, key, value, headers)


def _decode_header(reader: _Reader) -> tuple[str, bytes | None]:
    name = reader.sized()
    if name is None:
        raise IndexError("a header without a name")
    return name.decode(errors=NOT_UTF8), reader.sized()


def varint(value: int) -> bytes:
    """Zig-zag, seven bits a byte, as Kafka writes every number inside a record."""
    value = _wrap(value)
    rest = ((value << 1) ^ (value >> 63)) & _I64_MASK
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _wrap(value: int) -> int:
    """As Java's long does: a timestamp delta may pass 2^63."""
    return (value + (1 << 63) & _I64_MASK) - (1 << 63)


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else varint(len(data)) + data


class _Reader:
    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise IndexError("a varint of more than ten bytes")
        value &= _I64_MASK
        return (value >> 1) ^ -(value & 1)

    def sized(self) -> bytes | None:
        size = self.varint()
        if size < 0:
            return None
        end = self.at + size
        if end > len(self.data):
            raise IndexError(f"{size} bytes where {len(self.data) - self.at} are left")
        data = self.data[self.at : end]
        self.at = end
        return data

"""Messages of magic 0 and 1, written here byte by byte, come out as the records they are."""

from __future__ import annotations

import struct
import zlib

import pytest

from heliograph.batch import Chunk, Limits, Record, decode, encode, patch, warm
from heliograph.batch import codec as codecs
from heliograph.errors import CorruptBatch


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    warm()  # else what is merged would depend on how long they take to load


def message(
    magic: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, attributes: int = 0
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(magic: int, codec: int, offset: int, inner: bytes, timestamp: int = 99, flags: int = 0) -> bytes:
    return message(magic, offset, timestamp, None, bytes(codecs.compress(codec, inner)), codec | flags)


def read(buffer: bytes, wanted: int = 0, merge: bool = False) -> list[Record]:
    chunk = Chunk(buffer, wanted=wanted, limits=Limits())
    records = []
    while (piece := chunk.take(merge=merge)) is not None:
        patch(piece.data, 1, 0, 0)
        offsets = [first + k for first, length in piece.runs for k in range(length)]
        records += [
            Record(o, r.timestamp, r.key, r.value, r.headers) for o, r in zip(offsets, decode(piece.data), strict=True)
        ]
    assert chunk.position == chunk.next_offset
    return records


@pytest.mark.parametrize("merge", [False, True])
def test_loose_messages_and_v2_in_one_buffer(merge: bool) -> None:
    old = message(0, 3, 0, b"k0", b"v0") + message(1, 4, 1234, None, b"v1") + message(1, 9, 1235, b"k2", None)
    new = encode([Record(10, 77, b"new", b"er", (("h", b"x"),))])
    expected = [
        Record(3, -1, b"k0", b"v0"),
        Record(4, 1234, None, b"v1"),
        Record(9, 1235, b"k2", None),
        Record(10, 77, b"new", b"er", (("h", b"x"),)),
    ]
    assert read(old + new, merge=merge) == expected
    assert read(old + new + message(1, 11, 1, b"cut", b"off")[:-3], 4, merge) == expected[1:]
    assert read(old[:-1], merge=merge) == expected[:2]


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4])
def test_wrappers_of_magic_1_count_from_their_last(codec: int) -> None:
    inner = message(1, 0, 50, b"a", b"1") + message(1, 1, 51, b"b", b"2") + message(1, 4, 52, b"c", b"3")
    kept = [Record(100, 50, b"a", b"1"), Record(101, 51, b"b", b"2"), Record(104, 52, b"c", b"3")]
    assert read(wrapper(1, codec, 104, inner)) == kept
    stamped = [Record(r.offset, 99, r.key, r.value) for r in kept]
    assert read(wrapper(1, codec, 104, inner, flags=0x08)) == stamped


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4])
def test_wrappers_of_magic_0_hold_their_own_offsets(codec: int) -> None:
    inner = message(0, 7, 0, b"a", b"1") + message(0, 8, 0, None, b"2")
    assert read(wrapper(0, codec, 8, inner)) == [Record(7, -1, b"a", b"1"), Record(8, -1, None, b"2")]


def test_lz4_of_magic_0_with_the_wrong_checksum_of_its_day() -> None:
    frame = bytearray(codecs.compress(codecs.LZ4, message(0, 7, 0, b"a", b"1")))
    frame[6] ^= 0x55
    assert read(message(0, 7, 0, None, bytes(frame), codecs.LZ4)) == [Record(7, -1, b"a", b"1")]


def test_many_loose_messages_become_few_batches() -> None:
    data = b"".join(message(1, k, k, b"k", b"v") for k in range(2500))
    chunk = Chunk(data, wanted=0, limits=Limits())
    assert chunk.batches == 3
    assert [r.offset for r in read(data)] == list(range(2500))


def test_offsets_too_far_apart_for_one_batch() -> None:
    data = message(1, 1, 5, b"a", b"1") + message(1, 1 << 33, 6, b"b", b"2")
    assert [r.offset for r in read(data)] == [1, 1 << 33]


@pytest.mark.parametrize(
    "bad",
    [
        message(1, 5, 1, b"k", b"v")[:-1] + b"!",  # its CRC
        wrapper(1, codecs.GZIP, 5, b"no messages at all"),
        wrapper(1, codecs.ZSTD, 5, message(1, 0, 1, b"k", b"v")),  # zstd came later
        message(1, 5, 1, None, None, codecs.GZIP),
        wrapper(0, codecs.GZIP, 9, message(0, 9, 0, b"k", b"v") + message(0, 8, 0, b"k", b"v")),
    ],
)
def test_a_bad_one_waits_behind_the_good(bad: bytes) -> None:
    good = message(1, 4, 1, b"k", b"v")
    assert read(good + bad) == [Record(4, 1, b"k", b"v")]
    with pytest.raises(CorruptBatch):
        Chunk(bad, wanted=5, limits=Limits())

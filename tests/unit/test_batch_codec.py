"""Codecs: what others write is read, what we write has the shape others demand, and nothing unpacks without end."""

from __future__ import annotations

import gzip
import os
import struct

import cramjam
import pytest

from heliograph.batch import codec as codecs
from heliograph.batch.codec import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from heliograph.errors import CorruptBatch, UnknownCodec

TEXT = b'{"id": 17, "name": "something that repeats"}' * 5000
NOISE = os.urandom(150_000)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["nothing", "a byte", "text", "noise"])
def test_round_trip(codec: int, data: bytes) -> None:
    packed = bytes(compress(codec, memoryview(data)))
    assert bytes(decompress(codec, packed)) == data
    assert codec == NONE or data is not TEXT or len(packed) < len(data) / 5


def test_lz4_has_the_header_java_writes_and_independent_blocks() -> None:
    packed = bytes(compress(LZ4, TEXT + NOISE))
    assert packed[:7].hex() == "04224d18604082"
    blocks = list(lz4_blocks(packed))
    assert len(blocks) == -(-len(TEXT + NOISE) // 65536)
    unpacked = b"".join(
        data if stored else bytes(cramjam.lz4.decompress_block(data, output_len=65536)) for stored, data in blocks
    )  # each by itself: Java does not know blocks that lean on the one before
    assert unpacked == TEXT + NOISE
    assert any(stored for stored, _ in blocks), "noise is stored"


def lz4_blocks(frame: bytes):  # type: ignore[no-untyped-def]
    at = 7
    while size := struct.unpack_from("<I", frame, at)[0]:
        stored, size = bool(size >> 31), size & 0x7FFFFFFF
        yield stored, frame[at + 4 : at + 4 + size]
        at += 4 + size
    assert at + 4 == len(frame)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_frames_of_other_writers(linked: bool, checksum: bool) -> None:
    writer = cramjam.lz4.Compressor(level=1, content_checksum=checksum, block_linked=linked)
    writer.compress(TEXT)
    assert bytes(decompress(LZ4, bytes(writer.finish()))) == TEXT


def test_snappy_in_both_framings() -> None:
    assert bytes(decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT
    packed = bytes(compress(SNAPPY, TEXT))
    assert packed.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
    assert struct.unpack_from(">i", packed, 16)[0] < 32 << 10


def test_gzip_of_several_members() -> None:
    assert bytes(decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"))) == b"one two"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("limit", [100_000, 1_999_999])
def test_a_bomb_is_refused(codec: int, limit: int) -> None:
    bomb = bytes(compress(codec, bytes(2_000_000)))
    with pytest.raises(CorruptBatch, match="more than") as caught:
        decompress(codec, bomb, limit_bytes=limit, offset=42)
    assert caught.value.context["offset"] == 42
    assert len(decompress(codec, bomb, limit_bytes=2_000_000)) == 2_000_000


def test_a_zstd_bomb_behind_a_skippable_frame() -> None:
    bomb = struct.pack("<II", 0x184D2A50, 4) + b"skip" + bytes(compress(ZSTD, bytes(2_000_000)))
    with pytest.raises(CorruptBatch):
        decompress(ZSTD, bomb, limit_bytes=100_000)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-5], lambda b: b"rubbish" + b, lambda b: b""], ids=["cut", "led", "none"]
)
def test_rubbish_is_corrupt(codec: int, spoil) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CorruptBatch) as caught:
        decompress(codec, spoil(bytes(compress(codec, TEXT))), topic="t")
    assert caught.value.context["topic"] == "t"


def test_a_codec_nobody_knows() -> None:
    with pytest.raises(UnknownCodec, match="codec 5"):
        decompress(5, b"")
    with pytest.raises(UnknownCodec, match="none, gzip"):
        compress(7, b"")
    assert [codecs.name_of(n) for n in range(6)] == ["none", "gzip", "snappy", "lz4", "zstd", "codec 5"]


def test_snappy_streams_that_were_joined_are_read_as_java_reads_them() -> None:
    first, second = (bytes(compress(SNAPPY, text)) for text in (b"hello " * 500, b"world " * 700))
    assert bytes(decompress(SNAPPY, first + second)) == b"hello " * 500 + b"world " * 700


@pytest.mark.parametrize("behind", [b"\0", b"\0" * 8, b"\0" * 100, b"\x1f\x8b\x08", b"no member at all, 30 bytes..."])
def test_what_follows_the_last_gzip_member_is_ignored_as_java_does(behind: bytes) -> None:
    assert decompress(GZIP, gzip.compress(b"x" * 100) + behind) == b"x" * 100


def test_gzip_members_without_end_are_held_to_the_limit_together() -> None:
    members = gzip.compress(bytes(1000)) * 3 + gzip.compress(b"") * 2000
    assert len(decompress(GZIP, members)) == 3000
    with pytest.raises(CorruptBatch, match="more than 2,999 bytes"):
        decompress(GZIP, members, limit_bytes=2999)
    with pytest.raises(CorruptBatch, match="too early"):
        decompress(GZIP, members + gzip.compress(NOISE)[:-20])


@pytest.mark.parametrize("number", range(1, 5))
def test_packed_tightly_it_is_read_as_ever(number: int) -> None:
    data = b"".join(b'{"id":%d,"state":"ok","text":"%d lorem ipsum"}' % (n * 7919 % 10_007, n) for n in range(20_000))
    tight = compress(number, data, tight=True)
    assert len(tight) < len(compress(number, data)) or number in (SNAPPY, LZ4)
    assert bytes(decompress(number, bytes(tight))) == data

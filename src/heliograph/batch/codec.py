"""The five codecs of a record batch: none, gzip, snappy, lz4, zstd.

Answers for bytes that Java's brokers and clients and librdkafka can read, for reading what any of them writes, and for
never unpacking more than a limit. Foreign errors end here: `CorruptBatch` and `UnknownCodec` come out.

What the others demand, and the libraries' defaults would break:
- Java reads only lz4 frames with *independent* blocks, and cramjam's `lz4.compress` links them. So the frame is made
  here, with the very header Java writes, from blocks that cramjam packs.
- snappy comes in two framings. Java writes xerial's, librdkafka and others one bare block; both read both. We write
  xerial's.
- cramjam's default levels (lz4 4, zstd 11) are several times slower than Kafka's own (zstd 3, lz4's fast mode).
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable
from typing import Any

import cramjam

from heliograph.errors import BatchError, CorruptBatch, UnknownCodec

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# The largest batch that is unpacked. A batch of max.message.bytes (1 MiB by default) reaches this size at a ratio of
# 1:128; repetitive JSON in zstd reaches 1:60. Dividing a batch holds its records twice for a moment, so a hostile
# producer costs a task 256 MiB and does not end it. Batches that pass as they stand are not unpacked.
LIMIT_BYTES = 128 << 20

Bytes = bytes | bytearray | memoryview

_cramjam: Any = cramjam  # what it returns can be read like bytes, which its stubs do not say

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)  # version, oldest compatible version
_XERIAL_BLOCK = 32 << 10  # Java's
_GZIP_HEADER = b"\x1f\x8b\x08"
_GZIP_SMALLEST = 18  # bytes of a member: header and trailer
_GZIP_WINDOW = 512
# Magic, FLG (version 1, independent blocks), BD (blocks of 64 KiB), and a byte of xxHash-32 over both. Java's too: a
# reader holds one block in memory, so larger ones would cost every consumer.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK = 64 << 10
_LZ4_STORED = 0x80000000
_LZ4_MAX_RATIO = 255
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK = 128 << 10
_UNKNOWN_BOUND = 1 << 62
_U32 = struct.Struct("<I")
_I32 = struct.Struct(">i")


def name_of(codec: int) -> str:
    return NAMES[codec] if 0 <= codec < len(NAMES) else f"codec {codec}"


def decompress(codec: int, data: Bytes, *, limit_bytes: int = LIMIT_BYTES, **context: Any) -> Bytes:
    """The records of a batch, unpacked. `context` (topic, offset …) goes into the error."""
    if codec == NONE:
        return data
    unpack = _UNPACK.get(codec)
    if unpack is None:
        raise UnknownCodec(
            f"A record batch is compressed with {name_of(codec)}, which Kafka does not define",
            fix="A newer Kafka may; look for a newer Heliograph",
            codec=codec,
            **context,
        )
    try:
        return unpack(data, limit_bytes)
    except BatchError as error:
        error.context.update(context)
        raise
    except (cramjam.DecompressionError, zlib.error, struct.error, ValueError) as error:
        raise CorruptBatch(f"{name_of(codec)} cannot unpack a record batch: {error}", codec=codec, **context) from error


def compress(codec: int, data: Bytes, *, tight: bool = False) -> Bytes:
    """Pack the records of a batch so that Java and librdkafka can read them. `tight`: as small as the codec can, at ten
    times the cost or more; for a record that is too large otherwise."""
    if codec == NONE:
        return data
    pack = (_PACK_TIGHT if tight else _PACK).get(codec)
    if pack is None:
        raise UnknownCodec(f"{name_of(codec)} is not one of {', '.join(NAMES)}", codec=codec)
    return pack(data)


def _too_large(limit_bytes: int) -> CorruptBatch:
    return CorruptBatch(
        f"A record batch unpacks to more than {limit_bytes:,} bytes",
        fix="No producer makes such batches; look at who writes to the source topic",
        limit_bytes=limit_bytes,
    )


def _into(module: Any, data: Bytes, limit_bytes: int) -> Bytes:
    """Unpack into a buffer of the limit's size: pages not written are never touched."""
    with mmap.mmap(-1, limit_bytes) as room:
        try:
            size = module.decompress_into(data, room)
        except cramjam.DecompressionError as error:
            if "whole buffer" in str(error):
                raise _too_large(limit_bytes) from error
            raise
        return room[:size]


def _gunzip(data: Bytes, limit_bytes: int) -> bytes:
    """The members of a gzip stream. What follows the last one and is no member is ignored, as java.util.zip does."""
    view = memoryview(data)
    first, at = _member(view, 0, len(view), limit_bytes, limit_bytes)
    if not _is_member(view, at):
        return first
    out, room = [first], limit_bytes - len(first)
    while _is_member(view, at):
        # In small windows: zlib copies what lies behind a member, and a stream may have thousands of empty ones.
        more, at = _member(view, at, _GZIP_WINDOW, room, limit_bytes)
        room -= len(more)
        out.append(more)
    return b"".join(out)


def _member(view: memoryview, at: int, window: int, room: int, limit_bytes: int) -> tuple[bytes, int]:
    """One gzip member, unpacked, and where the next one may begin."""
    member = zlib.decompressobj(31)
    out: list[bytes] = []
    while not member.eof:
        if at >= len(view):
            raise CorruptBatch("A gzip stream ends too early")
        given = view[at : at + window]
        out.append(member.decompress(given, room + 1))
        room -= len(out[-1])
        if room < 0:
            raise _too_large(limit_bytes)
        at += len(given)
        window *= 2
    return out[0] if len(out) == 1 else b"".join(out), at - len(member.unused_data)


def _is_member(view: memoryview, at: int) -> bool:
    return len(view) - at >= _GZIP_SMALLEST and view[at : at + len(_GZIP_HEADER)] == _GZIP_HEADER


def _gzip(data: Bytes) -> bytes:
    return zlib.compress(data, 6, 31)  # 6 is Kafka's level; zlib packs faster here than cramjam


def _gzip_tight(data: Bytes) -> bytes:
    return zlib.compress(data, 9, 31)


def _unsnap_block(data: Bytes, room: int, limit_bytes: int) -> Bytes:
    if _cramjam.snappy.decompress_raw_len(data) > room:
        raise _too_large(limit_bytes)
    out: Bytes = _cramjam.snappy.decompress_raw(data)
    return out


def _unsnap(data: Bytes, limit_bytes: int) -> Bytes:
    if bytes(data[:8]) != _XERIAL:
        return _unsnap_block(data, limit_bytes, limit_bytes)
    view = memoryview(data)
    out: list[Bytes] = []
    at, room = len(_XERIAL_HEADER), limit_bytes
    while at < len(view):
        if view[at : at + len(_XERIAL)] == _XERIAL:  # streams that were joined: Java reads on behind the next header
            at += len(_XERIAL_HEADER)
            continue
        size = _I32.unpack_from(view, at)[0]
        at += 4
        if size < 0 or at + size > len(view):
            raise CorruptBatch(f"A snappy block of {size} bytes where {len(view) - at} are left")
        out.append(_unsnap_block(view[at : at + size], room, limit_bytes))
        room -= len(out[-1])
        at += size
    return out[0] if len(out) == 1 else b"".join(out)


def _snap(data: Bytes) -> bytes:
    view = memoryview(data)
    out: list[Bytes] = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = _cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK])
        out += (_I32.pack(len(block)), block)
    return b"".join(out)


def _unlz4(data: Bytes, limit_bytes: int) -> Bytes:
    if len(data) * _LZ4_MAX_RATIO > limit_bytes:
        return _into(_cramjam.lz4, data, limit_bytes)
    out: Bytes = _cramjam.lz4.decompress(data)
    return out


def _lz4(data: Bytes) -> bytes:
    view = memoryview(data)
    out: list[Bytes] = [_LZ4_HEADER]
    for at in range(0, len(view), _LZ4_BLOCK):
        plain = view[at : at + _LZ4_BLOCK]
        block = _cramjam.lz4.compress_block(plain, mode="fast", acceleration=1, store_size=False)
        if len(block) < len(plain):
            out += (_U32.pack(len(block)), block)
        else:
            out += (_U32.pack(len(plain) | _LZ4_STORED), plain)
    out.append(_U32.pack(0))
    return b"".join(out)


def _unzstd(data: Bytes, limit_bytes: int) -> Bytes:
    if _zstd_bound(data) > limit_bytes:
        return _into(_cramjam.zstd, data, limit_bytes)
    out: Bytes = _cramjam.zstd.decompress(data)
    return out


def _zstd_bound(data: Bytes) -> int:
    """At most how many bytes come out of these frames: zstd packs 128 KiB into 4 bytes, so their size says nothing."""
    at = bound = 0
    while at + 5 <= len(data):
        if _U32.unpack_from(data, at)[0] != _ZSTD_MAGIC:
            return _UNKNOWN_BOUND  # a skippable frame or rubbish: the library will say, within the limit
        descriptor = data[at + 4]
        single = descriptor >> 5 & 1
        at += 5 + (not single) + (0, 1, 2, 4)[descriptor & 3] + (single, 2, 4, 8)[descriptor >> 6]
        last = 0
        while not last and at + 3 <= len(data):
            word = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            last, kind, size = word & 1, word >> 1 & 3, word >> 3
            bound += _ZSTD_BLOCK if kind == 2 else size
            at += 3 + (1 if kind == 1 else size)
        at += 4 if descriptor & 4 else 0
    return bound


def _zstd(data: Bytes) -> Bytes:
    out: Bytes = _cramjam.zstd.compress(data, level=3)
    return out


def _zstd_tight(data: Bytes) -> Bytes:
    out: Bytes = _cramjam.zstd.compress(data, level=12)  # above it some MB/s
    return out


_UNPACK: dict[int, Callable[[Bytes, int], Bytes]] = {GZIP: _gunzip, SNAPPY: _unsnap, LZ4: _unlz4, ZSTD: _unzstd}
_PACK: dict[int, Callable[[Bytes], Bytes]] = {GZIP: _gzip, SNAPPY: _snap, LZ4: _lz4, ZSTD: _zstd}
_PACK_TIGHT: dict[int, Callable[[Bytes], Bytes]] = {
    GZIP: _gzip_tight,
    SNAPPY: _snap,  # has no levels
    LZ4: _lz4,  # has levels, but cramjam's blocks come out the same at all of them
    ZSTD: _zstd_tight,
}

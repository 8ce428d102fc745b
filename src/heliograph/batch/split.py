"""What one fetch brought, divided by target partition: each share is a buffer of batches like the one it came from.

Answers for where a record goes when the target has another number of partitions, and for shares that `Chunk` reads as
it reads any fetch: a record that went elsewhere is a hole, as compaction would have left it. Does not know topics, nor
how far anybody is.

Invariants:
A. Where a record goes depends on its key, its offset and the number of targets alone, never on batches, fetches or
   time: read again after a restart, it goes to the same place.
B. A key goes where Kafka's own producers put it: murmur2, positive, modulo.
C. Every share holds every control batch, and ends where the whole does, with an empty batch if need be: so transactions
   end in all of them, and each share alone says how far the source was read.
D. What is not a whole, sound batch is in no share, nor is anything behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from heliograph.batch import codec as codecs
from heliograph.batch import columns as c
from heliograph.batch import header, legacy
from heliograph.errors import CorruptBatch

# Records without a key have no place of their own. So many neighbours go together, to keep batches large.
KEYLESS_RUN = 64


@dataclass(slots=True)
class Shares:
    """A buffer for each target partition. `codec`: what most of the bytes were packed with, for packing them again."""

    buffers: list[bytes | memoryview]
    codec: int
    size: int  # bytes of the batches that were divided, as they came


def target_of(key: bytes | None, offset: int, targets: int) -> int:
    """Where a record goes; what the kernel does, in Python."""
    if key is None:
        return offset // KEYLESS_RUN % targets
    return (murmur2(key) & 0x7FFFFFFF) % targets


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as 32 bits without a sign."""
    mask, mix = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    h = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * mix & mask
        k = (k ^ k >> 24) * mix & mask
        h = h * mix & mask ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * mix & mask
    h = (h ^ h >> 13) * mix & mask
    return h ^ h >> 15


def split(records: bytes | memoryview, targets: int) -> Shares:
    """The shares of the whole batches in `records`, up to the first that is corrupt; that one alone is an error.

    Their CRCs are checked here, so the shares, whose own are right, may be read with `check_crc=False`.
    """
    view = _upgraded(memoryview(records))
    sharing = _Sharing(targets)
    at = 0
    while len(view) - at >= header.SIZE:
        size = int.from_bytes(view[at + header.LENGTH : at + header.LEADER_EPOCH], "big", signed=True) + header.PREFIX
        if size >= header.SIZE and at + size > len(view):
            break  # cut off by the fetch's size limit: it comes again
        try:
            sharing.add(view[at : at + size] if size >= header.SIZE else view[at:])
        except CorruptBatch:
            if at:
                break  # it is named when a fetch begins with it
            raise
        at += size
    return sharing.shares()


def _upgraded(view: memoryview) -> memoryview:
    """With messages of the formats before 0.11, which lie only at a log's beginning, as batches."""
    if len(view) > header.MAGIC and view[header.MAGIC] < 2:
        return memoryview(legacy.upgrade(view, check_crc=True))
    return view


class _Sharing:
    """Shares under construction."""

    def __init__(self, targets: int) -> None:
        self._targets = targets
        self._buffers = [bytearray() for _ in range(targets)]
        self._ends = [-1] * targets  # the last offset in each share
        self._last: bytes = b""  # the header of the last batch
        self._bytes_by_codec = [0] * (header.CODEC_MASK + 1)

    def add(self, batch: memoryview) -> None:
        head = header.Header.parse(batch)
        if crc32c(batch[header.ATTRIBUTES :]) != head.crc:
            raise self._corrupt(head, "the CRC does not match")
        if head.last_offset_delta < 0 or not 0 <= head.count <= head.last_offset_delta + 1 or head.base_offset < 0:
            raise self._corrupt(head, "its offsets make no sense")
        self._last = bytes(batch[: header.SIZE])
        if head.attributes & header.CONTROL:
            for buffer in self._buffers:
                buffer += batch
            self._ends = [head.base_offset + head.last_offset_delta] * self._targets
        elif head.count:
            self._divide(head, batch)

    def _divide(self, head: header.Header, batch: memoryview) -> None:
        import numpy as np

        from heliograph.batch import routing

        codec = head.attributes & header.CODEC_MASK
        packed = batch[header.SIZE :]
        payload = np.frombuffer(
            codecs.decompress(codec, packed, offset=head.base_offset) if codec else packed, np.uint8
        )
        self._bytes_by_codec[codec] += len(batch)
        tally = np.zeros((self._targets, 2), np.int64)  # bytes and records for each target
        places = np.empty((head.count, 2), np.int64)  # target and size of each record
        if routing.route(payload, head.count, head.base_offset, KEYLESS_RUN, tally, places) != c.OK:
            raise self._corrupt(head, "its records make no sense")
        out = np.empty(len(payload), np.uint8)
        starts = np.concatenate(([0], np.cumsum(tally[:, 0])))
        routing.scatter(payload, places, starts[:-1].copy(), out)
        for target, (begin, end, count) in enumerate(zip(starts, starts[1:], tally[:, 1], strict=False)):
            if count:
                share = out[begin:end].data
                self._buffers[target] += self._header(self._last, share, int(count))
                self._buffers[target] += share
                self._ends[target] = head.base_offset + head.last_offset_delta

    @staticmethod
    def _header(like: bytes, payload: memoryview | bytes, count: int) -> bytearray:
        """The header of a share's batch: the offsets, times and producer of the whole, unpacked, with fewer records."""
        made = bytearray(like)
        made[header.LENGTH : header.LEADER_EPOCH] = (header.SIZE - header.PREFIX + len(payload)).to_bytes(4, "big")
        made[header.ATTRIBUTES + 1] &= ~header.CODEC_MASK & 0xFF
        made[header.COUNT : header.SIZE] = count.to_bytes(4, "big")
        crc = crc32c(payload, crc32c(bytes(made[header.ATTRIBUTES :])))
        made[header.CRC : header.ATTRIBUTES] = crc.to_bytes(4, "big")
        return made

    def shares(self) -> Shares:
        if self._last:
            head = header.Header.parse(self._last)
            end = head.base_offset + head.last_offset_delta
            for buffer, reached in zip(self._buffers, self._ends, strict=True):
                if reached < end:
                    buffer += self._header(self._last, b"", 0)  # invariant C
        most = max(range(codecs.ZSTD + 1), key=self._bytes_by_codec.__getitem__)
        buffers: list[bytes | memoryview] = [memoryview(buffer).toreadonly() for buffer in self._buffers]
        return Shares(buffers, most, sum(self._bytes_by_codec))

    @staticmethod
    def _corrupt(head: header.Header, what: str) -> Any:
        return CorruptBatch(
            f"The record batch at source offset {head.base_offset} is corrupt: {what}",
            fix="Check the source broker's disk with kafka-dump-log, or the network between",
            offset=head.base_offset,
        )

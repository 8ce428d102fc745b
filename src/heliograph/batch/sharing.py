"""What one fetch brought, made over into buffers of batches that `Chunk` reads as it reads any fetch.

Answers for the walk over whole, sound batches, and for headers that are right again when the records behind them were
taken apart or made longer. Where records go, and what becomes of them, whoever inherits says in `_divide`.

Invariants:
A. A record that is not in a share is a hole there, as compaction would have left it; offsets stay the source's.
B. Every share holds every control batch, and ends where the whole does, with an empty batch if need be: so transactions
   end in all of them, and each share alone says how far the source was read.
C. What is not a whole, sound batch is in no share, nor is anything behind it.
D. Shares are unpacked, so they end after the batch that brings them above `most_bytes`; the rest is fetched again. A
   single batch is limited by `codec.LIMIT_BYTES`. So a fetch response costs a bounded amount of memory. They also end
   after the batch in which `until` passes: a response of forty thousand batches of one record must not stop a task's
   loop for seconds.
E. A batch of a share carries the codec of its source batch in the leader epoch field, which has no other use in a share
   (`chunk`, invariant D, needs it).
"""

from __future__ import annotations

import math
import struct
import time
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from heliograph.batch import codec as codecs
from heliograph.batch import header, legacy
from heliograph.errors import BatchError, CorruptBatch

# Unpacked records of one fetch response: a response of 8 MiB at the usual ratio of 1:4, and half of `fetch.TASK_BYTES`.
MOST_BYTES = 32 << 20

FIX = "Check the source broker's disk with kafka-dump-log, or the network between"
SMALLEST_RECORD = 7  # bytes: a size, attributes, time, offset, no key, no value, no headers
_I32, _U32 = struct.Struct(">i"), struct.Struct(">I")


@dataclass(slots=True)
class Shares:
    """A buffer for each target. `codec`: what most of the bytes were packed with, for packing them again."""

    buffers: list[bytes | memoryview]
    codec: int
    size: int  # bytes of the batches that were divided, as they came
    made: int  # bytes of the shares: unpacked
    filled: frozenset[int]  # which of the buffers have records
    is_late: bool = False  # they end early: `until` had passed


class Sharing:
    """Shares under construction."""

    def __init__(self, targets: int, most_bytes: int = MOST_BYTES, until: float = math.inf) -> None:
        """`until`: by the monotonic clock."""
        self._targets = targets
        self._most_bytes, self._made = most_bytes, 0
        self._until, self._is_late = until, False
        self._buffers = [bytearray() for _ in range(targets)]
        self._ends = [-1] * targets  # the last offset in each share
        self._filled: set[int] = set()
        self._last: bytes = b""  # the header of the last batch
        self._bytes_by_codec = [0] * (header.CODEC_MASK + 1)

    def walk(self, records: bytes | memoryview) -> Shares:
        """The shares of the whole batches in `records`, up to the first that is corrupt; that one alone is an error.

        Their CRCs are checked here, so the shares, whose own are right, may be read with `check_crc=False`.
        """
        view = legacy.as_batches(records, check_crc=True)
        at = 0
        while len(view) - at >= header.SIZE and self._made < self._most_bytes:
            if at and time.monotonic() >= self._until:
                self._is_late = True
                break
            size = int.from_bytes(view[at + header.LENGTH : at + header.LEADER_EPOCH], "big", signed=True)
            size += header.PREFIX
            if at + size > len(view):
                break  # cut off by the fetch's size limit: it comes again
            try:
                if size < header.SIZE:  # the length lies outside the CRC: a CRC that is right says nothing of it
                    raise _too_short(view[at:], size)
                self._add(view[at : at + size])
            except BatchError:
                if at:
                    break  # it is named when a fetch begins with it
                raise
            at += size
        return self._shares()

    def _divide(self, head: header.Header, batch: memoryview, like: bytes) -> None:
        """Take a batch with records apart, by `_put`; `like` is its header. When it raises, nothing was taken."""
        raise NotImplementedError

    def _add(self, batch: memoryview) -> None:
        head = header.Header.parse(batch)
        if crc32c(batch[header.ATTRIBUTES :]) != head.crc:
            raise self._corrupt(head, "the CRC does not match")
        if head.last_offset_delta < 0 or not 0 <= head.count <= head.last_offset_delta + 1 or head.base_offset < 0:
            raise self._corrupt(head, "its offsets make no sense")
        like = bytes(batch[: header.SIZE])
        if head.attributes & header.CONTROL:
            for buffer in self._buffers:
                buffer += batch
            self._made += len(batch) * self._targets
            self._ends = [head.base_offset + head.last_offset_delta] * self._targets
        elif head.count:
            self._divide(head, batch, like)
        self._last = like  # only now: behind a batch that cannot be taken apart no share may end

    def _unpacked(self, head: header.Header, batch: memoryview) -> Any:
        """The records of a batch as an array."""
        import numpy as np

        codec = head.attributes & header.CODEC_MASK
        packed = batch[header.SIZE :]
        self._bytes_by_codec[codec] += len(batch)
        payload = codecs.decompress(codec, packed, offset=head.base_offset) if codec else packed
        if head.count > len(payload) // SMALLEST_RECORD:  # before room is made for so many
            raise self._corrupt(head, f"{head.count} records in {len(payload)} bytes")
        return np.frombuffer(payload, np.uint8)

    def _put(self, target: int, payload: memoryview, count: int, like: bytes | bytearray, end: int) -> None:
        """Records of one batch that go to a target, under a header that is like this one; `end`: the batch's last
        offset."""
        buffer = self._buffers[target]
        buffer += self._header(like, payload, count)
        buffer += payload
        self._made += header.SIZE + len(payload)
        self._ends[target] = end
        self._filled.add(target)

    @staticmethod
    def _header(like: bytes | bytearray, payload: memoryview | bytes, count: int) -> bytearray:
        """The header of a share's batch: the offsets, times and producer of the whole, unpacked, with fewer records."""
        made = bytearray(like)
        _I32.pack_into(made, header.LENGTH, header.SIZE - header.PREFIX + len(payload))
        _I32.pack_into(made, header.LEADER_EPOCH, made[header.ATTRIBUTES + 1] & header.CODEC_MASK)  # invariant E
        made[header.ATTRIBUTES + 1] &= ~header.CODEC_MASK & 0xFF
        _I32.pack_into(made, header.COUNT, count)
        _U32.pack_into(made, header.CRC, crc32c(payload, crc32c(made[header.ATTRIBUTES :])))
        return made

    def _shares(self) -> Shares:
        if self._last:
            head = header.Header.parse(self._last)
            end = head.base_offset + head.last_offset_delta
            for buffer, reached in zip(self._buffers, self._ends, strict=True):
                if reached < end:
                    buffer += self._header(self._last, b"", 0)  # invariant B
        most = max(range(codecs.ZSTD + 1), key=self._bytes_by_codec.__getitem__)
        buffers: list[bytes | memoryview] = [memoryview(buffer).toreadonly() for buffer in self._buffers]
        size = sum(self._bytes_by_codec)
        return Shares(buffers, most, size, self._made, frozenset(self._filled), self._is_late)

    @staticmethod
    def _corrupt(head: header.Header, what: str) -> CorruptBatch:
        return CorruptBatch(
            f"The record batch at source offset {head.base_offset} is corrupt: {what}",
            fix=FIX,
            offset=head.base_offset,
        )


def _too_short(batch: memoryview, size: int) -> CorruptBatch:
    base = int.from_bytes(batch[: header.LENGTH], "big", signed=True)
    return CorruptBatch(
        f"The record batch at source offset {base} is corrupt: its length field says {size} bytes, its header alone"
        f" takes {header.SIZE}",
        fix=FIX,
        offset=base,
    )

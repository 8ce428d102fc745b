"""Which batches of a fetched buffer have something to copy, and which are skipped and why.

Answers for walking the buffer and for the transactions in it (a broker sends aborted data along with a list of the
aborted; leaving it out is the client's work). What happens to a batch that stays is `chunk`'s business.

`walk` is the specification, in Python; `kernels.scan` does the same for buffers of many batches. A property test holds
them together.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from heliograph.batch import columns as c
from heliograph.batch import loading
from heliograph.batch.header import (
    ATTRIBUTES,
    CONTROL,
    DELETE_HORIZON,
    FIELDS,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX,
    SIZE,
    TRANSACTIONAL,
    claimed_bytes,
)
from heliograph.errors import CorruptBatch

Row = tuple[int, int, int, int, int, int, int, int]
Aborted = Sequence[tuple[int, int]]  # producer id, first offset

# Up to so many batches Python walks the buffer itself, about 1 µs each. So a task with a low rate never loads numba,
# whose second would be the largest part of the time to its first record.
FEW = 256


@dataclass(slots=True)
class Found:
    """What a buffer holds. `problem` is what is wrong with the batch behind the last row, if something is."""

    rows: Any  # list[Row], or an int64 array with a row per batch
    next_offset: int
    control: int = 0
    aborted: int = 0
    empty: int = 0
    problem: int = c.OK
    problem_at: int = 0


@dataclass(slots=True)
class Transactions:
    """The client's side of READ_COMMITTED, by batch: who is inside an aborted transaction at this point of the log?"""

    waiting: list[tuple[int, int]] = field(default_factory=list)  # a heap of (first offset, producer id)
    active: set[int] = field(default_factory=set)

    def holds(self, view: memoryview, producer: int, last: int, flags: int, records: int) -> bool:
        """Whether a batch belongs to an aborted transaction; markers end one."""
        while self.waiting and self.waiting[0][0] <= last:
            self.active.add(heapq.heappop(self.waiting)[1])
        if producer not in self.active:
            return False
        if flags & CONTROL:
            if records and _is_abort(view):
                self.active.discard(producer)
            return False
        return bool(flags & TRANSACTIONAL)


def find(
    records: bytes | bytearray | memoryview, wanted: int, aborted: Aborted, read_committed: bool, check_crc: bool
) -> Found:
    """Walk a buffer by whichever way suits its number of batches."""
    view = memoryview(records)
    # Batches of one producer are alike, so the first one tells: what was walked in vain would be walked again.
    many = loading.loaded() and len(view) > FEW * max(claimed_bytes(view), SIZE)
    found = None if many else walk(view, wanted, aborted, read_committed, check_crc, FEW)
    if found is None and not loading.ready():
        found = walk(view, wanted, aborted, read_committed, check_crc, len(view))
    return found if found is not None else _by_kernel(view, wanted, aborted, read_committed, check_crc)


def walk(
    view: memoryview, wanted: int, aborted: Aborted, read_committed: bool, check_crc: bool, most: int
) -> Found | None:
    """Walk a buffer in Python; None when it has more than `most` batches."""
    rows: list[Row] = []
    found = Found(rows, wanted)
    waiting = sorted((first, producer) for producer, first in aborted) if read_committed else []
    transactions = Transactions(waiting) if waiting else None
    at, total, seen, before = 0, len(view), 0, -1
    unpack = FIELDS.unpack_from
    while total - at > MAGIC:
        if seen == most:
            return None
        seen += 1
        found.problem_at = at
        size = int.from_bytes(view[at + 8 : at + 12], "big", signed=True) + PREFIX
        magic = view[at + MAGIC]
        if magic != 2 or size < SIZE:
            found.problem = c.OLD_FORMAT if magic < 2 else c.CORRUPT
            break
        end = at + size
        if end > total:
            break  # cut off by the fetch's size limit: it comes again
        base, _, _, _, crc, attributes, delta, base_ts, max_ts, producer, _, _, count = unpack(view, at)
        flags, last = attributes & 0xFF, base + delta
        if delta < 0 or base < 0 or base <= before or last >= c.MOST_OFFSET or not 0 <= count <= delta + 1:
            found.problem = c.CORRUPT
            break
        dead = (
            transactions is not None
            and producer >= 0
            and transactions.holds(view[at + SIZE : end], producer, last, flags, count)
        )
        if dead or flags & CONTROL or not count:
            if check_crc and crc32c(view[at + ATTRIBUTES : end]) != crc:
                found.problem = c.CRC_WRONG
                break
            if flags & CONTROL:
                found.control += 1
            elif dead:
                found.aborted += 1
            else:
                found.empty += 1
        elif last >= wanted:
            if flags & (LOG_APPEND_TIME | DELETE_HORIZON) or delta + 1 != count:
                flags |= c.NEEDS_REWRITE
            rows.append((at, size, base, last, count, flags, base_ts, max_ts))
        at, before = end, last
        if last >= found.next_offset:
            found.next_offset = last + 1
    return found


def _by_kernel(view: memoryview, wanted: int, aborted: Aborted, read_committed: bool, check_crc: bool) -> Found:
    import numpy as np

    from heliograph.batch import kernels

    ordered = sorted((first, producer) for producer, first in aborted) if read_committed else []
    ids = np.array([producer for _, producer in ordered], np.int64)
    firsts = np.array([first for first, _ in ordered], np.int64)
    rows = np.empty((len(view) // SIZE + 1, c.COLUMNS), np.int64)  # pages not written are never touched
    state = np.zeros(c.SCAN_STATE, np.int64)
    state[c.S_NEXT] = wanted
    data = np.frombuffer(view, np.uint8)
    code = int(kernels.scan(data, wanted, read_committed, check_crc, ids, firsts, rows, state))
    n, next_offset, ends, control, dead, empty, _ = state.tolist()
    return Found(rows[:n].copy(), next_offset, control, dead, empty, code, ends)


def _is_abort(record: memoryview) -> bool:
    """Whether a control record is an ABORT marker: its key is version i16, type i16 (0 ABORT, 1 COMMIT)."""
    at = size = 0
    for skipped in (0, 1, 0, 0):  # length, then the attributes' byte and the timestamp delta, offset delta, key's size
        raw = shift = 0
        at += skipped
        while True:
            if at >= len(record) or shift > 63:
                return False
            byte = record[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        size = -1 if raw & 1 else raw >> 1
    return size >= 4 and at + 4 <= len(record) and record[at + 2] == 0 and record[at + 3] == 0


def refuse(found: Found) -> CorruptBatch:
    """The error for the batch a walk stopped at."""
    what = "the CRC does not match" if found.problem == c.CRC_WRONG else "the header makes no sense"
    return CorruptBatch(
        f"A record batch at or after source offset {found.next_offset} is corrupt: {what}",
        fix="Check the source broker's disk with kafka-dump-log, or the network between",
        offset=found.next_offset,
    )

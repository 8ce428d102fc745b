"""The loops over bytes of `mux` and `demux`, compiled by numba.

The rules of `kernels` hold here too (its invariants A to C). What labels are is `labels`' affair, in Python, and a
property test holds the two together.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg,attr-defined"
from __future__ import annotations

from typing import Any

import numpy as np

from heliograph.batch import kernels as k
from heliograph.batch.columns import CORRUPT, OK, SMALLEST_RECORD
from heliograph.batch.kernels import _copy, _eight, _kernel, _put_varint, _varint, _varint_size, nb
from heliograph.batch.labels import NAMES, Absurd
from heliograph.batch.texts import TEXT_BYTES, _number, _number_text, _time, _time_text

# Columns of a record that is to be put back.
R_TARGET, R_AT, R_BODY, R_HEADERS, R_FIRST, R_FROM, R_TO, R_LEFT, R_TIME, R_ENDS, R_DELTA, R_SIZE = range(12)
R_TOPIC, R_TOPIC_SIZE, R_PARTITION = range(12, 15)
RECORD_COLUMNS = 15
# Columns of a target: where its topic's name lies, how long it is, its partition.
E_NAME, E_SIZE, E_PARTITION = range(3)
# Columns of what a target gets.
T_BYTES, T_COUNT, T_NEWEST = range(3)

UNKNOWN = -1  # a target that is not in the table
NO_TOPIC, NO_PARTITION, BAD_TOPIC = int(Absurd.NO_TOPIC), int(Absurd.NO_PARTITION), int(Absurd.TOPIC)
BAD_PARTITION, BAD_TIME, BAD_OFFSET = int(Absurd.PARTITION), int(Absurd.TIMESTAMP), int(Absurd.OFFSET)

LOWEST = -(1 << 63)

_NAMES = np.frombuffer("".join(NAMES).encode(), np.uint8)
_NAME_ENDS = np.cumsum([len(name) for name in NAMES])
_NAME_STARTS = _NAME_ENDS - [len(name) for name in NAMES]
_SIZES = [len(name) for name in NAMES]
_OF_SIZE = np.array([_SIZES.index(size) if size in _SIZES else -1 for size in range(max(_SIZES) + 1)])


# ---- records ----


@nb.njit
def _behind_value(b, at, ends):
    """Where a record's headers are counted, given where its key begins; -1: malformed."""
    for _ in range(2):
        size, at = _varint(b, at, ends)
        if at < 0 or size < -1 or size > ends - at:
            return np.int64(-1)
        if size > 0:
            at += size
    return at


@nb.njit
def _are_headers(b, at, ends, count):
    """Whether so many headers are what is left of a record."""
    for _ in range(count):
        size, at = _varint(b, at, ends)
        if at < 0 or size < 0 or size > ends - at:
            return False
        at += size
        size, at = _varint(b, at, ends)
        if at < 0 or size < -1 or size > ends - at:
            return False
        if size > 0:
            at += size
    return at == ends


@_kernel(
    nb.int64(
        k._bytes, nb.int64, nb.int64, nb.int64, nb.int64, nb.boolean,
        k._bytes, nb.boolean, k._bytes, nb.boolean, nb.int64, k._room,
    )
)  # fmt: skip
def stamp(b, count, base, base_ts, max_ts, append_time, front, timed, back, numbered, added, out):
    """Copy records to `out`, each with its labels behind its own headers; how many bytes that are, or -CORRUPT.

    `front`: labels that are the same for all, up to the time, which follows if they are `timed`; `back`: those behind
    it, up to the offset, if they are `numbered`. `added`: how many labels these are. `out` has room for all of it.
    Records whose own time is in a label get that of the batch: their difference to it becomes 0.
    """
    time = np.empty(TEXT_BYTES, np.uint8)
    number = np.empty(TEXT_BYTES, np.uint8)
    times = numbers = 0
    known = np.int64(LOWEST)  # whose text is in `time`
    at = np.int64(0)
    o: Any = np.int64(0)
    end = np.int64(len(b))
    for _ in range(count):
        size, at = _varint(b, at, end)
        if at < 0 or size < SMALLEST_RECORD or size > end - at:
            return -CORRUPT
        ends = at + size
        delta_ts, kept = _varint(b, at + 1, ends)
        if kept < 0:
            return -CORRUPT
        delta, body = _varint(b, kept, ends)
        if body < 0 or delta < 0:
            return -CORRUPT
        headers = _behind_value(b, body, ends)
        if headers < 0:
            return -CORRUPT
        own, first = _varint(b, headers, ends)
        if first < 0 or own < 0 or own > ends - first or not _are_headers(b, first, ends, own):
            return -CORRUPT
        new_size = (headers - at) + _varint_size(own + added) + (ends - first) + len(front) + len(back)
        if timed:
            new_size -= kept - at - 2
            ts = max_ts if append_time else base_ts + delta_ts
            if ts != known or times == 0:
                times = _time_text(time, ts)
                known = ts
            new_size += 1 + times
        if numbered:
            numbers = _number_text(number, base + delta)
            new_size += 1 + numbers
        o = _put_varint(out, o, new_size)
        if timed:
            out[o] = b[at]
            out[o + 1] = np.uint8(0)
            o += 2
        else:
            kept = at
        _copy(out, o, b, kept, headers - kept)
        o = _put_varint(out, o + headers - kept, own + added)
        _copy(out, o, b, first, ends - first)
        o += ends - first
        _copy(out, o, front, np.int64(0), np.int64(len(front)))
        o += len(front)
        if timed:
            out[o] = np.uint8(2 * times)
            _copy(out, o + 1, time, np.int64(0), np.int64(times))
            o += 1 + times
        _copy(out, o, back, np.int64(0), np.int64(len(back)))
        o += len(back)
        if numbered:
            out[o] = np.uint8(2 * numbers)
            _copy(out, o + 1, number, np.int64(0), np.int64(numbers))
            o += 1 + numbers
        at = ends
    return o if at == end else -CORRUPT  # the header promised fewer records than there are


# ---- targets ----


@nb.njit
def _hash(b, at, size, partition):
    h = np.uint64(0xCBF29CE484222325)
    for n in range(size):
        h = (h ^ np.uint64(b[at + n])) * np.uint64(0x100000001B3)
    h = (h ^ np.uint64(partition)) * np.uint64(0x100000001B3)
    return h ^ (h >> np.uint64(32))


@nb.njit
def _same(b, at, other, start, size):
    """Whether two texts of this size are the same; both lie where they may be read."""
    if size < 8:
        for n in range(size):  # noqa: SIM110 - numba has no `all`
            if b[at + n] != other[start + n]:
                return False
        return True
    # By eight bytes, the last eight first: names differ at their ends. The first ones may overlap with those.
    further: Any = np.int64(size - 8)
    while further > 0:
        if _eight(b, at + further) != _eight(other, start + further):
            return False
        further -= 8
    return _eight(b, np.int64(at)) == _eight(other, np.int64(start))


@_kernel(nb.int64(k._bytes, k._rows, k._longs))
def index(names, entries, slots):
    """Fill the table by which `find` looks targets up; it has at least twice as many slots as entries, a power of 2."""
    mask = np.uint64(len(slots) - 1)
    for n in range(len(entries)):
        slot = _hash(names, entries[n, E_NAME], entries[n, E_SIZE], entries[n, E_PARTITION]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = n
    return OK


@nb.njit
def _find(b, at, size, partition, names, entries, slots):
    mask = np.uint64(len(slots) - 1)
    slot = _hash(b, at, size, partition) & mask
    while slots[slot] >= 0:
        n = slots[slot]
        alike = entries[n, E_PARTITION] == partition and entries[n, E_SIZE] == size
        if alike and _same(b, at, names, entries[n, E_NAME], size):
            return n
        slot = (slot + np.uint64(1)) & mask
    return np.int64(UNKNOWN)


@nb.njit
def _label(b, at, size):
    """Which of our names this is; -1: none."""
    if size >= len(_OF_SIZE):
        return np.int64(-1)
    n = _OF_SIZE[size]  # the first of this size; two have the same, and stand beside one another
    while n >= 0 and n < len(_NAME_ENDS) and _NAME_ENDS[n] - _NAME_STARTS[n] == size:
        if _same(b, at, _NAMES, _NAME_STARTS[n], size):
            return np.int64(n)
        n += 1
    return np.int64(-1)


@nb.njit
def _is_topic(b, at, size):
    if size < 1 or size > 249:
        return False
    dots = 0
    for n in range(size):
        byte = b[at + n]
        letter = (byte >= 97 and byte <= 122) or (byte >= 65 and byte <= 90)
        if not (letter or (byte >= 48 and byte <= 57) or byte == 45 or byte == 46 or byte == 95):
            return False
        if byte == 46:
            dots += 1
    return not (dots == size and size <= 2)


@nb.njit
def _read(b, at, ends, count, row, begins, sizes):
    """Where our labels of one record lie and what they say, into its row: a target's name and number or why not, in
    R_TARGET (0: readable). False: these are no headers. `begins`, `sizes`: room for the labels' values."""
    for n in range(len(begins)):
        begins[n] = -1
    before = np.int64(-1)  # the last label of a row of ours that may go on; -1: there is none
    row[R_FROM] = row[R_TO] = at
    taken = np.int64(0)
    for _ in range(count):
        header = at
        size, at = _varint(b, at, ends)
        if at < 0 or size < 0 or size > ends - at:
            return False
        label = _label(b, at, size)
        at += size
        size, at = _varint(b, at, ends)
        if at < 0 or size < -1 or size > ends - at:
            return False
        value = at
        if size > 0:
            at += size
        if label == 0:
            for n in range(len(begins)):
                begins[n] = -1
            row[R_FROM] = header
            taken = np.int64(0)
        elif label < 0 or before < 0 or label < before:
            before = np.int64(-1)
            continue
        before = label
        begins[label] = value
        sizes[label] = size
        taken += 1
        row[R_TO] = at
    if at != ends:
        return False
    row[R_LEFT] = count - taken
    row[R_TARGET] = _meaning(b, begins, sizes, row)
    return True


@nb.njit
def _meaning(b, begins, sizes, row):
    if begins[0] < 0:
        return NO_TOPIC
    if begins[1] < 0:
        return NO_PARTITION
    if not _is_topic(b, begins[0], sizes[0]):
        return BAD_TOPIC
    partition, found = _number(b, begins[1], sizes[1])
    if not found or partition < 0 or partition >= 1 << 31:
        return BAD_PARTITION
    if begins[2] >= 0:
        time, found = _time(b, begins[2], sizes[2])
        if not found:
            return BAD_TIME
        row[R_TIME] = time
    if begins[7] >= 0:
        offset, found = _number(b, begins[7], sizes[7])
        if not found or offset < 0:
            return BAD_OFFSET
    row[R_TOPIC] = begins[0]
    row[R_TOPIC_SIZE] = sizes[0]
    row[R_PARTITION] = partition
    return 0


@_kernel(
    nb.int64(
        k._bytes, nb.int64, nb.int64, nb.int64, nb.boolean, nb.boolean,
        k._bytes, k._rows, k._longs, k._rows,
    )
)  # fmt: skip
def sort(b, count, base_ts, max_ts, append_time, strip, names, entries, slots, rows):
    """Which target each record goes to, or why to none: a row for each. CORRUPT, or OK."""
    begins = np.empty(len(_NAME_ENDS), np.int64)
    sizes = np.empty(len(_NAME_ENDS), np.int64)
    at = np.int64(0)
    end = np.int64(len(b))
    for n in range(count):
        row = rows[n]
        size, at = _varint(b, at, end)
        if at < 0 or size < SMALLEST_RECORD or size > end - at:
            return CORRUPT
        ends = at + size
        delta_ts, body = _varint(b, at + 1, ends)
        if body < 0:
            return CORRUPT
        delta, body = _varint(b, body, ends)
        if body < 0 or delta < 0:
            return CORRUPT
        headers = _behind_value(b, body, ends)
        if headers < 0:
            return CORRUPT
        own, first = _varint(b, headers, ends)
        if first < 0 or own < 0 or own > ends - first:
            return CORRUPT
        row[R_TIME] = max_ts if append_time else base_ts + delta_ts
        if not _read(b, first, ends, own, row, begins, sizes):
            return CORRUPT
        if not strip:
            row[R_LEFT] = own
            row[R_FROM] = row[R_TO] = ends
        row[R_AT] = at
        row[R_BODY] = body
        row[R_HEADERS] = headers
        row[R_FIRST] = first
        row[R_ENDS] = ends
        row[R_DELTA] = delta
        if row[R_TARGET] == 0:
            row[R_TARGET] = _find(b, row[R_TOPIC], row[R_TOPIC_SIZE], row[R_PARTITION], names, entries, slots)
        numbers = 1 + _varint_size(row[R_TIME] - base_ts) + _varint_size(delta) + _varint_size(row[R_LEFT])
        row[R_SIZE] = numbers + (headers - body) + (row[R_FROM] - first) + (ends - row[R_TO])
        at = ends
    return OK if at == end else CORRUPT


@_kernel(nb.int64(k._rows, k._rows))
def weigh(rows, tally):
    """What each target gets: bytes, records, the newest time."""
    for n in range(len(rows)):
        target = rows[n, R_TARGET]
        if target < 0:
            continue
        tally[target, T_BYTES] += rows[n, R_SIZE] + _varint_size(rows[n, R_SIZE])
        if tally[target, T_COUNT] == 0 or rows[n, R_TIME] > tally[target, T_NEWEST]:
            tally[target, T_NEWEST] = rows[n, R_TIME]
        tally[target, T_COUNT] += 1
    return OK


@_kernel(nb.int64(k._bytes, k._rows, nb.int64, k._longs, k._room))
def put_back(b, rows, base_ts, starts, out):
    """Copy each record to its target's part of `out`, which begins at `starts` (and is moved on)."""
    for n in range(len(rows)):
        row = rows[n]
        target = row[R_TARGET]
        if target < 0:
            continue
        o = _put_varint(out, starts[target], row[R_SIZE])
        out[o] = b[row[R_AT]]
        o = _put_varint(out, o + 1, row[R_TIME] - base_ts)
        o = _put_varint(out, o, row[R_DELTA])
        size = row[R_HEADERS] - row[R_BODY]
        _copy(out, o, b, row[R_BODY], size)
        o = _put_varint(out, o + size, row[R_LEFT])
        size = row[R_FROM] - row[R_FIRST]
        _copy(out, o, b, row[R_FIRST], size)
        o += size
        size = row[R_ENDS] - row[R_TO]
        _copy(out, o, b, row[R_TO], size)
        starts[target] = o + size
    return OK

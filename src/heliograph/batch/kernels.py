"""The loops over bytes, compiled by numba: walk a fetched buffer, copy and renumber records, check small CRCs.

Importing this module imports numba and loads the kernels from their disk cache (compiling them when there is none), so
its callers import it where they need it and not at their top; `loading` says when.

Invariants:
A. A kernel never reads outside `[at, end)` nor writes outside `[0, limit)`: every length read from the bytes is checked
   before it is used. Malformed input gives `CORRUPT`, never a crash; numba itself checks nothing.
B. A kernel that stops early leaves `state` such that the call can be repeated from there.
C. Signatures are explicit: with a cache on disk nothing is compiled at run time.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"
# The types of a kernel are those of its signature; Python annotations would only repeat them.
from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np

from heliograph.batch import cache
from heliograph.batch.columns import (
    AT_BASE,
    AT_COUNT,
    AT_FLAGS,
    AT_LAST,
    AT_MAX_TS,
    AT_POS,
    AT_SIZE,
    AT_TS,
    CORRUPT,
    CRC_IN_KERNEL,
    CRC_WRONG,
    FULL,
    MOST_OFFSET,
    NEEDS_REWRITE,
    OK,
    OLD_FORMAT,
    S_ABORTED,
    S_BELOW,
    S_CONTROL,
    S_EMPTY,
    S_ENDS,
    S_NEXT,
    S_ROWS,
    SMALLEST_RECORD,
    T_BASE_TS,
    T_DROP,
    T_EXPECTED,
    T_MAX_TS,
    T_NEED,
    T_OUT,
    T_RECORDS,
    T_ROW,
    T_RUNS,
    T_STUCK,
)

cache.prepare()

import numba as nb  # noqa: E402 - it looks for its cache folder when it is imported
from llvmlite import ir  # type: ignore[import-untyped]  # noqa: E402
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]  # noqa: E402
from numba.core import cgutils, config  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

_bytes = nb.types.Array(nb.uint8, 1, "C", readonly=True)
_room = nb.types.Array(nb.uint8, 1, "C")
_longs = nb.types.Array(nb.int64, 1, "C")
_constant_longs = nb.types.Array(nb.int64, 1, "C", readonly=True)
_rows = nb.types.Array(nb.int64, 2, "C")


def _kernel(signature: Any) -> Callable[[Any], Callable[..., int]]:
    def decorate(function: Any) -> Callable[..., int]:
        compiled: Callable[..., int] = nb.njit(signature, cache=True, nogil=True)(function)
        return compiled

    return decorate


def _part(function: Any) -> Any:
    """A piece of a kernel, compiled into those that call it."""
    inlined: Any = nb.njit(inline="always")(function)
    return inlined


def _crc_tables() -> Any:
    """Castagnoli's polynomial, sliced by 8 (eight bytes a step)."""
    tables = np.zeros((8, 256), np.uint32)
    for n in range(256):
        c = n
        for _ in range(8):
            c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
        tables[0, n] = c
    for k in range(1, 8):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 0xFF]
    return tables


_CRC = _crc_tables()


@intrinsic
def _copy(typingctx, out, at, source, start, size):
    """memcpy between two byte arrays; numba's slice assignment costs more than the bytes of a small record."""

    def generate(context, builder, signature, args):
        out_type, _, source_type, _, _ = signature.args
        target = context.make_array(out_type)(context, builder, args[0])
        origin = context.make_array(source_type)(context, builder, args[2])
        cgutils.raw_memcpy(
            builder,
            builder.gep(target.data, [args[1]]),
            builder.gep(origin.data, [args[3]]),
            args[4],
            1,
        )
        return context.get_dummy_value()

    return nb.types.void(out, nb.int64, source, nb.int64, nb.int64), generate


@intrinsic
def _eight(typingctx, b, at):
    """Eight bytes as one number, in the machine's own order: to be compared, not read."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        word = builder.load(builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return nb.uint64(b, nb.int64), generate


@_part
def _long(b, at):
    value = np.int64(0)
    for k in range(8):
        value = (value << 8) | np.int64(b[at + k])
    return value


@_part
def _int(b, at):
    word = (np.uint32(b[at]) << 24) | (np.uint32(b[at + 1]) << 16) | (np.uint32(b[at + 2]) << 8) | np.uint32(b[at + 3])
    return np.int64(np.int32(word))


@_part
def _varint(b, at, end):
    """(value, position behind it); the position is -1 when there is no varint of at most ten bytes."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while True:
        if at >= end or shift > np.uint64(63):
            return np.int64(0), np.int64(-1)
        byte = np.uint64(b[at])
        at += 1
        raw |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            break
        shift += np.uint64(7)
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), np.int64(at)


@_part
def _varint_size(value):
    z = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while z >= np.uint64(128):
        z >>= np.uint64(7)
        size += 1
    return size


@_part
def _put_varint(out, at, value):
    z = np.uint64((value << 1) ^ (value >> 63))
    while z >= np.uint64(128):
        out[at] = np.uint8(z & np.uint64(127)) | np.uint8(128)
        at += 1
        z >>= np.uint64(7)
    out[at] = np.uint8(z)
    return at + 1


@_part
def _crc_step_by_table(crc, b, at):
    low = np.uint32(crc) ^ (
        np.uint32(b[at]) | (np.uint32(b[at + 1]) << 8) | (np.uint32(b[at + 2]) << 16) | (np.uint32(b[at + 3]) << 24)
    )
    return np.uint64(
        _CRC[7, low & 0xFF]
        ^ _CRC[6, (low >> 8) & 0xFF]
        ^ _CRC[5, (low >> 16) & 0xFF]
        ^ _CRC[4, low >> 24]
        ^ _CRC[3, b[at + 4]]
        ^ _CRC[2, b[at + 5]]
        ^ _CRC[1, b[at + 6]]
        ^ _CRC[0, b[at + 7]]
    )


@intrinsic
def _crc_step_by_cpu(typingctx, crc, b, at):
    """Eight bytes by the processor's own instruction, some five times faster than by table."""

    def generate(context, builder, signature, args):
        word = ir.IntType(64)
        array = context.make_array(signature.args[1])(context, builder, args[1])
        place = builder.bitcast(builder.gep(array.data, [args[2]]), word.as_pointer())
        eight = builder.load(place)
        eight.align = 1
        kind = ir.FunctionType(word, [word, word])
        step = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse42.crc32.64.64")
        return builder.call(step, [args[0], eight])

    return nb.uint64(nb.uint64, b, nb.int64), generate


def _has_crc_instruction() -> bool:
    """Whether numba compiles for a processor with SSE 4.2 (its settings may say "generic")."""
    told = getattr(config, "CPU_NAME", None) or getattr(config, "CPU_FEATURES", None)
    return not told and platform.machine() in ("x86_64", "AMD64") and bool(get_host_cpu_features().get("sse4.2"))


_crc_step = _crc_step_by_cpu if _has_crc_instruction() else _crc_step_by_table


@nb.njit
def _crc_right(b, pos, size):
    crc = np.uint64(0xFFFFFFFF)
    at = pos + 21
    end = pos + size
    while at + 8 <= end:
        crc = _crc_step(crc, b, at)
        at += 8
    rest = np.uint32(crc)
    while at < end:
        rest = (rest >> 8) ^ _CRC[0, (rest ^ b[at]) & 0xFF]
        at += 1
    return np.int64(rest ^ np.uint32(0xFFFFFFFF)) == _int(b, pos + 17) & 0xFFFFFFFF


@_part
def _is_abort(b, at, end):
    """Whether the control record at `at` is an ABORT marker (control records are never compressed)."""
    _, at = _varint(b, at, end)
    if at < 0 or at + 1 > end:
        return False
    _, at = _varint(b, at + 1, end)
    if at < 0:
        return False
    _, at = _varint(b, at, end)
    if at < 0:
        return False
    size, at = _varint(b, at, end)
    return at >= 0 and size >= 4 and at + 4 <= end and b[at + 2] == 0 and b[at + 3] == 0


@_kernel(nb.int64(_bytes, nb.int64, nb.boolean, nb.boolean, _constant_longs, _constant_longs, _rows, _longs))
def scan(b, wanted, read_committed, check_crc, aborted_ids, aborted_firsts, rows, state):
    """Walk the whole batches of a fetched buffer; a row for each one that has something to copy.

    The same as `scan.walk`, which is its specification in Python. Returns OK, CORRUPT, CRC_WRONG or OLD_FORMAT; what
    lies before the offender is in `rows`.
    """
    active = np.empty(len(aborted_ids) + 1, np.int64)
    actives = 0
    moved = 0
    n = 0
    at = np.int64(0)
    before = np.int64(-1)
    while len(b) - at >= 17:
        base = _long(b, at)
        size = _int(b, at + 8) + 12
        magic = b[at + 16]
        if magic < 2:
            return OLD_FORMAT
        if magic != 2 or size < 61:
            return CORRUPT
        if at + size > len(b):
            break  # cut off by the fetch's size limit: it comes again
        flags = np.int64(b[at + 22])
        last = base + _int(b, at + 23)
        count = _int(b, at + 57)
        if last < base or base < 0 or base <= before or last >= MOST_OFFSET or count < 0 or count > last - base + 1:
            return CORRUPT
        producer = _long(b, at + 43)
        control = flags & 0x20 != 0
        aborted = False
        if read_committed and producer >= 0:
            while moved < len(aborted_ids) and aborted_firsts[moved] <= last:
                active[actives] = aborted_ids[moved]
                actives += 1
                moved += 1
            found = -1
            for k in range(actives):
                if active[k] == producer:
                    found = k
            if found >= 0 and control:
                if count > 0 and _is_abort(b, at + 61, at + size):
                    # A list may name a producer twice (two transactions aborted in this range): all of them
                    # begin before this marker, so all are over.
                    kept = 0
                    for k in range(actives):
                        if active[k] != producer:
                            active[kept] = active[k]
                            kept += 1
                    actives = kept
            elif found >= 0 and flags & 0x10 != 0:
                aborted = True
        if control or aborted or count == 0:
            if check_crc and not _crc_right(b, at, size):
                return CRC_WRONG
            if control:
                state[S_CONTROL] += 1
            elif aborted:
                state[S_ABORTED] += 1
            else:
                state[S_EMPTY] += 1
        elif last < wanted:
            state[S_BELOW] += 1
        else:
            if n >= len(rows):
                return CORRUPT  # cannot be: a row for every 61 bytes
            rows[n, AT_POS] = at
            rows[n, AT_SIZE] = size
            rows[n, AT_BASE] = base
            rows[n, AT_LAST] = last
            rows[n, AT_COUNT] = count
            rows[n, AT_FLAGS] = flags | (NEEDS_REWRITE if flags & 0x48 != 0 or last - base + 1 != count else 0)
            rows[n, AT_TS] = _long(b, at + 27)
            rows[n, AT_MAX_TS] = _long(b, at + 35)
            n += 1
            state[S_ROWS] = n
        at += size
        before = last
        state[S_ENDS] = at
        state[S_NEXT] = max(state[S_NEXT], last + 1)
    return OK


@nb.njit
def _append(b, at, end, row, out, limit, state, runs):
    """Copy the records of one payload, all but the first `state[T_DROP]`, renumbered, to `out`."""
    base = row[AT_BASE]
    width = row[AT_LAST] - base
    base_ts = row[AT_TS]
    append_time = row[AT_FLAGS] & 0x08 != 0
    count = row[AT_COUNT]
    drop = state[T_DROP]
    o = state[T_OUT]
    n = state[T_RECORDS]
    runs_before = state[T_RUNS]
    last_run = runs[runs_before - 1, 1] if runs_before > 0 else np.int64(0)
    expected = state[T_EXPECTED]
    max_before = state[T_MAX_TS]
    previous = np.int64(-1)
    code = OK
    k = np.int64(0)
    while k < count:
        size, at = _varint(b, at, end)
        if at < 0 or size < SMALLEST_RECORD or size > end - at:
            code = CORRUPT
            break
        ends = at + size
        if k < drop:
            at = ends
            k += 1
            continue
        delta_ts, body = _varint(b, at + 1, ends)
        if body < 0:
            code = CORRUPT
            break
        delta, body = _varint(b, body, ends)
        if body < 0 or delta <= previous or delta > width:
            code = CORRUPT
            break
        previous = delta
        ts = row[AT_MAX_TS] if append_time else base_ts + delta_ts
        if n == 0:
            state[T_BASE_TS] = ts
            state[T_MAX_TS] = ts
        shift = ts - state[T_BASE_TS]
        new_size = 1 + _varint_size(shift) + _varint_size(n) + (ends - body)
        need = new_size + _varint_size(new_size)
        offset = base + delta
        fresh = n == 0 or offset != state[T_EXPECTED]
        if o + need > limit or (fresh and state[T_RUNS] >= len(runs)):
            state[T_NEED] = need
            state[T_STUCK] = offset
            code = FULL
            break
        o = _put_varint(out, o, new_size)
        out[o] = b[at]
        o = _put_varint(out, o + 1, shift)
        o = _put_varint(out, o, n)
        _copy(out, o, b, body, ends - body)
        o += ends - body
        n += 1
        state[T_MAX_TS] = max(state[T_MAX_TS], ts)
        state[T_EXPECTED] = offset + 1
        if fresh:
            runs[state[T_RUNS], 0] = offset
            runs[state[T_RUNS], 1] = 1
            state[T_RUNS] += 1
        else:
            runs[state[T_RUNS] - 1, 1] += 1
        at = ends
        k += 1
    if code == OK and at != end:
        code = CORRUPT  # the header promised fewer records than there are
    if code == CORRUPT:  # as if this batch had not been looked at
        state[T_RUNS] = runs_before
        if runs_before > 0:
            runs[runs_before - 1, 1] = last_run
        state[T_EXPECTED] = expected
        state[T_MAX_TS] = max_before
    else:
        state[T_OUT] = o
        state[T_RECORDS] = n
        state[T_DROP] = k if code == FULL else 0
    return code


@_kernel(nb.int64(_bytes, _longs, _room, nb.int64, _longs, _rows))
def rewrite(payload, row, out, limit, state, runs):
    """Append the records of one unpacked payload to `out`."""
    limit = min(limit, len(out))
    code = _append(payload, np.int64(0), np.int64(len(payload)), row, out, limit, state, runs)
    if code == OK:
        state[T_ROW] += 1
    return code


@_kernel(nb.int64(_bytes, _rows, nb.int64, _room, nb.int64, _longs, _rows, nb.boolean))
def merge_plain(b, rows, stop, out, limit, state, runs, check_crc):
    """Append the records of the uncompressed batches `rows[state[T_ROW]:stop]` to `out`, as many as fit."""
    limit = min(limit, len(out))
    while state[T_ROW] < stop:
        row = rows[state[T_ROW]]
        if row[AT_FLAGS] & 0x07 != 0:
            return OK
        pos = row[AT_POS]
        size = row[AT_SIZE]
        if check_crc and size <= CRC_IN_KERNEL and not _crc_right(b, pos, size):
            return CRC_WRONG
        code = _append(b, pos + 61, pos + size, row, out, limit, state, runs)
        if code != OK:
            return code
        state[T_ROW] += 1
    return OK


@_kernel(nb.int64(_rows, nb.int64, nb.int64, nb.int64, _longs))
def gather(rows, first, small_bytes, room_bytes, shares):
    """Up to which row (exclusive) neighbours are worth merging; `shares` gets the wire bytes by codec.

    Batches that are large by themselves end the run: they pass on their own, untouched.
    """
    total = np.int64(0)
    for k in range(first, len(rows)):
        size = rows[k, AT_SIZE]
        codec = rows[k, AT_FLAGS] & 0x07
        # Uncompressed, a header falls away and each record's varints may grow by a few bytes. The kernel that
        # copies counts exactly; this only says when to stop looking.
        total += size - 61 if codec == 0 else size
        if k > first and (size >= small_bytes or total > room_bytes):
            return k
        shares[codec] += size
    return len(rows)


@_kernel(nb.int64(_bytes, nb.int64, nb.int64))
def below(payload, count, delta):
    """How many of a payload's records have an offset delta under `delta`; -1 when it is malformed."""
    at = np.int64(0)
    end = np.int64(len(payload))
    for k in range(count):
        size, at = _varint(payload, at, end)
        if at < 0 or size < SMALLEST_RECORD or size > end - at:
            return np.int64(-1)
        ends = at + size
        _, body = _varint(payload, at + 1, ends)
        if body < 0:
            return np.int64(-1)
        found, body = _varint(payload, body, ends)
        if body < 0:
            return np.int64(-1)
        if found >= delta:
            return np.int64(k)
        at = ends
    return np.int64(count)

"""The loops over bytes of `split`, compiled by numba. The rules of `kernels` hold here too (its invariants A to C)."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg,attr-defined"
from __future__ import annotations

import numpy as np

from heliograph.batch import kernels as k
from heliograph.batch.columns import CORRUPT, OK, SMALLEST_RECORD
from heliograph.batch.kernels import _copy, _kernel, _part, _varint, nb


@_part
def _murmur2(b, at, size):
    mix = np.uint32(0x5BD1E995)
    h = np.uint32(0x9747B28C) ^ np.uint32(size)
    end = at + (size & ~3)
    while at < end:
        word = (
            np.uint32(b[at])
            | (np.uint32(b[at + 1]) << np.uint32(8))
            | (np.uint32(b[at + 2]) << np.uint32(16))
            | (np.uint32(b[at + 3]) << np.uint32(24))
        )
        word = np.uint32(word * mix)
        word ^= word >> np.uint32(24)
        h = np.uint32(np.uint32(h * mix) ^ np.uint32(word * mix))
        at += 4
    rest = size & 3
    if rest:
        for n in range(rest):
            h ^= np.uint32(b[at + n]) << np.uint32(8 * n)
        h = np.uint32(h * mix)
    h ^= h >> np.uint32(13)
    h = np.uint32(h * mix)
    return np.uint32(h ^ (h >> np.uint32(15)))


@_kernel(nb.int64(k._bytes, nb.int64, nb.int64, nb.int64, k._rows, k._rows))
def route(b, count, base, keyless_run, tally, places):
    """Where each record goes: `places` gets its target and its size, `tally` each target's bytes and records."""
    at = np.int64(0)
    end = np.int64(len(b))
    targets = np.int64(len(tally))
    for n in range(count):
        begin = at
        size, at = _varint(b, at, end)
        if at < 0 or size < SMALLEST_RECORD or size > end - at:
            return CORRUPT
        ends = at + size
        _, body = _varint(b, at + 1, ends)
        if body < 0:
            return CORRUPT
        delta, body = _varint(b, body, ends)
        if body < 0 or delta < 0:
            return CORRUPT
        length, body = _varint(b, body, ends)
        if body < 0 or length < -1 or length > ends - body:
            return CORRUPT
        if length < 0:
            target = (base + delta) // keyless_run % targets
        else:
            target = np.int64(_murmur2(b, body, length) & np.uint32(0x7FFFFFFF)) % targets
        places[n, 0] = target
        places[n, 1] = ends - begin
        tally[target, 0] += ends - begin
        tally[target, 1] += 1
        at = ends
    return OK if at == end else CORRUPT  # the header promised fewer records than there are


@_kernel(nb.int64(k._bytes, k._rows, k._longs, k._room))
def scatter(b, places, starts, out):
    """Copy each record to its target's part of `out`, which begins at `starts` (and is moved on)."""
    at = np.int64(0)
    for n in range(len(places)):
        target = places[n, 0]
        size = places[n, 1]
        _copy(out, starts[target], b, at, size)
        starts[target] += size
        at += size
    return OK

"""The identity that every record of a storm carries in its value: generation, source partition, number.

The number counts the records of one source partition in one generation of its topic (a recreated topic begins the next
generation). So a record read from either cluster says by itself which record it is; offsets are not needed for that.
Whole columns are unpacked at once: a storm ends with ten million records to read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

_LAYOUT = struct.Struct(">IIQ")
_COLUMNS = np.dtype([("generation", ">u4"), ("partition", ">u4"), ("number", ">u8")])
PADDING_BYTES = 180  # values differ in length, so that batches do


class Identity(NamedTuple):
    generation: int
    partition: int
    number: int

    def __str__(self) -> str:
        generation = f" of generation {self.generation}" if self.generation else ""
        return f"record {self.number} of source partition {self.partition}{generation}"


def value_of(record: Identity) -> bytes:
    return _LAYOUT.pack(*record) + b"x" * (record.number % PADDING_BYTES)


def identity_of(value: bytes) -> Identity:
    return Identity(*_LAYOUT.unpack_from(value))


class Columns(NamedTuple):
    generations: IntArray
    partitions: IntArray
    numbers: IntArray


def columns_of(values: Sequence[bytes]) -> Columns:
    """The identities of many values. A value of the wrong length is not a record of the storm, or is damaged."""
    packed = b"".join(value[: _LAYOUT.size] for value in values)
    if len(packed) != _LAYOUT.size * len(values):
        raise ValueError("a value is too short to carry an identity")
    table = np.frombuffer(packed, _COLUMNS)
    found = Columns(*(table[name].astype(np.int64) for name in ("generation", "partition", "number")))
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    wrong = np.flatnonzero(lengths != _LAYOUT.size + found.numbers % PADDING_BYTES)
    if len(wrong):
        raise ValueError(f"{identity_of(values[wrong[0]])} has a value of {lengths[wrong[0]]} bytes: it is damaged")
    return found

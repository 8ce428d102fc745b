"""A batch on its way out: what `chunk` hands on, and the copy it is built from when it cannot pass as it stands.

Answers for the output buffer and the kernels' state. Which records go in is `chunk`'s decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heliograph.batch import codec as codecs
from heliograph.batch import columns as c
from heliograph.batch import header

# Runs of consecutive source offsets a piece may have (a compacted topic can have one per record).
MOST_RUNS = 1 << 15

Runs = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Piece:
    """One record batch ready to be patched and appended. Its CRC and producer are not set: `header.patch` does it."""

    data: bytearray | memoryview
    records: int
    first_offset: int  # source offset of the first record
    next_offset: int  # source offset right after the last record
    max_timestamp: int
    # An array until somebody asks: where records of many origins alternate, each is a run of its own, and lanes that
    # share a source partition (strands) never ask. As tuples they would cost more than copying the records does.
    spans: Runs | Any

    @property
    def runs(self) -> Runs:
        """(source offset, length) of consecutive source offsets, in order."""
        if not isinstance(self.spans, tuple):
            self.spans = tuple((offset, length) for offset, length in self.spans.tolist())
        return self.spans


class Copy:
    """Records of neighbouring batches, copied and renumbered by the kernels into at most `budget` bytes."""

    __slots__ = ("_kernels", "_out", "_room", "_runs", "_state")

    def __init__(self, budget: int, row: int, drop: int) -> None:
        """Begin at `row` without its first `drop` records."""
        import numpy as np

        from heliograph.batch import kernels

        self._kernels = kernels
        # With room for a header in front: uncompressed records are sent from where the kernel put them.
        self._room = np.empty(header.SIZE + max(budget, 0), np.uint8)  # pages not written are never touched
        self._out = self._room[header.SIZE :]
        self._runs = np.empty((MOST_RUNS, 2), np.int64)
        self._state = np.zeros(c.MERGE_STATE, np.int64)
        self._state[c.T_ROW] = row
        self._state[c.T_DROP] = drop

    def add(self, payload: Any, row: Any) -> int:
        """The records of one unpacked payload, as many as fit; how it went (`columns`)."""
        return int(self._kernels.rewrite(payload, row, self._out, len(self._out), self._state, self._runs))

    def add_plain(self, view: memoryview, rows: Any, stop: int, check_crc: bool) -> int:
        """The records of all uncompressed batches up to row `stop` or the first compressed one, as many as fit."""
        import numpy as np

        data = np.frombuffer(view, np.uint8)
        out, state = self._out, self._state
        return int(self._kernels.merge_plain(data, rows, stop, out, len(out), state, self._runs, check_crc))

    @property
    def row(self) -> int:
        """The row that comes next …"""
        return int(self._state[c.T_ROW])

    @property
    def drop(self) -> int:
        """… and how many of its records are in already."""
        return int(self._state[c.T_DROP])

    @property
    def records(self) -> int:
        return int(self._state[c.T_RECORDS])

    @property
    def size(self) -> int:
        return int(self._state[c.T_OUT])

    @property
    def need(self) -> int:
        """Bytes of the record that did not fit."""
        return int(self._state[c.T_NEED])

    @property
    def stuck_at(self) -> int:
        """Its source offset."""
        return int(self._state[c.T_STUCK])

    @property
    def next_offset(self) -> int:
        return int(self._state[c.T_EXPECTED])

    def batch(self, codec: int, *, tight: bool = False) -> bytearray | memoryview:
        data: bytearray | memoryview
        if codec == codecs.NONE:
            data = self._room[: header.SIZE + self.size].data
        else:
            payload = codecs.compress(codec, self._out[: self.size].data, tight=tight)
            data = bytearray(header.SIZE + len(payload))
            data[header.SIZE :] = payload
        header.write(
            data,
            codec=codec,
            count=self.records,
            last_offset_delta=self.records - 1,
            base_timestamp=int(self._state[c.T_BASE_TS]),
            max_timestamp=int(self._state[c.T_MAX_TS]),
        )
        return data

    def piece(self, data: bytearray | memoryview) -> Piece:
        spans = self._runs[: self._state[c.T_RUNS]].copy()  # the whole of it must not outlive this
        return Piece(data, self.records, int(spans[0, 0]), self.next_offset, int(self._state[c.T_MAX_TS]), spans)

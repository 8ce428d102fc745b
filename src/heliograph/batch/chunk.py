"""What one fetch brought of one partition, taken piece by piece, each piece a batch the target will accept.

Answers for the choice between passing a batch on as it stands (fast path) and rewriting its records (slow path), for
merging and splitting, and for knowing at each moment which source offset comes next. It does not know about producers
and sequences (`header.patch` sets them), topics or sockets.

Invariants:
A. The pieces of a chunk hold, in order, each record at or after `wanted` that is neither in a control batch nor in an
   aborted one nor dropped by `skip`, with its key, value, headers and timestamp. Nothing else, nothing twice.
B. Every piece passes the broker's checks: offset deltas 0, 1, 2 …, count as declared, CreateTime, not too large.
C. When `take` raises, the chunk stands where it stood before. So `skip(1)` steps over a record that is too large.
D. Whether a record is too large (`RecordTooLarge`) depends on the record, the codec of its source batch and the
   target's limit, never on its neighbours: two writers that read the same log in different pieces agree. So batches
   above the limit are not merged, and a record that fits no piece is tried in a batch of its own before it is refused.
E. A batch passes as it stands only if its `lastOffsetDelta + 1 == count`. Nothing inside needs a look then: the
   source's broker numbered the records 0, 1, 2 … when they came in, cleaning only takes records away, and what takes
   one away makes the count smaller than the span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from heliograph.batch import codec as codecs
from heliograph.batch import columns as c
from heliograph.batch import header, legacy
from heliograph.batch.loading import need, ready
from heliograph.batch.piece import Copy, Piece
from heliograph.batch.records import Record, decode_all
from heliograph.batch.scan import Row, find, refuse
from heliograph.errors import BatchError, CorruptBatch, RecordTooLarge

# Unpacked, a merged batch may be so large. Small compressed batches of very regular data would else grow without end.
UNPACKED_BYTES = 8 << 20

# An array of up to so many rows is listed at once: most are looked at one by one, which would cost four times as much.
# Beyond that batches are tiny, and merged by kernels.
LISTED_ROWS = 4096

# A record that is too large by less than this factor is packed at its codec's tightest level before it is refused: its
# producer may have done so, and the same record passes where its batch need not be rewritten. No level saves more.
TIGHT_SAVES = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """What the target's topic takes."""

    max_batch_bytes: int = 1_048_588  # max.message.bytes; counts the whole batch with its 12-byte prefix
    codec_of_target: int | None = None  # compression.type as a codec's number; None: "producer", keep what comes
    # Batches smaller than this are merged under backlog. librdkafka and Java batch up to 1 MB and 16 KiB; five
    # batches of 24 KiB in flight over 100 ms make 1.2 MB/s, so below this a partition crawls, while above it the
    # broker's cost of a request (some 50 µs) is under 2 ns a byte and unpacking would cost more than it saves.
    merge_below_bytes: int = 24 << 10
    # Merged ones grow to this. Larger than a MB brings nothing anywhere, and costs every consumer memory.
    merged_bytes: int = 1_000_000


class Chunk:
    """What one fetch brought of one partition."""

    __slots__ = (
        "_array", "_check_crc", "_drop", "_limits", "_looked_at", "_past", "_payload", "_payload_row", "_row",
        "_rows", "_settled", "_shared", "_view", "_wanted", "held_bytes", "next_offset", "remaining_bytes",
        "remaining_records", "skipped_aborted", "skipped_control", "skipped_empty",
    )  # fmt: skip

    def __init__(
        self,
        records: bytes | bytearray | memoryview,
        *,
        wanted: int,
        aborted: Sequence[tuple[int, int]] = (),
        read_committed: bool = True,
        limits: Limits,
        check_crc: bool = True,
        shared: bool = False,
    ) -> None:
        """`aborted` is the fetch response's own list of (producer id, first offset); it holds for this buffer only.
        `shared`: the buffer is one of `sharing.Shares`, whose batches are unpacked and name the codec they came in."""
        found = find(records, wanted, aborted, read_committed, check_crc)
        if found.problem == c.OLD_FORMAT:
            records = legacy.upgrade(memoryview(records), check_crc)
            found = find(records, wanted, aborted, read_committed, check_crc)
        if found.problem and found.next_offset == wanted:
            raise refuse(found)  # a bad batch behind good ones waits until a fetch begins with it
        self._view = memoryview(records)
        self.held_bytes = len(self._view)  # the buffer stays in memory as a whole until the chunk is gone
        self._wanted = wanted
        self._limits = limits
        self._check_crc = check_crc
        self._shared = shared
        self._rows = found.rows
        self._array: Any = None  # the rows as an array, once a kernel wants it
        if not isinstance(found.rows, list) and len(found.rows) <= LISTED_ROWS:
            self._array, self._rows = found.rows, [tuple(row) for row in found.rows.tolist()]
        self._row = 0  # the row to take from
        self._looked_at: tuple[int, Row] = (-1, (0,) * 8)  # the last one that was looked at: mostly it is again
        self._drop = 0  # how many of its records are taken or dropped
        self._past = wanted  # right after the last record taken
        self._settled = not len(self._rows) or self._at(0)[c.AT_BASE] >= wanted
        self._payload: Any = None  # the unpacked records of row `_payload_row`, while it is taken in parts
        self._payload_row = -1
        self.next_offset = found.next_offset
        self.skipped_control = found.control
        self.skipped_aborted = found.aborted
        self.skipped_empty = found.empty
        self.remaining_bytes: int
        self.remaining_records: int
        self.remaining_bytes, self.remaining_records = _sums(self._rows)

    @classmethod
    def joined(cls, chunks: Sequence[Chunk]) -> Chunk:
        """The rest of consecutive chunks of one partition as one chunk, so that their small batches can be merged. All
        but the first must be `untouched`."""
        first, last = chunks[0], chunks[-1]
        rows: list[Row] = []
        parts: list[memoryview] = []
        size = 0
        for chunk in chunks:
            for index in range(chunk._row, len(chunk._rows)):
                position, length, *rest = chunk._at(index)
                parts.append(chunk._view[position : position + length])
                rows.append((size, length, *rest))  # type: ignore[arg-type]  # a row of as many columns
                size += length
        whole = cls(b"", wanted=first._wanted, limits=last._limits, check_crc=first._check_crc, shared=first._shared)
        whole._view, whole._rows, whole.held_bytes = memoryview(b"".join(parts)), rows, size
        whole._drop, whole._past, whole._settled = first._drop, first._past, first._settled
        whole.next_offset = last.next_offset
        whole.remaining_bytes = sum(chunk.remaining_bytes for chunk in chunks)
        whole.remaining_records = sum(chunk.remaining_records for chunk in chunks)
        return whole

    @property
    def untouched(self) -> bool:
        """Whether nothing of its first batch was taken, nor is any record of it to be left out."""
        return self._settled and not self._row and not self._drop

    @property
    def position(self) -> int:
        """The source offset before which everything has been taken, skipped or dropped."""
        if self._row >= len(self._rows):
            return self.next_offset
        # With holes the offset of the next record is unknown without a look; this is never beyond it.
        drop = self._drop if self._settled else 0
        return max(self._past, int(self._at(self._row)[c.AT_BASE]) + drop)

    @property
    def batches(self) -> int:
        """How many source batches are left."""
        return len(self._rows) - self._row

    @property
    def next_timestamp(self) -> int:
        """When the first record of the next batch was written, as its header says; -1: none is left."""
        return int(self._at(self._row)[c.AT_TS]) if self.batches > 0 else -1

    @property
    def newest_timestamp(self) -> int:
        """The newest in the last batch; -1: there is none."""
        return int(self._at(len(self._rows) - 1)[c.AT_MAX_TS]) if len(self._rows) else -1

    @property
    def compressed(self) -> bool:
        """Whether the next batch is: then merging means unpacking."""
        return self.batches > 0 and bool(self._at(self._row)[c.AT_FLAGS] & header.CODEC_MASK)

    def small(self) -> bool:
        """Whether merging would pay: several batches wait, and they are small on the average."""
        return self.batches > 1 and self.remaining_bytes < self.batches * self._limits.merge_below_bytes

    def skip(self, records: int, runs: list[tuple[int, int]] | None = None) -> int:
        """Drop the first `records` remaining records; how many were there to drop. Their source offsets go into `runs`,
        as (offset, length), if anybody wants them."""
        dropped = 0
        while dropped < records and self._settle():
            row = self._at(self._row)
            left = row[c.AT_COUNT] - self._drop
            step = min(left, records - dropped)
            dropped += step
            if runs is not None:
                self._name(row, step, runs)
            if step == left:
                self._advance(row)
            else:
                self._drop += step
                self.remaining_records -= step
        return dropped

    def next_record(self) -> Record | None:
        """The record that comes next, as an object: for whoever must keep what the target takes in no batch."""
        if not self._settle():
            return None
        row = self._at(self._row)
        batch = self._view[row[c.AT_POS] : row[c.AT_POS] + row[c.AT_SIZE]]
        return [record for record, _ in decode_all(bytes(batch)) if record is not None][self._drop]

    def take(self, *, merge: bool) -> Piece | None:
        """The next piece; None when nothing is left.

        `merge` says that there is a backlog: then neighbouring small batches come as one (as soon as the kernels are
        loaded). A batch that must be rewritten (holes, LogAppendTime, too large …) is, either way; KernelsMissing until
        they are loaded, and nothing has changed then.
        """
        if not self._settle():
            return None
        row = self._at(self._row)
        passes = self._passes(row)
        if not passes:
            need()
        if merge and row[c.AT_SIZE] < self._merge_below and self.batches > 1 and ready():
            return self._merge(row)
        return self._pass_on(row) if passes else self._assemble(self._row + 1, self._codec(row))

    @property
    def _merge_below(self) -> int:
        """Invariant D: a batch above the target's limit is taken by itself, so that its own codec decides."""
        return min(self._limits.merge_below_bytes, self._limits.max_batch_bytes + 1)

    def _name(self, row: Row, step: int, runs: list[tuple[int, int]]) -> None:
        """The source offsets of the next `step` records of a batch."""
        if row[c.AT_LAST] - row[c.AT_BASE] + 1 == row[c.AT_COUNT]:
            runs.append((row[c.AT_BASE] + self._drop, step))
            return
        batch = self._view[row[c.AT_POS] : row[c.AT_POS] + row[c.AT_SIZE]]
        offsets = [record.offset for record, _ in decode_all(bytes(batch)) if record is not None]
        for offset in offsets[self._drop : self._drop + step]:
            if runs and sum(runs[-1]) == offset:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((offset, 1))

    # -- where we are

    def _at(self, row: int) -> Row:
        """A row as Python's integers."""
        at, found = self._looked_at
        if at != row:
            fresh: Any = self._rows[row]
            found = fresh if isinstance(fresh, tuple) else tuple(fresh.tolist())
            self._looked_at = row, found
        return found

    def _settle(self) -> bool:
        """Count the records before `wanted` in the first batch as dropped. False when no row is left."""
        if not self._settled:
            row = self._at(self._row)
            if row[c.AT_LAST] - row[c.AT_BASE] + 1 == row[c.AT_COUNT]:
                self._drop = self._wanted - row[c.AT_BASE]
            else:
                self._drop = self._below(row)
            self._settled = True
            if self._drop == row[c.AT_COUNT]:  # all that is left of it after cleaning lies before `wanted`
                self._drop = 0
                self.skipped_empty += 1
                self.remaining_records -= row[c.AT_COUNT]
                self.remaining_bytes -= row[c.AT_SIZE]
                self._row += 1
            else:
                self.remaining_records -= self._drop
        return self._row < len(self._rows)

    def _below(self, row: Row) -> int:
        """How many records of a batch with holes lie before `wanted`."""
        if not ready():
            batch = bytes(self._view[row[c.AT_POS] : row[c.AT_POS] + row[c.AT_SIZE]])
            return sum(
                record is not None and record.offset < self._wanted
                for record, _ in decode_all(batch, check_crc=self._check_crc)
            )
        from heliograph.batch import kernels

        payload = self._unpacked(self._row, row)
        drop = int(kernels.below(payload, row[c.AT_COUNT], self._wanted - row[c.AT_BASE]))
        if drop < 0:
            raise self._corrupt(row, "its records make no sense")
        return drop

    def _advance(self, row: Row) -> None:
        self.remaining_records -= row[c.AT_COUNT] - self._drop
        self.remaining_bytes -= row[c.AT_SIZE]
        self._row += 1
        self._drop = 0
        self._payload = None
        self._payload_row = -1

    # -- fast path

    def _codec(self, row: Row) -> int:
        """What a batch is packed with when it is rewritten by itself."""
        target = self._limits.codec_of_target
        if target is None or (self._shared and row[c.AT_SIZE] > self._limits.max_batch_bytes):
            return self._own_codec(row)
        return target

    def _own_codec(self, row: Row) -> int:
        """What it was packed with in the source."""
        if self._shared:
            return header.leader_epoch(self._view[row[c.AT_POS] :])  # written there by `sharing`
        return row[c.AT_FLAGS] & header.CODEC_MASK

    def _passes(self, row: Row) -> bool:
        """Whether a batch may go as it stands (invariant E)."""
        flags, target = row[c.AT_FLAGS], self._limits.codec_of_target
        return (
            not flags & c.NEEDS_REWRITE
            and not self._drop
            and row[c.AT_SIZE] <= self._limits.max_batch_bytes
            and (flags & header.CODEC_MASK) <= codecs.ZSTD
            and (target is None or target == flags & header.CODEC_MASK)
        )

    def _pass_on(self, row: Row) -> Piece:
        position, size, base, last, count, _, _, max_timestamp = row
        batch = self._view[position : position + size]
        if self._check_crc:
            self._verify(batch, row)
        self._advance(row)
        self._past = last + 1
        return Piece(bytearray(batch), count, base, last + 1, max_timestamp, ((base, count),))

    def _verify(self, batch: memoryview, row: Row) -> None:
        # Measured: reading the CRC twice, here and when it is renewed, costs 0.05 ms for a batch of 1 MiB.
        if crc32c(batch[header.ATTRIBUTES :]) != int.from_bytes(batch[header.CRC : header.ATTRIBUTES], "big"):
            raise self._corrupt(row, "the CRC does not match")

    def _corrupt(self, row: Row, what: str) -> CorruptBatch:
        base = int(row[c.AT_BASE])
        return CorruptBatch(
            f"The record batch at source offset {base} is corrupt: {what}",
            fix="Check the source broker's disk with kafka-dump-log, or the network between",
            offset=base,
        )

    # -- slow path

    def _merge(self, row: Row) -> Piece:
        """One batch of several small neighbours, or the first of them alone when the next is large."""
        import numpy as np

        from heliograph.batch import kernels

        room = min(self._limits.merged_bytes, self._limits.max_batch_bytes) - header.SIZE
        shares = np.zeros(header.CODEC_MASK + 1, np.int64)
        stop = int(kernels.gather(self._as_array(), self._row, self._merge_below, room, shares))
        if stop == self._row + 1 and self._passes(row):
            return self._pass_on(row)
        target = self._limits.codec_of_target
        known = shares[: codecs.ZSTD + 1]  # one that is not will be named when its turn comes
        return self._assemble(stop, int(known.argmax()) if target is None else target)

    def _as_array(self) -> Any:
        if self._array is None:
            import numpy as np

            self._array = np.asarray(self._rows, np.int64)
        return self._array

    def _assemble(self, stop: int, codec: int) -> Piece:
        """One batch of the records from here on up to row `stop`, as many as the target takes."""
        most = self._limits.max_batch_bytes
        budget = self._budget(stop, codec)
        while True:
            copy = Copy(budget, self._row, self._drop)
            self._fill(copy, stop)
            if not copy.records:  # the first record alone is larger than the budget
                if codec == codecs.NONE:
                    return self._alone(copy.need)
                budget = copy.need
                continue
            data = copy.batch(codec)
            if len(data) <= most:
                self._move_to(copy)
                return copy.piece(data)
            if copy.records == 1:
                return self._alone(copy.size)
            # What is packed is too large: try with as much less as it was too much, and a little less still.
            budget = int(copy.size * most / len(data) * 0.9)

    def _alone(self, size: int) -> Piece:
        """The next record, which takes `size` bytes, in a batch of its own: by its own codec, unpacked, or packed
        tightly, whichever the target takes first. RecordTooLarge if it takes none (invariant D)."""
        copy = Copy(size, self._row, self._drop)
        self._fill(copy, self._row + 1)
        row = self._at(self._row)
        own = self._own_codec(row) if self._shared else self._codec(row)
        own = own if own <= codecs.ZSTD else codecs.NONE
        most, needs = self._limits.max_batch_bytes, 0
        for codec, tight in ((own, False), (codecs.NONE, False), (own, True)):
            if tight and (own == codecs.NONE or needs > most * TIGHT_SAVES):
                continue
            data = copy.batch(codec, tight=tight)
            if len(data) <= most:
                self._move_to(copy)
                return copy.piece(data)
            needs = needs or len(data)
        raise self._too_large(copy.next_offset - 1, needs - header.SIZE)

    def _budget(self, stop: int, codec: int) -> int:
        """How many bytes of records to begin with: what fits for sure, or what probably does once it is packed."""
        most = self._limits.max_batch_bytes
        alone = stop == self._row + 1
        if codec == codecs.NONE:
            return (most if alone else min(self._limits.merged_bytes, most)) - header.SIZE
        row = self._at(self._row)
        if alone and row[c.AT_SIZE] > most and row[c.AT_FLAGS] & header.CODEC_MASK:
            ratio = len(self._unpacked(self._row, row)) / row[c.AT_SIZE]
            return min(UNPACKED_BYTES, int(most * ratio * 0.9))
        return UNPACKED_BYTES

    def _fill(self, copy: Copy, stop: int) -> None:
        """Copy records until `stop` or until it is full. A bad batch behind good ones waits for its own turn."""
        rows = self._as_array()
        while copy.row < stop:
            at = copy.row
            row = self._at(at)
            try:
                if row[c.AT_FLAGS] & header.CODEC_MASK:
                    code = copy.add(self._unpacked(at, row), rows[at])
                else:
                    code = copy.add_plain(self._view, rows, self._sound_until(at, stop), self._check_crc)
                if code in (c.CORRUPT, c.CRC_WRONG):
                    what = "the CRC does not match" if code == c.CRC_WRONG else "its records make no sense"
                    raise self._corrupt(self._at(copy.row), what)
            except BatchError:
                if copy.records:
                    return
                raise
            if code == c.FULL:
                return

    def _sound_until(self, first: int, stop: int) -> int:
        """The first row from `first` on whose CRC is wrong, of those too large for the kernel's check; `stop`: none is.
        CorruptBatch if it is `first`. Good batches before a bad one are handed out: an operator who steps over the bad
        one would lose them otherwise."""
        if not self._check_crc:
            return stop
        rows = self._as_array()[first:stop]
        large = (rows[:, c.AT_SIZE] > c.CRC_IN_KERNEL) & (rows[:, c.AT_FLAGS] & header.CODEC_MASK == codecs.NONE)
        for index in large.nonzero()[0].tolist():
            row = self._at(first + index)
            try:
                self._verify(self._view[row[c.AT_POS] : row[c.AT_POS] + row[c.AT_SIZE]], row)
            except CorruptBatch:
                if not index:
                    raise
                return first + int(index)
        return stop

    def _unpacked(self, at: int, row: Row) -> Any:
        """The records of a batch as an array; those of the last batch asked for are kept."""
        if self._payload_row != at:
            import numpy as np

            batch = self._view[row[c.AT_POS] : row[c.AT_POS] + row[c.AT_SIZE]]
            if self._check_crc:
                self._verify(batch, row)
            codec = row[c.AT_FLAGS] & header.CODEC_MASK
            payload = codecs.decompress(codec, batch[header.SIZE :], offset=row[c.AT_BASE])
            self._payload = np.frombuffer(payload, np.uint8)
            self._payload_row = at
        return self._payload

    def _move_to(self, copy: Copy) -> None:
        if copy.row > self._row:
            self.remaining_bytes -= int(self._as_array()[self._row : copy.row, c.AT_SIZE].sum())
        self.remaining_records -= copy.records
        self._row, self._drop, self._past = copy.row, copy.drop, copy.next_offset
        if self._payload_row != self._row:
            self._payload, self._payload_row = None, -1

    def _too_large(self, offset: int, size: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"The record at source offset {offset} needs a batch of {size + header.SIZE:,} bytes,"
            f" the target takes {self._limits.max_batch_bytes:,}",
            fix="Raise max.message.bytes of the target's topic",
            offset=offset,
            size_bytes=size + header.SIZE,
            limit_bytes=self._limits.max_batch_bytes,
        )


def _sums(rows: Any) -> tuple[int, int]:
    """Bytes and records of the rows."""
    if isinstance(rows, list):
        return sum(row[c.AT_SIZE] for row in rows), sum(row[c.AT_COUNT] for row in rows)
    return int(rows[:, c.AT_SIZE].sum()), int(rows[:, c.AT_COUNT].sum())

"""What one fetch of a shared topic brought, divided by where each record's labels say it came from.

Answers for shares by target, with the records' own times, and without the labels if they are not to be kept; and for
naming the records that are in none: those whose labels are missing or absurd, and those of targets that are not known
yet. What labels are is `labels`' affair, what becomes of such records the task's.

Invariants (beside those of `sharing`):
A. Where a record goes depends on its labels alone: read again after a restart, it goes to the same place.
B. A record that is in no share is named, by its offset: nobody may pass it unseen.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.batch import columns as c
from heliograph.batch import header
from heliograph.batch.labels import Absurd
from heliograph.batch.records import Record, decode
from heliograph.batch.scan import Transactions
from heliograph.batch.sharing import MOST_BYTES, Shares, Sharing
from heliograph.types import TopicPartition

_I64 = struct.Struct(">q")

# Records that cannot be put back become Python objects. Each counts as this many bytes of what a response unpacks to,
# and a batch with more of them than this is refused: a producer without labels could fill the memory otherwise.
STRANGE_BYTES = 512
MOST_STRANGE = 100_000


class Targets:
    """Where records may go, by the topic and partition that they came from; the index is that of the share."""

    def __init__(self, origins: Sequence[TopicPartition]) -> None:
        import numpy as np

        from heliograph.batch import labelling

        self.origins = tuple(origins)
        texts = [one.topic.encode() for one in self.origins]
        ends = np.cumsum([0, *map(len, texts)])
        self.names = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
        self.entries = np.empty((len(texts), 3), np.int64)
        self.entries[:, labelling.E_NAME] = ends[:-1]
        self.entries[:, labelling.E_SIZE] = [len(text) for text in texts]
        self.entries[:, labelling.E_PARTITION] = [one.partition for one in self.origins]
        self.slots = np.full(1 << max(2 * len(texts), 4).bit_length(), -1, np.int64)
        labelling.index(self.names, self.entries, self.slots)


@dataclass(frozen=True, slots=True)
class Strange:
    """A record that cannot be put back, as it lies in the shared topic."""

    record: Record
    why: Absurd


@dataclass(frozen=True, slots=True)
class Sorted:
    shares: Shares
    strange: tuple[Strange, ...]
    unknown: dict[
        TopicPartition, int
    ]  # where records came from that go to none of the targets: the first offset of each
    next_offset: int  # right after what was divided; -1: nothing was


def demux(
    records: bytes | memoryview,
    targets: Targets,
    *,
    keep: bool,
    refuses: Callable[[TopicPartition], bool] = lambda origin: False,
    aborted: Sequence[tuple[int, int]] = (),
    most_bytes: int = MOST_BYTES,
    until: float = math.inf,
) -> Sorted:
    """The whole batches in `records`, divided, up to the first that is corrupt; that one alone is an error.
    `keep`: with their labels. `refuses`: origins that are not in `targets` and never will be: records of theirs are
    strange. `aborted`: as `Chunk` has it; what was aborted is nobody's, and nobody need know of it.
    The shares end behind the batch that brings them above `most_bytes`, or in which `until` passes."""
    sorting = _Demux(targets, keep, refuses, aborted, most_bytes, until)
    shares = sorting.walk(records)
    return Sorted(shares, tuple(sorting.strange), sorting.unknown, sorting.next_offset)


class _Demux(Sharing):
    def __init__(
        self,
        targets: Targets,
        keep: bool,
        refuses: Callable[[TopicPartition], bool],
        aborted: Sequence[tuple[int, int]],
        most_bytes: int,
        until: float,
    ) -> None:
        super().__init__(len(targets.origins), most_bytes, until)
        self._table, self._strip, self._refuses = targets, not keep, refuses
        self._transactions = Transactions(sorted((first, producer) for producer, first in aborted))
        self._aborted = False  # whether the batch at hand was
        self.strange: list[Strange] = []
        self.unknown: dict[TopicPartition, int] = {}
        self._judged: dict[TopicPartition, bool] = {}  # whether these are refused

    @property
    def next_offset(self) -> int:
        return header.Header.parse(self._last).last_offset + 1 if self._last else -1

    def _add(self, batch: memoryview) -> None:
        head, records = header.Header.parse(batch), batch[header.SIZE :]
        told = (head.producer_id, head.last_offset, head.attributes & 0xFF, head.count)
        self._aborted = head.producer_id >= 0 and self._transactions.holds(records, *told)
        super()._add(batch)

    def _divide(self, head: header.Header, batch: memoryview, like: bytes) -> None:
        import numpy as np

        from heliograph.batch import labelling

        if self._aborted:
            return
        payload, table = self._unpacked(head, batch), self._table
        rows = np.empty((head.count, labelling.RECORD_COLUMNS), np.int64)
        code = labelling.sort(
            *(payload, head.count, head.base_timestamp, head.max_timestamp, head.log_append_time, self._strip),
            *(table.names, table.entries, table.slots, rows),
        )
        if code != c.OK:
            raise self._corrupt(head, "its records make no sense")
        whose = rows[:, labelling.R_TARGET]
        if (whose == labelling.UNKNOWN).any():
            self._name(payload, head, rows)
        if (whose < labelling.UNKNOWN).any():
            self._set_aside(batch, head, rows[whose < labelling.UNKNOWN])
        tally = np.zeros((self._targets, 3), np.int64)
        labelling.weigh(rows, tally)
        ends = np.cumsum(tally[:, labelling.T_BYTES])
        out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        labelling.put_back(payload, rows, head.base_timestamp, ends - tally[:, labelling.T_BYTES], out)
        del payload, rows  # before what is put back is copied once more
        made, end, data = bytearray(like), head.last_offset, out.data
        made[header.ATTRIBUTES + 1] &= ~header.LOG_APPEND_TIME & 0xFF  # they have times of their own
        begin = 0
        for target, (size, count, newest) in enumerate(tally.tolist()):
            if count:
                _I64.pack_into(made, header.MAX_TIMESTAMP, newest)
                self._put(target, data[begin : begin + size], count, made, end)
                begin += size

    def _set_aside(self, batch: memoryview, head: header.Header, rows: Any) -> None:
        from heliograph.batch import labelling

        if len(rows) > MOST_STRANGE or head.count > 10 * MOST_STRANGE:  # all of them are decoded for the sake of these
            raise self._corrupt(head, f"{len(rows):,} of its records have no labels that can be followed")
        self._made += len(rows) * STRANGE_BYTES
        by_offset = {record.offset: record for record in decode(batch, check_crc=False)}
        for row in rows:
            record = by_offset[head.base_offset + int(row[labelling.R_DELTA])]
            self.strange.append(Strange(record, Absurd(int(row[labelling.R_TARGET]))))

    def _name(self, payload: Any, head: header.Header, rows: Any) -> None:
        """Where records of unknown targets came from; those that are refused are marked as strange."""
        from heliograph.batch import labelling

        for place in (rows[:, labelling.R_TARGET] == labelling.UNKNOWN).nonzero()[0]:
            row = rows[place]  # a view: what is marked in it is marked in `rows`
            at, size = int(row[labelling.R_TOPIC]), int(row[labelling.R_TOPIC_SIZE])
            origin = TopicPartition(bytes(payload[at : at + size]).decode(), int(row[labelling.R_PARTITION]))
            if origin not in self._judged:
                self._judged[origin] = self._refuses(origin)
            if self._judged[origin]:
                row[labelling.R_TARGET] = Absurd.FORBIDDEN
            else:
                self.unknown.setdefault(origin, head.base_offset + int(row[labelling.R_DELTA]))

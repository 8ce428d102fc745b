"""What one fetch brought, with labels on every record that say where it came from: what goes into a shared topic.

Answers for the labels of whole batches; offsets, keys, values and headers of their own stay as they are, so that what
comes out is read by `Chunk` as the fetch itself would be. What the labels are is `labels`' affair.

A record's own time goes into its label, if that is written, and its time in the shared topic is that of the moment:
retention there is by arrival, or what is older than it would be gone before anybody carried it over.

Invariant: of a record come the same labels whoever reads it again, but for what the stamp says of clusters; and always
one record of one, so that sequences (rule B) do not depend on them.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from heliograph.batch import header
from heliograph.batch.labels import Label, Stamp
from heliograph.batch.records import varint
from heliograph.batch.sharing import MOST_BYTES, Shares, Sharing

_TIMES = struct.Struct(">qq")  # base and newest timestamp, which stand side by side
# What a record can grow by beside the labels that are the same for all: two texts of at most 24 bytes with their sizes,
# and its own size and count of headers, which may need a few bytes more.
GROWTH_BYTES = 2 * 25 + 5 + 5


@dataclass(frozen=True, slots=True)
class Labelled:
    shares: Shares
    newest_ms: int  # of the records' own times, as batches say it; -1: there are none


def mux(
    records: bytes | memoryview, stamp: Stamp, now_ms: int, *, most_bytes: int = MOST_BYTES, until: float = math.inf
) -> Labelled:
    """The whole batches in `records`, labelled, up to the first that is corrupt; that one alone is an error. They end
    behind the batch that brings them above `most_bytes`, or in which `until` passes."""
    labelling = _Mux(stamp, now_ms, most_bytes, until)
    return Labelled(labelling.walk(records), labelling.newest_ms)


class _Mux(Sharing):
    def __init__(self, stamp: Stamp, now_ms: int, most_bytes: int, until: float) -> None:
        super().__init__(1, most_bytes, until)
        self._now_ms, self.newest_ms = now_ms, -1
        self._front, self._timed, self._back, self._numbered, self._added = _encoded(stamp)

    def _divide(self, head: header.Header, batch: memoryview, like: bytes) -> None:
        import numpy as np

        from heliograph.batch import labelling

        payload = self._unpacked(head, batch)
        grows = len(self._front) + len(self._back) + GROWTH_BYTES
        out = np.empty(len(payload) + head.count * grows, np.uint8)  # pages not written are never touched
        size = int(
            labelling.stamp(
                *(payload, head.count, head.base_offset, head.base_timestamp, head.max_timestamp, head.log_append_time),
                *(self._front, self._timed, self._back, self._numbered, self._added, out),
            )
        )
        if size < 0:
            raise self._corrupt(head, "its records make no sense")
        del payload  # before the labelled ones are copied
        self.newest_ms = max(self.newest_ms, head.max_timestamp)
        made = bytearray(like)
        if self._timed:
            made[header.ATTRIBUTES + 1] &= ~header.LOG_APPEND_TIME & 0xFF
            _TIMES.pack_into(made, header.BASE_TIMESTAMP, self._now_ms, self._now_ms)
        self._put(0, out[:size].data, head.count, made, head.last_offset)


@lru_cache(maxsize=4096)
def _encoded(stamp: Stamp) -> tuple[Any, bool, Any, bool, int]:
    """What `labelling.stamp` wants of it."""
    import numpy as np

    front, back = bytearray(), bytearray()
    part, timed, numbered = front, False, False
    for label in stamp.labels:
        name = label.header.encode()
        part += varint(len(name)) + name
        if label is Label.TIMESTAMP:
            part, timed = back, True
        elif label is Label.OFFSET:
            numbered = True
        else:
            text = stamp.text(label).encode()
            part += varint(len(text)) + text
    frozen = [np.frombuffer(bytes(one), np.uint8) for one in (front, back)]
    return frozen[0], timed, frozen[1], numbered, len(stamp.labels)

"""What one fetch brought, divided by target partition: each share is a buffer of batches like the one it came from.

Answers for where a record goes when the target has another number of partitions; the shares themselves are `sharing`'s.
Does not know topics, nor how far anybody is.

Invariants:
A. Where a record goes depends on its key, its offset and the number of targets alone, never on batches, fetches or
   time: read again after a restart, it goes to the same place.
B. A key goes where Kafka's own producers put it: murmur2, positive, modulo.
"""

from __future__ import annotations

import math

from heliograph.batch import columns as c
from heliograph.batch import header
from heliograph.batch.sharing import MOST_BYTES, Shares, Sharing

# Records without a key have no place of their own. So many neighbours go together, to keep batches large.
KEYLESS_RUN = 64


def target_of(key: bytes | None, offset: int, targets: int) -> int:
    """Where a record goes; what the kernel does, in Python."""
    if key is None:
        return offset // KEYLESS_RUN % targets
    return (murmur2(key) & 0x7FFFFFFF) % targets


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as 32 bits without a sign."""
    mask, mix = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    h = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * mix & mask
        k = (k ^ k >> 24) * mix & mask
        h = h * mix & mask ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * mix & mask
    h = (h ^ h >> 13) * mix & mask
    return h ^ h >> 15


def split(
    records: bytes | memoryview, targets: int, *, most_bytes: int = MOST_BYTES, until: float = math.inf
) -> Shares:
    """The shares of the whole batches in `records`, up to the first that is corrupt; that one alone is an error. They
    end behind the batch that brings them above `most_bytes`, or in which `until` passes."""
    return _Split(targets, most_bytes, until).walk(records)


class _Split(Sharing):
    def _divide(self, head: header.Header, batch: memoryview, like: bytes) -> None:
        import numpy as np

        from heliograph.batch import routing

        payload = self._unpacked(head, batch)
        tally = np.zeros((self._targets, 2), np.int64)  # bytes and records for each target
        places = np.empty((head.count, 2), np.int64)  # target and size of each record
        if routing.route(payload, head.count, head.base_offset, KEYLESS_RUN, tally, places) != c.OK:
            raise self._corrupt(head, "its records make no sense")
        if head.count == 1:  # what producers without a pause send: nothing is to be sorted
            self._put(int(places[0, 0]), payload.data, 1, like, head.last_offset)
            return
        out = np.empty(len(payload), np.uint8)
        starts = np.concatenate(([0], np.cumsum(tally[:, 0])))
        routing.scatter(payload, places, starts[:-1].copy(), out)
        del payload, places  # before they are copied once more
        for target, (begin, end, count) in enumerate(zip(starts, starts[1:], tally[:, 1], strict=False)):
            if count:
                self._put(target, out[begin:end].data, int(count), like, head.last_offset)

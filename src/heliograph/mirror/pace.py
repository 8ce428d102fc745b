"""How fast the target answers, and whether merging small batches pays.

A partition has at most five batches on their way (rule F), so it moves at most 5 × batch size per round trip: 16 KiB
batches over 100 ms crawl at 0.8 MB/s, while over loopback they fly. Merging uncompressed batches costs next to nothing
and always spares the broker work; merging compressed ones costs a decompression and a compression, so it is done only
when the round trip makes small batches the limit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from heliograph.batch import Chunk, Limits
from heliograph.mirror.ledger import IN_FLIGHT

# What a single partition should be able to carry without merging, in compressed bytes per second. Below it, merging is
# worth its CPU: 20 MB/s of lz4 is some 100 MB/s of records.
WORTH_BYTES_PER_S = 20e6

# Uncompressed: merged below this size. Above, a request is mostly payload already.
PLAIN_BYTES = 64 << 10

# A batch this large is not copied into a larger one: five of them over 100 ms are 12 MB/s, and copying is not free.
MERGE_BELOW_BYTES = 256 << 10

# From here on a target is far, and what counts is how much is on its way: five batches of a MB over 100 ms make 50 MB/s
# (and fit the default max.message.bytes, 1048588). Near, smaller batches and requests stay in the caches of both
# sides: measured with values of 10 KB, 15.5 µs of CPU a record against 19, and runs that differ less.
FAR_S = 0.005
FAR_BATCH_BYTES, NEAR_BATCH_BYTES = 1_000_000, 500_000
FAR_REQUEST_BYTES, NEAR_REQUEST_BYTES = 4 << 20, 1 << 20

# Backoff after a retriable error of a broker, on the writing and on the reading side: doubled each time up to the most.
BACKOFF_FIRST_S, BACKOFF_MOST_S = 0.05, 2.0

WINDOW_S = 10.0  # how long a fast answer counts as evidence of the path's true round trip


def backoff_s(failures: int) -> float:
    """Seconds to wait after this many failures in a row."""
    return min(BACKOFF_FIRST_S * (1 << min(failures, 16)), BACKOFF_MOST_S)


class Pace:
    """Two witnesses of the round trip: the first answer on each connection, which waited for nothing, and the fastest
    recent answer to a batch. The smaller is nearer the truth: a busy broker is not a far one."""

    def __init__(self) -> None:
        self._first = float("inf")
        self._fastest: deque[tuple[float, float]] = deque()  # (when, seconds), increasing in seconds: a sliding minimum

    def opened(self, seconds: float) -> None:
        self._first = min(self._first, seconds)

    def answered(self, seconds: float) -> None:
        now = time.monotonic()
        while self._fastest and self._fastest[-1][1] >= seconds:
            self._fastest.pop()
        self._fastest.append((now, seconds))
        while self._fastest[0][0] < now - WINDOW_S:
            self._fastest.popleft()

    @property
    def is_known(self) -> bool:
        """Whether anything was answered yet."""
        return bool(self._fastest)

    @property
    def round_trip_s(self) -> float:
        fastest = self._fastest[0][1] if self._fastest else 0.0
        return min(self._first, fastest)

    @property
    def is_far(self) -> bool:
        return self.round_trip_s >= FAR_S

    @property
    def request_bytes(self) -> int:
        """A request stops growing here: what is behind it waits no longer than the broker needs for it."""
        return FAR_REQUEST_BYTES if self.is_far else NEAR_REQUEST_BYTES

    def limits(self, max_batch_bytes: int) -> Limits:
        """For the batches of a partition that takes no larger ones than this."""
        merged = FAR_BATCH_BYTES if self.is_far else NEAR_BATCH_BYTES
        return Limits(max_batch_bytes=max_batch_bytes, merge_below_bytes=MERGE_BELOW_BYTES, merged_bytes=merged)

    def merging_pays(self, chunk: Chunk) -> bool:
        if chunk.batches < 2:
            return False
        return chunk.remaining_bytes / chunk.batches < self._pays_below(chunk.compressed)

    def joinable(self, chunks: Iterable[Chunk]) -> int:
        """How many chunks, from the first on, to join: together they fit one merged batch, and their batches are small
        enough that merging pays. 0: fewer than two."""
        most = FAR_BATCH_BYTES if self.is_far else NEAR_BATCH_BYTES
        count = size = batches = 0
        compressed = False
        for chunk in chunks:
            if size + chunk.remaining_bytes > most or (count and not chunk.untouched):
                break
            count += 1
            size += chunk.remaining_bytes
            batches += chunk.batches
            compressed = compressed or chunk.compressed
        return count if count > 1 and size < batches * self._pays_below(compressed) else 0

    def _pays_below(self, compressed: bool) -> float:
        return self.merges_below_bytes if compressed else PLAIN_BYTES

    @property
    def merges_below_bytes(self) -> float:
        """Compressed batches smaller than this: five of them a round trip are less than a partition should carry."""
        return self.round_trip_s * WORTH_BYTES_PER_S / IN_FLIGHT

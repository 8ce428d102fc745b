"""What a task has decided by itself, as it says it to its coordinator: sizes by the measured round trip, who is behind.

Nothing is decided here: `mirror.pace`, `mirror.fetch`, `mirror.ways` and `mirror.ledger` do. Nothing of it can be set,
so it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heliograph.mirror.append import REQUESTS_IN_FLIGHT
from heliograph.mirror.fetch import FETCH_BYTES, FETCH_PARTITION_BYTES
from heliograph.mirror.lane import Lane
from heliograph.mirror.ledger import IN_FLIGHT
from heliograph.mirror.pace import PLAIN_BYTES, Pace


@dataclass(frozen=True, slots=True)
class Sizes:
    round_trip_ms: float  # to the target; 0: not known yet
    far: bool
    request_bytes: int  # a request to the target stops growing here
    merged_batch_bytes: int  # and a batch that is made of several
    merge_plain_below_bytes: int  # uncompressed batches smaller than this are merged
    merge_compressed_below_bytes: int  # and compressed ones, which follows from the round trip
    batches_in_flight: int  # of a partition
    requests_in_flight: int  # of a connection
    fetch_bytes: int
    fetch_partition_bytes: int
    live: int  # partitions
    history: int  # partitions that are far behind, and give way


def decided(pace: Pace, lanes: Sequence[Lane]) -> Sizes:
    partitions = {lane.spec.tp for lane in lanes}  # of the source: a divided one has several lanes
    history = len({lane.spec.tp for lane in lanes if lane.history})
    return Sizes(
        round_trip_ms=max(round(pace.round_trip_s * 1000, 2), 0.01) if pace.is_known else 0.0,
        far=pace.is_known and pace.is_far,
        request_bytes=pace.request_bytes,
        merged_batch_bytes=pace.limits(1 << 30).merged_bytes,
        merge_plain_below_bytes=PLAIN_BYTES,
        merge_compressed_below_bytes=int(pace.merges_below_bytes),
        batches_in_flight=IN_FLIGHT,
        requests_in_flight=REQUESTS_IN_FLIGHT,
        fetch_bytes=FETCH_BYTES,
        fetch_partition_bytes=FETCH_PARTITION_BYTES,
        live=len(partitions) - history,
        history=history,
    )

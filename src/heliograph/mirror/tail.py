"""What the target's log itself says of a producer id, read off its batches. Only headers are looked at.

The last sequence, for rule D without DescribeProducers: needed when the broker has no state for an id that has written
before (it expires after a day without writes), and brokers before 2.8 cannot be asked at all. And where records that
were appended after the last position lie, for the offset map.
"""

from __future__ import annotations

from heliograph.batch import HEADER_BYTES, headers
from heliograph.errors import BrokerError, WireError
from heliograph.mirror.ledger import advance, distance
from heliograph.mirror.positions import Position
from heliograph.types import TopicPartition
from heliograph.wire import Client
from heliograph.wire.codes import OFFSET_OUT_OF_RANGE

# How far back to look, in batches. A remote partition has one writer, so our id is nearly always in the very last
# batch (where topics are divided it has a few, which take turns); behind it there could be an MM2's batches from an era
# that an operator merged by hand.
LOOK_BACK = 50

SCAN_BYTES = 4 << 20


def last_sequence_in_log(client: Client, remote: TopicPartition, producer_id: int) -> int | None:
    """None: not found near the end of the log, so the position is all there is to trust."""
    ends = client.list_offsets([remote], at="latest")[remote]
    if isinstance(ends, WireError):
        raise ends
    offset = ends - 1
    for _ in range(LOOK_BACK):
        if offset < 0:
            return None
        try:
            part = client.fetch(remote, offset, max_bytes=HEADER_BYTES)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            return None  # before the log's start: nothing more to learn
        found = list(headers(part.records))
        if not found:
            return None
        batch = found[0]
        if batch.producer_id == producer_id and batch.base_sequence >= 0:
            return advance(batch.base_sequence, batch.last_offset_delta)
        offset = batch.base_offset - 1
    return None


def places(client: Client, remote: TopicPartition, acked: Position, count: int) -> list[tuple[int, int]]:
    """The target offsets, as (offset, length), of the `count` records that follow this position. Empty: not all
    found."""
    found: list[tuple[int, int]] = []
    have, offset = 0, acked.target
    while have < count:
        try:
            part = client.fetch(remote, offset, max_bytes=SCAN_BYTES)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            return []  # retention has taken the first of them
        before = offset
        for batch in headers(part.records):
            offset = max(offset, batch.last_offset + 1)
            if batch.producer_id != acked.producer_id or batch.base_sequence < 0:
                continue
            drop = max(have - distance(acked.sequence, batch.base_sequence), 0)
            take = min(batch.last_offset_delta + 1 - drop, count - have)
            if take > 0:
                found.append((batch.base_offset + drop, take))
                have += take
        if offset == before:
            return []
    return found

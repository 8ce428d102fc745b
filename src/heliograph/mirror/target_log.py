"""What the target's log itself says of a producer id, read off its batch headers.

A broker forgets a producer id when the records it wrote are older than `producer.id.expiration.ms`, by the time *in*
the records. It then accepts any sequence. The log does not forget: every batch header carries the producer id and its
first sequence. So where a broker does not know our id, the log is read from the position on.

Blocking, for a call beside a task's loop. Nothing here decides anything: `mirror.producer_state` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heliograph.batch import Header, headers, legacy
from heliograph.errors import BrokerError, WireError
from heliograph.mirror.ledger import advance, distance
from heliograph.mirror.positions import Position
from heliograph.topiclog.batches import require_no_bytes
from heliograph.types import TopicPartition
from heliograph.wire import Client
from heliograph.wire.codes import LEADER_NOT_AVAILABLE, OFFSET_OUT_OF_RANGE, broker_error

SCAN_BYTES = 4 << 20

# Where the target offset of the position is not known, the log is searched from its end in stretches of offsets that
# grow. The first is small because the last batch of a remote partition is nearly always ours.
FIRST_STRETCH, LARGEST_STRETCH = 1_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Stored:
    """The records that follow a position in the log, of its producer id."""

    last_sequence: int | None  # of the last of them; None: there are none
    placed: tuple[tuple[int, int], ...] = ()  # their target offsets, as (offset, length); empty: not all are known
    missing: int = 0  # records whose sequences the log passes over: a later batch is there and they are not


def stored_since(client: Client, remote: TopicPartition, acked: Position, log_end: int) -> Stored:
    """Read from the position's target offset up to `log_end`. Raises a retriable error while the followers do not have
    all of it: consumers see no further than the high watermark."""
    placed: list[tuple[int, int]] = []
    last: int | None = None
    have, missing, holes = 0, 0, 0
    aligned = True
    expected = acked.target
    scan = Scan(client, remote, acked.target, log_end)
    for batch in scan:
        holes += max(batch.base_offset - expected, 0)  # what compaction removed
        expected = batch.last_offset + 1
        if batch.producer_id != acked.producer_id or batch.base_sequence < 0:
            continue
        ahead = distance(advance(acked.sequence, have), batch.base_sequence)
        missing += max(ahead - holes, 0)
        aligned = aligned and ahead <= 0
        records = batch.last_offset_delta + 1
        dropped = min(max(-ahead, 0), records)  # counted already
        if records > dropped:
            placed.append((batch.base_offset + dropped, records - dropped))
            have += max(ahead, 0) + records - dropped
            last = advance(batch.base_sequence, records - 1)
        holes = 0
    whole = scan.began_at <= acked.target
    return Stored(last, tuple(placed) if aligned and whole else (), missing)


def last_sequence(client: Client, remote: TopicPartition, producer_id: int) -> int | None:
    """The last sequence of this producer id anywhere in the log; None: the log has no batch of it."""
    start = client.list_offsets([remote], at="earliest")[remote]
    end = client.list_offsets([remote], at="log_end")[remote]
    if isinstance(start, WireError):
        raise start
    if isinstance(end, WireError):
        raise end
    stretch = FIRST_STRETCH
    while end > start:
        begin = max(end - stretch, start)
        found = None
        for batch in Scan(client, remote, begin, end):
            if batch.producer_id == producer_id and batch.base_sequence >= 0:
                found = advance(batch.base_sequence, batch.last_offset_delta)
        if found is not None:
            return found
        stretch, end = min(stretch * 10, LARGEST_STRETCH), begin
    return None


class Scan:
    """The headers of the batches that reach into [begin, end). Invariant: it ends without an error only when `end` was
    reached. Neither an empty answer below it nor bytes that are no batch are taken for an empty log."""

    def __init__(self, client: Client, remote: TopicPartition, begin: int, end: int) -> None:
        self._client, self._remote = client, remote
        self._end = end
        self.began_at = begin  # the log's start, where retention took what lay before it

    def __iter__(self) -> Iterator[Header]:
        offset = self.began_at
        while offset < self._end:
            try:
                part = self._client.fetch(self._remote, offset, max_bytes=SCAN_BYTES)
            except BrokerError as error:
                if error.code != OFFSET_OUT_OF_RANGE:
                    raise
                offset = self.began_at = self._start_behind(offset, error)
                continue
            before = offset
            # Messages of formats before 0.11 have no producer id, and batches of ours may follow them.
            for batch in headers(legacy.as_batches(part.records, check_crc=False)):
                if batch.last_offset < offset:
                    continue
                if batch.base_offset >= self._end:
                    return
                yield batch
                offset = batch.last_offset + 1
            if offset == before:
                require_no_bytes(part.records, self._client.alias, self._remote, offset)
                if part.high_watermark < self._end:
                    raise behind(self._remote, part.high_watermark, self._end)
                return  # compaction removed everything up to the end

    def _start_behind(self, offset: int, error: BrokerError) -> int:
        start = self._client.list_offsets([self._remote], at="earliest")[self._remote]
        if isinstance(start, WireError):
            raise start
        if start <= offset:  # behind the end: the leader moved, and the new one has less
            raise broker_error(
                LEADER_NOT_AVAILABLE,
                f"offset {offset} is behind the end of the log: {error.message}",
                topic=self._remote.topic,
                partition=self._remote.partition,
            )
        return int(start)


def behind(remote: TopicPartition, high_watermark: int, log_end: int) -> BrokerError:
    """What the leader has appended may still be lost: the question is asked again."""
    return broker_error(
        LEADER_NOT_AVAILABLE,
        f"the followers have the log up to offset {high_watermark}, the leader up to {log_end}",
        topic=remote.topic,
        partition=remote.partition,
    )

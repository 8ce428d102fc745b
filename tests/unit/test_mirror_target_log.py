"""What the target's log says of a producer id, read off batch headers: with foreign batches, compaction holes, a start
that retention moved, and batches that are missing."""

from __future__ import annotations

import struct
import types
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from heliograph.batch import Record, encode, patch
from heliograph.errors import BrokerError, CorruptBatch
from heliograph.mirror.positions import SEQUENCES, Position
from heliograph.mirror.target_log import last_sequence, stored_since
from heliograph.types import TopicPartition
from heliograph.wire.codes import OFFSET_OUT_OF_RANGE, broker_error
from tests.unit.test_batch_legacy import message

REMOTE, OURS, THEIRS = TopicPartition("us.t", 0), 7, 8
STOOD = Position(10, OURS, 0, 10, UUID(int=1), 10)


class Log:
    """Batches as (base offset, records, producer id, first sequence); holes are what compaction removed."""

    alias = "eu"

    def __init__(self, *batches: tuple[int, int, int, int], start: int = 0, high_watermark: int | None = None) -> None:
        self.batches = []
        for base, records, producer, sequence in batches:
            data = bytearray(encode([Record(i, 1, None, b"v", ()) for i in range(records)]))
            patch(data, producer, 0, sequence)
            data[:8] = base.to_bytes(8, "big")
            self.batches.append((base + records, bytes(data)))
        self.start = start
        self.end = self.batches[-1][0] if self.batches else start
        self.high_watermark = self.end if high_watermark is None else high_watermark
        self.fetches = 0

    def list_offsets(self, tps: list[TopicPartition], *, at: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, {"earliest": self.start, "log_end": self.end}[at])

    def fetch(self, tp: TopicPartition, offset: int, *, max_bytes: int) -> Any:
        self.fetches += 1
        if not self.start <= offset <= self.end:
            raise broker_error(OFFSET_OUT_OF_RANGE)
        found = [data for end, data in self.batches if offset < end <= self.high_watermark][:2]
        return types.SimpleNamespace(records=b"".join(found), high_watermark=self.high_watermark)

    def since(self, position: Position = STOOD) -> Any:
        return stored_since(self, REMOTE, position, self.end)  # type: ignore[arg-type]

    def last(self) -> int | None:
        return last_sequence(self, REMOTE, OURS)  # type: ignore[arg-type]


def test_what_follows_the_position_is_counted_and_placed() -> None:
    found = Log((0, 10, OURS, 0), (10, 4, OURS, 10), (14, 3, THEIRS, 0), (17, 5, OURS, 14)).since()
    assert (found.last_sequence, found.placed, found.missing) == (18, ((10, 4), (17, 5)), 0)


def test_a_log_that_ends_at_the_position_holds_nothing_more() -> None:
    log = Log((0, 10, OURS, 0))
    assert log.since().last_sequence is None
    assert log.fetches == 0


def test_sequences_that_wrap_around() -> None:
    stood = Position(10, OURS, 0, SEQUENCES - 2, UUID(int=1), 10)
    found = Log((0, 10, OURS, SEQUENCES - 12), (10, 4, OURS, SEQUENCES - 2), (14, 2, OURS, 2)).since(stood)
    assert (found.last_sequence, found.missing) == (3, 0)


def test_a_batch_stored_without_the_one_before_it_is_missing() -> None:
    found = Log((0, 10, OURS, 0), (10, 3, OURS, 14)).since()
    assert (found.last_sequence, found.missing) == (16, 4)


def test_a_batch_that_compaction_removed_is_not_missing() -> None:
    """Its offsets are a hole of the same size."""
    found = Log((0, 10, OURS, 0), (14, 3, OURS, 14)).since()
    assert (found.last_sequence, found.missing, found.placed) == (16, 0, ())
    beside = Log((0, 10, OURS, 0), (12, 2, THEIRS, 0), (16, 3, OURS, 14)).since()
    assert beside.missing == 0


def test_what_retention_removed_is_not_missing() -> None:
    found = Log((20, 3, OURS, 20), start=20).since()
    assert (found.last_sequence, found.missing, found.placed) == (22, 0, ())
    assert Log(start=30).since().last_sequence is None


def test_an_answer_short_of_the_end_is_no_end() -> None:
    """A new leader's high watermark lags: what it has and does not show yet may be ours."""
    with pytest.raises(BrokerError, match="the followers have the log up to offset 10, the leader up to 14") as caught:
        Log((0, 10, OURS, 0), (10, 4, OURS, 10), high_watermark=10).since()
    assert caught.value.retriable


def test_the_last_sequence_is_found_however_many_batches_of_others_follow() -> None:
    others = [(10 + i, 1, THEIRS, i) for i in range(3_000)]
    assert Log((0, 10, OURS, 0), *others).last() == 9
    assert Log(*others).last() is None
    assert Log((5, 3, OURS, 40), start=5).last() == 42


@pytest.mark.parametrize(("field", "value"), [(8, 1 << 30), (8, 5), (8, -1), (16, 3 << 24)])
def test_bytes_that_are_no_batch_are_not_taken_for_an_empty_log(field: int, value: int) -> None:
    """A corrupt length or magic in the target's log: what lies behind it may be ours, so nothing may be sent again."""
    log = Log((0, 10, OURS, 0), (10, 4, OURS, 10), (14, 3, OURS, 14))
    end, data = log.batches[1]
    damaged = bytearray(data)
    struct.pack_into(">i", damaged, field, value)
    log.batches[1] = end, bytes(damaged)
    for ask in (log.since, log.last):
        with pytest.raises(CorruptBatch, match=r"us\.t-0 at offset 10: .* no record batch") as caught:
            ask()
        assert (caught.value.context["offset"], caught.value.retriable) == (10, False)


def test_messages_of_old_formats_are_passed_and_what_follows_them_is_found() -> None:
    """A copy that was begun long ago by something else: magic 0 and 1 have no producer ids."""
    log = Log((10, 4, OURS, 10), (14, 3, OURS, 14))
    old = [(n + 1, message(n % 2, n, 1, None, b"old")) for n in range(10)]
    log.batches[:0] = old
    assert log.last() == 16
    assert log.since(replace(STOOD, next_offset=0, sequence=10, target=0)).last_sequence == 16

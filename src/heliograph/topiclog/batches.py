"""Fetched bytes as the records of a topic: batches of any format, transactions, and what cannot be decoded. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heliograph.batch import Record, decode, headers, legacy
from heliograph.errors import BatchError, CorruptBatch
from heliograph.types import TopicPartition

_COMMIT = 1  # of a control record's key: version, then type (0: abort), each an int16


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch. `producer_id` is that of a transaction, -1 outside of one. `marker`: the batch ends the transaction,
    True by a commit, False by an abort."""

    first_offset: int
    next_offset: int
    records: tuple[Record, ...] = ()
    producer_id: int = -1
    marker: bool | None = None
    problem: str = ""  # why its records cannot be read


def require_no_bytes(fetched: bytes | memoryview, alias: str, tp: TopicPartition, offset: int) -> None:
    """Of a fetch at this offset without one whole batch: bytes that are none are not taken for the end of the log."""
    if len(fetched):
        raise CorruptBatch(
            f"{tp} at offset {offset}: the broker returned {len(fetched):,} bytes that are no record batch",
            fix=f"check the disk of the leader of {tp} in {alias} with kafka-dump-log: its segment is damaged",
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
        )


def batches(fetched: bytes | memoryview) -> Iterator[Batch]:
    """Every whole batch; stops at bytes that are none."""
    view = legacy.as_batches(fetched, check_crc=True)
    at = 0
    for head in headers(view):
        data = view[at : at + head.size_bytes]
        at += head.size_bytes
        place = (head.base_offset, head.last_offset + 1)
        try:
            records = tuple(decode(data))
        except BatchError as error:
            yield Batch(*place, problem=error.message)
            continue
        if head.control:
            yield Batch(*place, producer_id=head.producer_id, marker=_commits(records))
        else:
            yield Batch(*place, records, head.producer_id if head.transactional else -1)


def _commits(records: tuple[Record, ...]) -> bool | None:
    """None: another kind of control record, which ends no transaction."""
    key = records[0].key if records else None
    kind = int.from_bytes(key[2:4], "big") if key is not None and len(key) >= 4 else -1
    return {0: False, _COMMIT: True}.get(kind)

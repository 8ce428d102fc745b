"""Records that the target refuses: found in their batch, taken out of it, and kept as they are. Pure.

A record in the quarantine topic is keyed by where it stood in the source (so that one that is refused again after a
crash is the same), holds the record itself as a batch of its own (key, value, headers and time to the byte, null or
not), and says in headers, for any client to read, what it is and why it is there. Before it is sent again it is written
with the producer id that it will be sent under, so that sending it once more after a crash is a repeat, which the
target's broker stores once; afterwards a tombstone takes its place.

The way through Python objects is slow (some µs a record) and taken only by batches that hold a refused record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import msgspec

from heliograph.batch import Header, Piece, Record, decode, encode
from heliograph.errors import BatchError
from heliograph.mirror.incidents import runs_of
from heliograph.types import TopicPartition

NAME = "HeliographQuarantine"


# ---- in a batch --------------------------------------------------------------------------------------------------


def records_of(piece: Piece) -> list[Record]:
    """Its records, with their source offsets."""
    offsets = [offset for start, length in piece.runs for offset in range(start, start + length)]
    records = decode(piece.data, check_crc=False)  # set only when it is sent
    return [replace(record, offset=offset) for record, offset in zip(records, offsets, strict=True)]


def parts(piece: Piece, held: Collection[int], most: int = 0) -> list[Piece]:
    """The same without the records at these source offsets, in batches of at most `most` records (0: any number)."""
    inside = [o for start, length in piece.runs for o in range(start, start + length) if o in held] if held else []
    if not inside and not 0 < most < piece.records:
        return [piece]
    codec = Header.parse(piece.data).codec
    left = [record for record in records_of(piece) if record.offset not in held]
    size = most or max(len(left), 1)
    return [_piece(left[at : at + size], codec) for at in range(0, len(left), size)]


def _piece(records: Sequence[Record], codec: int) -> Piece:
    data = bytearray(encode([replace(record, offset=i) for i, record in enumerate(records)], codec=codec))
    runs = runs_of(record.offset for record in records)
    times = max(record.timestamp for record in records)
    return Piece(data, len(records), records[0].offset, records[-1].offset + 1, times, runs)


# ---- in the topic ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stood, and where it should have gone."""

    tp: TopicPartition
    topic_id: UUID | None
    offset: int
    remote: TopicPartition


@dataclass(frozen=True, slots=True)
class Kept:
    """A record in quarantine."""

    place: Place
    record: Record
    reason: str
    at_ms: int
    sender: tuple[int, int] | None = None  # producer id and epoch under which it is being sent again


def key_of(source_alias: str, place: Place) -> bytes:
    about = {
        "cluster": source_alias,
        "id": str(place.topic_id or ""),
        "offset": place.offset,
        "partition": place.tp.partition,
        "topic": place.tp.topic,
    }
    return msgspec.json.encode([NAME, about])


def keep(source_alias: str, kept: Kept) -> Record:
    """As it goes to the topic; its offset is to be set."""
    place = kept.place
    headers: dict[str, Any] = {
        "heliograph.source": f"{source_alias}/{place.tp.topic}/{place.tp.partition}/{place.offset}",
        "heliograph.target": f"{place.remote.topic}/{place.remote.partition}",
        "heliograph.reason": kept.reason,
    }
    if kept.sender is not None:
        headers["heliograph.sender"] = f"{kept.sender[0]}/{kept.sender[1]}"
    value = encode([replace(kept.record, offset=0)])
    pairs = tuple((name, str(text).encode()) for name, text in headers.items())
    return Record(0, kept.at_ms, key_of(source_alias, place), value, pairs)


def read(record: Record, source_alias: str) -> tuple[bytes, Kept | None] | None:
    """A record of the topic: its key, and what is kept under it (None: a tombstone). None for other clusters' records
    and for nonsense."""
    try:
        name, about = msgspec.json.decode(record.key or b"")
        if name != NAME or about["cluster"] != source_alias:
            return None
        id_, tp = about["id"], TopicPartition(str(about["topic"]), int(about["partition"]))
        key = record.key or b""
        if record.value is None:
            return key, None
        said = {name: (value or b"").decode() for name, value in record.headers}
        topic, _, partition = said["heliograph.target"].rpartition("/")
        place = Place(tp, UUID(id_) if id_ else None, int(about["offset"]), TopicPartition(topic, int(partition)))
        inside = decode(record.value)[0]
        producer, _, epoch = said.get("heliograph.sender", "").partition("/")
        sender = (int(producer), int(epoch)) if producer else None
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError, BatchError):
        return None
    original = replace(inside, offset=place.offset)
    return key, Kept(place, original, said.get("heliograph.reason", ""), record.timestamp, sender)

"""What a broker answers to a fetch, read by hand: gigabytes pass here, and kio would copy each of them once more.

Answers for the layout of Fetch responses from version 12 on (every broker from 2.8 on speaks it) and for what may stay
in the frame it came in. Which of the answers are still wanted is the session's business. Single fields and versions
before that are read by kio; a test holds the two together, version by version.

Invariant: a view of a frame keeps all of its buffer, so only records that make up a good part of it are views, the
others copies: what is held in memory is at most 1 / VIEW_SHARE times what is queued.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

from kio.serial.readers import read_compact_string, read_uuid

from heliograph.types import TopicPartition
from heliograph.wire.fields import bytes_at, leader_among_tagged, skip_tagged, unsigned
from heliograph.wire.frames import SHARED_BYTES

FIRST_READ_BY_HAND = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13
VIEW_SHARE = 1 / 4

_FRONT = struct.Struct(">ihi")  # throttle time, error, session id
_PARTITION = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_CURRENT_LEADER = 1  # the tag


@dataclass(slots=True)
class Fetched:
    """What a broker returned for one partition. `offset` is what was asked for; the first batch may start before it."""

    topic: str
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset)
    records: bytes | memoryview
    leader: int = -1  # with a leader error, from v12: who leads now
    leader_epoch: int = -1
    offset: int = -1

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True)
class FetchAnswer:
    """A whole response. Of a topic, the name or the id is known, by version; `offset` of a part is not yet."""

    throttle_ms: int
    error_code: int
    session_id: int
    parts: list[tuple[uuid.UUID | None, Fetched]]


def read(frame: memoryview, at: int, version: int) -> tuple[FetchAnswer, int]:
    """The body of a response that begins at `at`, and where it ends."""
    try:
        return _answer(frame, at, version)
    except struct.error as error:
        raise ValueError(f"it ends too early ({len(frame)} bytes)") from error


def _answer(frame: memoryview, at: int, version: int) -> tuple[FetchAnswer, int]:
    throttle_ms, error, session_id = _FRONT.unpack_from(frame, at)
    answer = FetchAnswer(throttle_ms, error, session_id, [])
    topics, at = unsigned(frame, at + _FRONT.size)
    for _ in range(topics - 1):
        topic_id: uuid.UUID | None = None
        name = ""
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topic_id, size = read_uuid(frame, at)
        else:
            name, size = read_compact_string(frame, at)
        at += size
        partitions, at = unsigned(frame, at)
        for _ in range(partitions - 1):
            part, at = _partition(frame, at, name)
            answer.parts.append((topic_id, part))
        at = skip_tagged(frame, at)
    return answer, skip_tagged(frame, at)


def _partition(frame: memoryview, at: int, topic: str) -> tuple[Fetched, int]:
    index, error, high_watermark, last_stable, log_start = _PARTITION.unpack_from(frame, at)
    count, at = unsigned(frame, at + _PARTITION.size)
    aborted = []
    for _ in range(count - 1):  # -1: null
        aborted.append(_ABORTED.unpack_from(frame, at))
        at = skip_tagged(frame, at + _ABORTED.size)
    at += 4  # the preferred read replica: we ask leaders
    length, at = unsigned(frame, at)
    records, at = bytes_at(frame, at, max(length - 1, 0))
    buffer_bytes = len(frame.obj)  # type: ignore[arg-type]  # typed as any object; it may be larger than the frame
    kept = records if len(records) > max(SHARED_BYTES, buffer_bytes * VIEW_SHARE) else bytes(records)
    leader, at = leader_among_tagged(frame, at, _CURRENT_LEADER)
    part = Fetched(topic, index, error, high_watermark, last_stable, log_start, tuple(aborted), kept, *leader)
    return part, at

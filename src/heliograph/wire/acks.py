"""What a broker answers to a produce, read by hand: there is one for every few batches, and through kio's readers each
batch cost more than sending it.

Answers for the layout of Produce responses in the versions that are written by hand (`wire.produce`); older ones are
read by kio, and a test holds the two together, version by version. Does not decide what to do about an error.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from heliograph.wire.fields import bytes_at, leader_among_tagged, skip_tagged, text, unsigned

FIRST_READ_BY_HAND = 9  # the first flexible one
LAST_READ_BY_HAND = 12  # from then on topics go by id

_PARTITION = struct.Struct(">ihqqq")  # index, error, base offset, log append time, log start offset
_INDEX = struct.Struct(">i")
_CURRENT_LEADER = 0  # the tag
_NOTHING_MORE = b"\x01\x00\x00"  # no record errors, no message, no tagged fields: nearly always


class Produced(NamedTuple):
    """The broker's word on one batch. `record_errors` are (index in the batch, message)."""

    topic: str
    partition: int
    error: int
    base_offset: int
    log_append_time_ms: int  # -1: the topic keeps the producer's times
    log_start_offset: int
    message: str = ""
    record_errors: tuple[tuple[int, str], ...] = ()
    leader: int = -1  # with NOT_LEADER_OR_FOLLOWER, from v10: where it is led now
    leader_epoch: int = -1


class ProduceAnswer(NamedTuple):
    """A whole response."""

    parts: list[Produced]


def read(frame: memoryview, at: int) -> tuple[ProduceAnswer, int]:
    """The body of a response that begins at `at`, and where it ends."""
    try:
        return _answer(frame, at)
    except struct.error as error:
        raise ValueError(f"it ends too early ({len(frame)} bytes)") from error


def _answer(frame: memoryview, at: int) -> tuple[ProduceAnswer, int]:
    parts: list[Produced] = []
    topics, at = unsigned(frame, at)
    for _ in range(topics - 1):
        topic, at = text(frame, at)
        partitions, at = unsigned(frame, at)
        for _ in range(partitions - 1):
            part = Produced(topic, *_PARTITION.unpack_from(frame, at))
            at += _PARTITION.size
            if frame[at : at + 3] == _NOTHING_MORE:
                at += 3
            else:
                part, at = _rest(frame, at, part)
            parts.append(part)
        at = skip_tagged(frame, at)
    _, at = bytes_at(frame, at, 4)  # throttle time: the broker does not read our next request before it is over
    return ProduceAnswer(parts), skip_tagged(frame, at)


def _rest(frame: memoryview, at: int, part: Produced) -> tuple[Produced, int]:
    count, at = unsigned(frame, at)
    errors = []
    for _ in range(count - 1):
        (index,) = _INDEX.unpack_from(frame, at)
        why, at = text(frame, at + _INDEX.size)
        errors.append((index, why))
        at = skip_tagged(frame, at)
    message, at = text(frame, at)
    leader, at = leader_among_tagged(frame, at, _CURRENT_LEADER)
    return Produced(*part[:6], message, tuple(errors), *leader), at


def produced(response: Any) -> list[Produced]:
    """The broker's word on each batch of a request, by whomever the response was read."""
    if isinstance(response, ProduceAnswer):
        return response.parts
    return [_by_kio(str(topic.name), part) for topic in response.responses for part in topic.partition_responses]


def _by_kio(topic: str, part: Any) -> Produced:
    appended = part.log_append_time
    leader = getattr(part, "current_leader", None)
    return Produced(
        topic,
        int(part.index),
        int(part.error_code),
        int(part.base_offset),
        -1 if appended is None else round(appended.timestamp() * 1000),
        int(getattr(part, "log_start_offset", -1)),
        getattr(part, "error_message", None) or "",
        tuple((int(e.batch_index), e.batch_index_error_message or "") for e in getattr(part, "record_errors", ())),
        -1 if leader is None else int(leader.leader_id),
        -1 if leader is None else int(leader.leader_epoch),
    )

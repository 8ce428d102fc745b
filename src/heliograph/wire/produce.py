"""Produce: batches into one request, and what the broker says of each.

Answers for the shape of the request and the reading of the response. Does not look into batches, and does not decide
what to do about an error.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kio.index import load_entity_module
from kio.static.constants import EntityType

from heliograph.wire.messages import Buffer, Message


@dataclass(frozen=True, slots=True)
class Produced:
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


@functools.cache
def _schema(version: int) -> Any:
    return load_entity_module("produce", version, EntityType.request)


def produce_request(
    version: int,
    parts: Sequence[tuple[str, int, Buffer]],
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> Message:
    """One batch for each (topic, partition) of `parts`.

    The batches are not copied, neither here nor when sent: they must not change until the answer is there.
    """
    schema = _schema(version)
    topics: dict[str, list[Any]] = {}
    for topic, partition, batch in parts:
        topics.setdefault(topic, []).append(schema.PartitionProduceData(index=partition, records=batch))
    for topic, entries in topics.items():
        if len({entry.index for entry in entries}) != len(entries):
            raise ValueError(f"two batches for one partition of {topic!r} in one request: the broker takes one")
    return schema.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=datetime.timedelta(milliseconds=timeout_ms),
        topic_data=tuple([schema.TopicProduceData(name=t, partition_data=tuple(e)) for t, e in topics.items()]),
    )


def produced(response: Message) -> list[Produced]:
    return [_one(str(topic.name), part) for topic in response.responses for part in topic.partition_responses]


def _one(topic: str, part: Any) -> Produced:
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

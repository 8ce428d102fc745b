"""Where reading begins and ends in each partition: a topic found, and offsets, times and words turned into offsets.

Times come out exactly for the beginning: the broker names the first offset at or after a time. For the end they cannot,
since producers' times need not rise: LATE_MS says how much disorder is looked through.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from heliograph.errors import BrokerError, ConfigError
from heliograph.messages.reading import Reading
from heliograph.types import Isolation, StartPoint, TopicPartition
from heliograph.wire import broker_error
from heliograph.wire.codes import INVALID_TOPIC, UNKNOWN_TOPIC_OR_PARTITION

# A partition is read up to its first message that is so much later than `--until`: in most topics messages are out of
# order by seconds, and whoever reads a day of a year's log should not have to read the year.
LATE_MS = 3_600_000
NAMED = 3


class Span(NamedTuple):
    """Offsets of one partition; `end` is not among them."""

    first: int
    end: int


def partitions(client: Reading, topic: str, wanted: Iterable[int] = (), *, otherwise: str = "") -> list[int]:
    """Those of the topic, or the wanted ones of them. Raises with what there is instead, and `otherwise`."""
    found = client.metadata([topic]).topics.get(topic)
    code = found.error if found else UNKNOWN_TOPIC_OR_PARTITION
    if code == INVALID_TOPIC:
        raise ConfigError(f"{topic!r} cannot be the name of a topic: TOPIC comes first, then FILE")
    if code == UNKNOWN_TOPIC_OR_PARTITION:
        hint = _nearest(client, topic) + otherwise
        raise ConfigError(f"{client.alias} has no topic {topic!r}, or hides it from this principal{hint}")
    if code or found is None:
        raise broker_error(code, cluster=client.alias, topic=topic)
    there = sorted(found.partitions)
    absent = sorted(set(wanted) - set(there))
    if absent:
        have = "only partition 0" if there == [0] else f"partitions 0 to {there[-1]}"
        raise ConfigError(f"{topic} on {client.alias} has no partition {', '.join(map(str, absent))}: it has {have}")
    return sorted(set(wanted)) or there


def topic_id(client: Reading, topic: str) -> UUID | None:
    """None: brokers have none for it."""
    found = client.metadata([topic]).topics.get(topic)
    return found.id if found else None


def _nearest(client: Reading, topic: str) -> str:
    names = list(client.metadata(None).topics)
    near = difflib.get_close_matches(topic, names, NAMED) or [name for name in sorted(names) if topic in name][:NAMED]
    return f": did you mean {' or '.join(near)}?" if near else f"; it shows {len(names):,} topics."


def logs(
    client: Reading, topic: str, numbers: Iterable[int], isolation: Isolation, note: Callable[[str], None]
) -> dict[int, Span]:
    """What each partition holds now; with read_committed up to the first transaction that is still open. Those that
    nobody leads at the moment are noted and left out, if others can be asked."""
    tps = [TopicPartition(topic, number) for number in numbers]
    starts = _answered(client.list_offsets(tps, at="earliest"), note)
    ends = _answered(client.list_offsets(list(starts), at="latest", isolation=isolation), note)
    return {tp.partition: Span(starts[tp], max(starts[tp], end)) for tp, end in ends.items()}


def _answered(
    found: Mapping[TopicPartition, int | BrokerError], note: Callable[[str], None]
) -> dict[TopicPartition, int]:
    known = {tp: offset for tp, offset in found.items() if isinstance(offset, int)}
    for tp, error in found.items():
        if isinstance(error, BrokerError):
            if not known or not error.retriable:
                raise error
            note(f"{tp} is left out, it cannot be asked now: {error}")
    return known


def begin(
    client: Reading, topic: str, held: Mapping[int, Span], point: StartPoint, note: Callable[[str], None]
) -> dict[int, int]:
    """The first offset to read of each partition."""
    if point.at == "earliest":
        return {number: span.first for number, span in held.items()}
    if point.at == "latest":
        return {number: span.end for number, span in held.items()}
    if point.at == "timestamp":
        return _at(client, topic, held, point.value)
    if held and all(point.value > span.end for span in held.values()):
        longest = max(span.end for span in held.values())
        raise ConfigError(f"{topic} on {client.alias} has no offset {point.value}: it ends before {longest}")
    gone = [number for number, span in held.items() if point.value < span.first]
    if gone:
        note(f"{topic}: {_names(gone)} begins only at offset {max(held[number].first for number in gone)}")
    return {number: min(max(point.value, span.first), span.end) for number, span in held.items()}


def finish(client: Reading, topic: str, held: Mapping[int, Span], point: StartPoint | None) -> dict[int, int]:
    """The offset before which to end, of each partition. None: its end as it is now."""
    ends = {number: span.end for number, span in held.items()}
    if point is None or point.at == "latest":
        return ends
    if point.at == "earliest":
        return {number: span.first for number, span in held.items()}
    if point.at == "offset":
        return {number: min(point.value, end) for number, end in ends.items()}
    return _at(client, topic, held, point.value + LATE_MS)


def _at(client: Reading, topic: str, held: Mapping[int, Span], when_ms: int) -> dict[int, int]:
    tps = [TopicPartition(topic, number) for number in held]
    found = _offsets(client.list_offsets(tps, at=when_ms))
    return {tp.partition: _inside(found[tp], held[tp.partition]) for tp in tps}


def _inside(offset: int, span: Span) -> int:
    return span.end if offset < 0 else min(max(offset, span.first), span.end)


def _offsets(found: Mapping[TopicPartition, int | BrokerError]) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for tp, offset in found.items():
        if isinstance(offset, BrokerError):
            raise offset
        offsets[tp] = offset
    return offsets


def _names(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:NAMED]))
    return f"partition {shown}" + (f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else "")

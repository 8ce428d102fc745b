"""What a hub must hold of a spoke's topic, record by record: what the spoke has, each with the eight labels behind.

Made of what confluent-kafka reads and of the labels' description alone (docs/hub-and-spoke.md), so that it shares no
code with what it checks. Records of several spokes lie in one topic of the hub; whose one is, its label says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import Message

from heliograph.cli import compare
from heliograph.cli.compare import Difference, Digests
from heliograph.types import MUX_HEADERS

IDENTIFIER = "MUX_SOURCE_IDENTIFIER"


@dataclass(frozen=True, slots=True)
class Spoke:
    """As its records' labels name it."""

    name: str
    bootstrap: str
    shared: str  # the topic that its records travel in
    cluster_id: str


def check(
    spokes: Mapping[Spoke, Mapping[str, str]], hub: Mapping[str, str], topics: Sequence[str], absent: Sequence[str]
) -> tuple[int, list[Difference | str]]:
    """How many records of these topics the spokes hold, and what is wrong with them at the hub. `spokes` and `hub`: how
    confluent-kafka reaches them. `absent`: topics that must not be there, under any name."""
    found: list[Difference | str] = []
    compared = 0
    for topic in topics:
        there = compare.end_offsets(hub, topic)
        returned, strangers = by_spoke(hub, topic) if there else ({}, 0)
        for spoke, client in spokes.items():
            source = expected(client, topic, spoke)
            compared += sum(map(len, source.values()))
            copy: Digests = {one: [] for one in source} | returned.pop(spoke.name, {})
            found += compare.compare(f"{spoke.name} {topic}", source, copy)
        strangers += sum(len(some) for digests in returned.values() for some in digests.values())
        if strangers:
            found.append(f"{topic}: {strangers:,} records at the hub are of no spoke")
    names = compare.topics_of(hub)
    found += [f"{name} is at the hub: {one} was not chosen" for one in absent for name in names if one in name]
    return compared, found


def expected(client: Mapping[str, str], topic: str, spoke: Spoke) -> Digests:
    """A spoke's topic as the hub must have it."""
    digests: Digests = {}

    def take(partition: int, message: Message) -> None:
        digests.setdefault(partition, []).append(compare.digest(message, labels(message, spoke)))

    compare.scan(client, topic, take)
    return digests


def labels(message: Message, spoke: Spoke) -> list[tuple[str, bytes]]:
    time_ms = message.timestamp()[1]
    when = f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"
    texts = (message.topic(), message.partition(), when, spoke.bootstrap, spoke.shared, spoke.name, spoke.cluster_id)
    values = [str(text).encode() for text in (*texts, message.offset())]
    return list(zip(MUX_HEADERS, values, strict=True))


def by_spoke(client: Mapping[str, str], topic: str) -> tuple[dict[str, Digests], int]:
    """A hub's topic divided by whose its records say they are; how many do not say."""
    found: dict[str, Digests] = {}
    strangers = 0

    def take(partition: int, message: Message) -> None:
        nonlocal strangers
        whose = whose_is(message)
        if whose is None:
            strangers += 1
        else:
            found.setdefault(whose, {}).setdefault(partition, []).append(compare.digest(message))

    compare.scan(client, topic, take)
    return found, strangers


def whose_is(message: Message) -> str | None:
    """By the last label of that name: those before are the record's own."""
    for name, value in reversed(message.headers() or []):
        if name == IDENTIFIER:
            return value.decode(errors="replace") if isinstance(value, bytes) else value
    return None

"""How many partitions remote topics have, as it is written in the file (`target.partitions = …`).

    us->eu.target.partitions = 12
    us->eu.target.partitions = orders.*:12, logs:1

An item is `[topic:]count`; the first that fits a source topic decides. `topic` is a name or a regular expression. Every
function raises ValueError with the reason, in words that can follow `key = value: `.
"""

from __future__ import annotations

import re

from heliograph.javaregex import java_regex
from heliograph.types import CountRule

MOST = 10_000  # each source partition has a producer id and a queue for each of them; more is a mistake
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
HOW = "write a count for all topics, or topic:count, e.g. orders.*:12, logs:1"


def rules(text: str) -> tuple[CountRule, ...]:
    found: list[CountRule] = []
    for item in (part.strip() for part in text.split(",")):
        if item:
            one = rule(item)
            _contradiction(found, one)
            found.append(one)
    if not found:
        raise ValueError(f"says nothing: {HOW}")
    return tuple(found)


def rule(item: str) -> CountRule:
    topics, colon, number = (part.strip() for part in item.rpartition(":"))
    if colon and not topics:
        raise ValueError(f"{item!r} names no topic: {HOW}")
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"{item!r} has no count of partitions: {HOW}")
    if not 1 <= int(number) <= MOST:
        raise ValueError(f"{item!r}: a topic has 1 to {MOST:,} partitions")
    if not colon:
        return CountRule(int(number))
    try:
        java_regex(topics)
    except ValueError as problem:
        raise ValueError(f"{topics!r} is neither a topic nor a regular expression: {problem}") from None
    return CountRule(int(number), topics)


def _contradiction(before: list[CountRule], one: CountRule) -> None:
    """The first that fits decides, so what stands behind one that fits all the same topics would never count."""
    for other in before:
        if other.topics in (".*", one.topics):
            whose = "all topics" if other.topics == ".*" else other.topics
            raise ValueError(
                f"{one} never counts: {other.partitions} is chosen for {whose} before it. Leave one of them out, or "
                f"put it last"
            )

"""`max.bytes.per.second = …`: how much a flow, and how much some of its topics, may copy in a second.

    us->eu.max.bytes.per.second = 10000000, history\\\\..*=2000000, clicks=500000

An item is `[topic=]bytes`: bytes a second of all topics of the flow together, or of the topics that fit, together; the
first that fits a topic decides, and the flow's own holds besides. `topic` is a name or a regular expression. Every
function raises ValueError with the reason, in words that can follow `key = value: `.
"""

from __future__ import annotations

import re

from heliograph.config import starts
from heliograph.types import Cap

_NUMBER = re.compile(r"[0-9]{1,18}")
UNIT = "the unit is bytes a second: 10 MB/s is 10000000"
# Below this a batch as producers make them (16 KiB) takes longer than a quarter of a minute, and nobody means that.
LEAST = 1000


def caps(text: str) -> tuple[Cap, ...]:
    found = [cap(item) for item in (part.strip() for part in text.split(",")) if item]
    if not found:
        raise ValueError(f"says nothing: leave the key out for no cap, or write a number; {UNIT}")
    flows = [one for one in found if one.topics is None]
    if len(flows) > 1:
        raise ValueError(f"caps the flow twice, with {flows[0]} and with {flows[1]}: leave one of them")
    for index, one in enumerate(found):
        if one.topics is None:
            continue
        if same := next((other for other in found[:index] if other.topics == one.topics), None):
            raise ValueError(f"caps {one.topics!r} twice, with {same.bytes_per_s} and with {one.bytes_per_s}")
        if flows and one.bytes_per_s > flows[0].bytes_per_s:
            raise ValueError(
                f"{one} can never be reached: the flow as a whole is capped at {flows[0]}. "
                f"Raise the flow's cap or lower this one"
            )
    return tuple(found)


def cap(item: str) -> Cap:
    whose, equals, number = (part.strip() for part in item.rpartition("="))
    topics = None
    if equals:
        topics, partition = starts.selection(whose)
        if partition is not None:
            raise ValueError(f"{item!r}: a cap is for topics, not for single partitions")
    return Cap(_bytes_per_s(number), topics)


def _bytes_per_s(text: str) -> int:
    if re.fullmatch(r"[+-]?0+", text):
        raise ValueError(f"a cap of 0 would copy nothing: leave the key out for no cap, or disable the flow; {UNIT}")
    if re.fullmatch(r"-[0-9]+", text):
        raise ValueError(f"{text} is negative: leave the key out for no cap; {UNIT}")
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no whole number: {UNIT}")
    if int(text) < LEAST:
        raise ValueError(f"{text} bytes a second is less than a small batch in a quarter of a minute: {UNIT}")
    return int(text)

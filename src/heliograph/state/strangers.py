"""Records in a topic of ours that nobody of us wrote: passed over, and named.

Every one is named once, by topic, partition and offset: one line for a partition and a reason at each reading, however
many there are, since who wrote one by mistake may have written a million. What makes no sense is decided by the readers
of each topic.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

log = structlog.get_logger()

RANGES = 200  # of offsets in one line; whoever wants more of them can read the topic from there


class Strangers:
    def __init__(self, flow: str, topic: str) -> None:
        self._flow, self._topic = flow, topic
        self._seen: dict[tuple[int, str], list[int]] = {}

    def add(self, partition: int, offset: int, why: str) -> None:
        self._seen.setdefault((partition, why), []).append(offset)

    def tell(self) -> None:
        """Of all that were added since the last time."""
        for (partition, why), offsets in self._seen.items():
            log.warning(
                "records that are not ours: passed over",
                flow=self._flow,
                topic=self._topic,
                partition=partition,
                offsets=ranges(offsets),
                records=len(offsets),
                why=why,
                fix="find out who else writes to this topic: only mirrors should",
            )
        self._seen = {}


def ranges(offsets: Sequence[int]) -> str:
    """`3-5, 9`: of rising offsets."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and offset == found[-1][1] + 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in found[:RANGES]]
    return ", ".join([*shown, *(["…"] if len(found) > RANGES else [])])

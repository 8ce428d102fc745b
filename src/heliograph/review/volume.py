"""How much of each topic is to be copied, in records and bytes, and how fast its source hands it out.

Bytes are estimates, and say of what: the size of the logs on disk, or one read where we may not ask for that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliograph.batch import headers
from heliograph.errors import BrokerError, WireError
from heliograph.survey.starts import Bounds, NoStart, bounds
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client

SAMPLED, SAMPLE_BYTES = 1000, 1 << 20  # where sizes may not be asked: records at the end that are read to learn theirs
MEASURED_BYTES, FETCH_BYTES = 4 << 20, 4 << 20  # less than this is copied before anybody could ask how long it takes


@dataclass(frozen=True, slots=True)
class Copy:
    """What of a topic is to be copied."""

    topic: str
    remote: str  # a topic; of one that is put back: words
    partitions: int
    records: int  # by offsets: holes in the source make them fewer
    bytes: int | None  # None: not known
    measured: str  # where the bytes are from


def copies(
    source: Client,
    left: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, Bounds | NoStart],
    remotes: Mapping[str, str],
) -> list[Copy]:
    """`remotes`: where the records of a topic go."""
    busy = [tp for tp, records in left.items() if records]
    try:
        sizes = source.log_sizes(busy) if busy else {}
    except WireError:
        sizes = {}
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in left:
        by_topic.setdefault(tp.topic, []).append(tp)
    found = []
    for topic, tps in sorted(by_topic.items()):
        records = sum(left[tp] for tp in tps)
        size, measured = _bytes(source, {tp: left[tp] for tp in tps if left[tp]}, logs, sizes)
        found.append(Copy(topic, remotes[topic], len(tps), records, size, measured))
    return found


def _bytes(
    source: Client,
    left: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, Bounds | NoStart],
    sizes: Mapping[TopicPartition, int | BrokerError],
) -> tuple[int | None, str]:
    """Of the logs' sizes on disk, the share that is to be copied; where we may not ask, by one read."""
    total = 0.0
    sampled = False
    for tp, records in left.items():
        size, log = sizes.get(tp), logs[tp]
        if isinstance(size, int) and isinstance(log, Bounds):
            total += size * records / max(log.end - log.start, 1)
            continue
        each = _bytes_per_record(source, tp, logs[tp])
        if each is None:
            return None, "not to be learnt"
        total += each * records
        sampled = True
    return round(total), "estimated from one read of each partition" if sampled else "by the size of the logs"


def _bytes_per_record(source: Client, tp: TopicPartition, log: Bounds | NoStart) -> float | None:
    """Of the youngest records of a partition."""
    if not isinstance(log, Bounds) or log.end <= log.start:
        return None
    first = max(log.end - SAMPLED, log.start)
    try:
        found = source.fetch(tp, first, max_bytes=SAMPLE_BYTES)
    except WireError:
        return None
    batches = list(headers(found.records))
    count = sum(batch.last_offset_delta + 1 for batch in batches)
    return sum(batch.size_bytes for batch in batches) / count if count else None


def read_rate(flow: Flow, copies: Sequence[Copy], seconds: float = 1.0) -> float | None:
    """Bytes per second at which the source hands out what is to be copied, one partition at a time. None: there is too
    little to tell. Copying reads many at once and writes as well, so it is a first guess."""
    largest = max(copies, key=lambda copy: copy.bytes or 0, default=None)
    if largest is None or (largest.bytes or 0) < MEASURED_BYTES:
        return None
    taken, began = 0, time.monotonic()
    with Client(flow.source) as source:
        tps = [TopicPartition(largest.topic, p) for p in range(largest.partitions)]
        for tp, log in bounds(source, tps).items():
            at = log.start if isinstance(log, Bounds) else 0
            while isinstance(log, Bounds) and at < log.end and time.monotonic() - began < seconds:
                found = source.fetch(tp, at, max_bytes=FETCH_BYTES)
                last = max((batch.last_offset for batch in headers(found.records)), default=log.end)
                at, taken = last + 1, taken + len(found.records)
    return taken / (time.monotonic() - began) if taken else None

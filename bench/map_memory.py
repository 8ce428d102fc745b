"""`python -m bench.map_memory`: a coordinator's memory for the offset map of transactional topics in a simulated day.

Every transaction is a run. Segments come as tasks write them, the coordinator reads and trims once a simulated minute,
and nothing else takes part: no broker, no record. Printed: the memory of the whole process, what of it is the map's,
the topic's live bytes after compaction, and how exact answers are for groups that are so far behind. Exits with 1 if
the process took more than `--limit-mb`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import count
from typing import Any, cast
from uuid import UUID

import click
import psutil

from heliograph import policy
from heliograph.batch import Record
from heliograph.mirror import offsetmap
from heliograph.mirror.offsetmap import SEGMENT_RUNS, Span, Subject
from heliograph.mirror.positions import Position
from heliograph.state.offsets import Claimed, OffsetMap
from heliograph.types import Cluster, Flow, TopicPartition

RECORDS = 10  # of a transaction, and a marker behind them
FLOW = Flow(Cluster("a"), Cluster("b"))
TOPIC_ID, COPY_ID, PRODUCER = UUID(int=1), UUID(int=2), 4000
AGES_S = (60, 600, 3600, 6 * 3600, 20 * 3600)


class Topic:
    """In the place of the map's topic: records that were not read yet, and the sizes of those that compaction keeps."""

    def __init__(self) -> None:
        self.live: dict[bytes, int] = {}
        self._news: list[Record] = []
        self._offsets = count()

    def append(self, _partition: int, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in pairs:
            self._news.append(Record(next(self._offsets), 0, key, value))
            self.live[key] = len(key) + len(value or b"")
            if value is None:
                del self.live[key]

    def news(self) -> Iterator[tuple[int, Record]]:
        read, self._news = self._news, []
        return ((0, record) for record in read)


class Target:
    """The copies: they have whatever is asked for, and retention has taken nothing."""

    def list_offsets(self, tps: Iterable[TopicPartition], *, at: str, **_: object) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 1 << 60 if at == "latest" else 0)


def segment(first: int) -> list[Span]:
    """A thousand transactions, and the last of the segment before (invariant b of `mirror.offsetmap`)."""
    numbers = range(max(first - 1, 0), first + SEGMENT_RUNS)
    return [Span(n * (RECORDS + 1), n * RECORDS, RECORDS) for n in numbers]


def memory_mb() -> float:
    return psutil.Process().memory_info().rss / 1e6


def simulated(partitions: int, rate: float, seconds: int) -> tuple[OffsetMap, Topic, float, float]:
    """The map at the end, its topic, the memory before it and the most that there was."""
    topic = Topic()
    offsets = OffsetMap(cast(Any, Target()), FLOW)
    log = offsets._log
    log.news, log.append, log.partitions = topic.news, topic.append, 1  # type: ignore[method-assign, assignment]
    subjects = [Subject(TopicPartition("t", p), TOPIC_ID, producer=PRODUCER + p) for p in range(partitions)]
    offsets.begin([Claimed(subject, 0, 0, COPY_ID) for subject in subjects])
    offsetmap.decode = lru_cache(4)(offsetmap.decode)  # type: ignore[assignment]  # all partitions get the same numbers
    before = most = memory_mb()
    done = 0
    for minute in range(1, seconds // 60 + 1):
        while done + SEGMENT_RUNS <= minute * 60 * rate:
            spans = segment(done)
            value = offsetmap.encode(spans)
            topic.append(0, [(offsetmap.key_of("a", one, spans[0].source), value) for one in subjects])
            done += SEGMENT_RUNS
        offsets.trim()
        most = max(most, memory_mb())
        if minute % 60 == 0:
            click.echo(f"{minute // 60:3d} h: {memory_mb():,.0f} MB, topic {live_mb(topic):,.1f} MB", err=True)
    return offsets, topic, before, most


def live_mb(topic: Topic) -> float:
    return sum(topic.live.values()) / 1e6


@click.command()
@click.option("--partitions", default=100, show_default=True)
@click.option("--rate", default=10.0, show_default=True, help="Transactions per second and partition.")
@click.option("--hours", default=24.0, show_default=True)
@click.option("--limit-mb", default=200.0, show_default=True, help="More than this is a failure.")
def main(partitions: int, rate: float, hours: float, limit_mb: float) -> None:
    began = time.monotonic()
    seconds = int(hours * 3600)
    offsets, topic, before, most = simulated(partitions, rate, seconds)
    transactions = int(seconds * rate) // SEGMENT_RUNS * SEGMENT_RUNS
    held = sum(len(one.runs) for partition in offsets._partitions.values() for one in partition.stored.values())
    click.echo(
        f"{partitions} partitions, {rate:g} transactions/s each, {hours:g} h: {partitions * transactions:,} runs"
    )
    click.echo(f"process at most {most:,.0f} MB, of which {most - before:,.0f} MB for the map; {held:,} runs held")
    click.echo(f"{policy.offset_map_topic('a')}: {live_mb(topic):,.1f} MB live in {len(topic.live):,} records")
    end = transactions * (RECORDS + 1)
    position = Position(end, PRODUCER, 0, 0, TOPIC_ID, transactions * RECORDS, run=-1)
    known = {TopicPartition("t", 0): position}
    for age_s in (age_s for age_s in AGES_S if age_s * rate < transactions):
        offs = []
        for n in range(int(transactions - age_s * rate), int(transactions - age_s * rate) + 200):
            place = offsets.translate(TopicPartition("t", 0), n * (RECORDS + 1), known)
            assert place is not None
            assert place <= n * RECORDS
            offs.append((n * RECORDS - place) / RECORDS / rate)
        click.echo(f"a group {age_s:,} s behind is placed at most {max(offs):,.1f} s too early")
    click.echo(f"took {time.monotonic() - began:,.0f} s")
    sys.exit(1 if most > limit_mb else 0)


if __name__ == "__main__":
    main()

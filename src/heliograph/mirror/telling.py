"""What a task tells its coordinator of its lanes, once a second and at its end: a row for each source partition.

Only of those of which something changed, until it was heard: then they are told again.

Invariant: a report is `final` only when everything acknowledged is in the positions topic, the map before it. The
coordinator goes on from there without reading it back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from heliograph.mirror import hindrance, sizes
from heliograph.mirror.append import Target
from heliograph.mirror.fetch import Source
from heliograph.mirror.hindrance import Hindrance, Outlook
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.link import LAST_S, Link
from heliograph.mirror.protocol import Report, partition_report
from heliograph.mirror.strands import bundles, together
from heliograph.types import TopicPartition

Seen = list[tuple[Lane, Hindrance]]  # the lanes of one source partition
Still = tuple[int, int, int, int, bool]


class Telling:
    def __init__(self, link: Link, lanes: Sequence[Lane], source: Source, target: Target) -> None:
        self._link = link
        self._lanes = lanes
        self._partitions = [bundle.lanes for bundle in bundles(lanes).values()]
        self._source, self._target = source, target
        self._told: dict[TopicPartition, tuple[Any, ...]] = {}
        self._outlook = Outlook()
        # Of partitions that stood still, with nothing waiting and nothing in their way, when they were last looked at.
        self._still: dict[TopicPartition, Still] = {}

    def tell(self, *, last: bool = False) -> None:
        """`last`: everything, whether it changed or not."""
        now = time.monotonic()
        changed: list[Seen] = []
        if last or not self._outlook.is_unchanged(self._source, self._target, now):
            self._still.clear()
        for lanes in self._partitions:
            still = _still(lanes[0]) if len(lanes) == 1 else None
            if still is not None and self._still.get(lanes[0].spec.tp) == still:
                continue  # told already, as most of ten thousand are: a look at each of them is not free
            seen = [(lane, hindrance.of_lane(lane, self._source, self._target, now)) for lane in lanes]
            if still is not None and seen[0][1] == hindrance.NONE:
                self._still[lanes[0].spec.tp] = still
            else:
                self._still.pop(lanes[0].spec.tp, None)
            figures = tuple(_figures(lane, hindered) for lane, hindered in seen)
            if last or self._told.get(lanes[0].spec.tp) != figures:
                self._told[lanes[0].spec.tp] = figures
                changed.append(seen)
        report = Report(
            lanes=[partition_report(_of_partition(seen)) for seen in changed],
            trouble=[str(b.trouble) for b in (self._source.brokers, self._target.brokers) if b.trouble],
            final=last and all(lane.acked == lane.written for lane in self._lanes),
            latency=self._target.latencies.told(),
            caps=self._source.budget.told(),
            sizes=asdict(sizes.decided(self._target.pace, self._lanes)),
        )
        if not self._link.tell(report, wait_s=LAST_S if last else 0.0):
            self._told.clear()  # nobody heard it: say everything again
            self._still.clear()
            return
        self._target.latencies.heard()
        for lane, _ in (one for seen in changed for one in seen):
            lane.latency.clear()
            lane.age.clear()


def _still(lane: Lane) -> Still | None:
    """What tells that a lane stands where it stood; None: something waits, or is in its way."""
    if lane.state is not State.FLOWING or lane.waiting or lane.in_flight or lane.read_trouble or lane.spec.strands:
        return None
    if lane.fetch_offset < lane.high_watermark:
        return None
    return lane.generation, lane.acked.next_offset, lane.acked.sequence, lane.high_watermark, lane.history


def _figures(lane: Lane, hindered: Hindrance) -> tuple[Any, ...]:
    """What makes a report worth while when it has changed."""
    c = lane.counts
    return (
        *(lane.acked.next_offset, lane.high_watermark, lane.state.value, lane.reason, c.resyncs, c.retries),
        *(hindered, lane.oldest_timestamp, lane.history, _wish(lane), *lane.unknown),
    )


def _wish(lane: Lane) -> str:
    """Heard only when nothing of the lane is on its way to the positions topic."""
    return lane.wish if lane.acked == lane.written else ""


def _of_partition(seen: Seen) -> dict[str, Any]:
    """One row of a source partition, however many lanes it has."""
    rows = [_of_lane(lane, hindered) for lane, hindered in seen]
    return together([lane for lane, _ in seen], rows) if seen[0][0].spec.strands else rows[0]


def _of_lane(lane: Lane, hindered: Hindrance) -> dict[str, Any]:
    return {
        "topic": lane.spec.tp.topic,
        "partition": lane.spec.tp.partition,
        "next": lane.acked.next_offset,
        "sequence": lane.acked.sequence,
        "end": lane.high_watermark,
        "state": lane.state.value,
        "reason": lane.reason,
        "fix": lane.fix,
        "wish": _wish(lane),
        "producer": lane.acked.producer_id,
        "timestamp": lane.last_timestamp,
        "target": lane.acked.target,
        "run": lane.map.last,
        "map": lane.map.written_last,  # of what the offset map's topic has
        "why": hindered.why,
        "blind": hindered.blind,
        "vague": hindered.vague,
        "history": lane.history,
        "oldest": lane.oldest_timestamp,
        "latency": lane.latency.told(),
        "age": lane.age.told(),
        "unknown": [list(target) for target in lane.unknown],
        **lane.counts.told(),
    }

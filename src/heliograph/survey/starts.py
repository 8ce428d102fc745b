"""Where a partition begins: at its position if it has one, otherwise where the file says, as an offset.

The one place that decides it: the coordinator asks before it claims (rule G: the claim fixes the start), `plan` and
`offsets` ask to say what would be. Reads the source, writes nothing.

Invariants:
  a. A start never moves a partition that has a position. What begins anew has one too, which `survey.amends`
     gave it.
  b. An offset that the file gives is meant for the log that was there when it was written: one behind the log's end is
     refused with the numbers.
  c. A partition is never begun past records in silence: what retention took before the offset is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from heliograph import policy
from heliograph.errors import BrokerError, WireError
from heliograph.mirror.positions import Position
from heliograph.types import Flow, StartPoint, TopicPartition
from heliograph.wire import Client


@dataclass(frozen=True, slots=True)
class Start:
    offset: int
    point: StartPoint | None = None  # None: it has a position, which is where it goes on
    note: str = ""  # what somebody should hear about it


@dataclass(frozen=True, slots=True)
class NoStart:
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a source partition's log: its first offset, and the one behind its last."""

    start: int
    end: int


def beginnings(
    flow: Flow, source: Client, tps: Collection[TopicPartition], known: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, Start | NoStart]:
    """Where each of these would go on, or begin."""
    found: dict[TopicPartition, Start | NoStart] = {tp: Start(known[tp].next_offset) for tp in tps if tp in known}
    return found | resolve(source, {tp: policy.start_of(flow, tp) for tp in tps if tp not in found})


def created_again(position: Position | None, topic_id: UUID | None) -> bool:
    """Whether the source's topic is another one than when the position was written."""
    return bool(position and position.topic_id and topic_id and position.topic_id != topic_id)


def resolve(source: Client, points: Mapping[TopicPartition, StartPoint]) -> dict[TopicPartition, Start | NoStart]:
    """Starts as offsets."""
    found: dict[TopicPartition, Start | NoStart] = {}
    asked: dict[Literal["earliest", "latest"] | int, list[TopicPartition]] = {}
    exact = []
    for tp, point in points.items():
        if point.at == "offset":
            exact.append(tp)
        else:
            asked.setdefault(point.value if point.at == "timestamp" else point.at, []).append(tp)
    late: dict[TopicPartition, StartPoint] = {}
    for at, tps in asked.items():
        for tp, offset in source.list_offsets(tps, at=at).items():
            if isinstance(offset, WireError):
                found[tp] = _unknown(tp, offset)
            elif offset < 0:
                late[tp] = points[tp]
            else:
                found[tp] = Start(offset, points[tp])
    for tp, limits in bounds(source, [*exact, *late]).items():
        found[tp] = limits if isinstance(limits, NoStart) else _within(tp, points[tp], limits)
    return found


def bounds(source: Client, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds | NoStart]:
    tps = list(tps)
    firsts = source.list_offsets(tps, at="earliest") if tps else {}
    ends = source.list_offsets(tps, at="latest") if tps else {}
    found: dict[TopicPartition, Bounds | NoStart] = {}
    for tp in tps:
        first, end = firsts[tp], ends[tp]
        if isinstance(first, BrokerError) or isinstance(end, BrokerError):
            found[tp] = _unknown(tp, first if isinstance(first, BrokerError) else end)
        else:
            found[tp] = Bounds(first, end)
    return found


def _within(tp: TopicPartition, point: StartPoint, limits: Bounds) -> Start | NoStart:
    if point.at == "timestamp":
        return Start(limits.end, point, f"no record is as young as {point}: it begins at the end")
    if point.value > limits.end:
        reason = f"start: {point} of {tp} is behind its end ({limits.start} to {limits.end} are there)"
        return NoStart(reason, "correct `start`, or wait until the source has got there")
    if point.value < limits.start:
        gone = limits.start - point.value
        return Start(limits.start, point, f"{point} is gone: retention took {gone:,} offsets before {limits.start}")
    return Start(point.value, point)


def _unknown(tp: TopicPartition, error: object) -> NoStart:
    return NoStart(f"where {tp} begins cannot be asked: {error}", "")

"""Positions changed by hand: what it would mean, in numbers, and the doing of it.

A changed position is written without a producer id, as MM2 writes its own: by invariant a of `mirror.positions` that
begins a new era, in which whatever was claimed before is void. The next start claims a new producer id at that offset
(rule G), the broker's ledger counts from zero for it, and the offset map forgets what comes again
(`state.offsets.begin`). So nothing here touches sequences, and MM2 would go on from the same offset.

Invariants:
  a. What would not change is not written: a new era at the same offset would forget which records behind it are on the
     target already (rule D), and they would come twice.
  b. An offset outside of the source's log is refused, with the numbers.
  c. Only while no process runs the flow: `flow.presence.require_free`, asked before the writing and after it. What a
     task that slept writes later is void (`state.fence`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heliograph import policy
from heliograph.errors import ConfigError
from heliograph.mirror.positions import Position
from heliograph.review.standing import Standing
from heliograph.state.positions import PositionsLog
from heliograph.survey.starts import Bounds, NoStart, Start, beginnings, resolve
from heliograph.types import Flow, StartPoint, TopicPartition
from heliograph.wire import Client

Selection = tuple[str, int | None]  # topics, as a name or an expression; a partition, or all


@dataclass(frozen=True, slots=True)
class Shift:
    """One partition's change. Records are counted as offsets: holes in the source make them fewer."""

    standing: Standing
    to: int  # where it would go on
    again: int = 0  # records that are on the target and come again
    never: int = 0  # records of the source that are passed over
    forget: bool = False  # no position is written: the file's `start` decides when the flow starts
    note: str = ""

    @property
    def tp(self) -> TopicPartition:
        return self.standing.tp

    @property
    def changes(self) -> bool:
        position = self.standing.position
        return position is not None if self.forget else position is None or position.next_offset != self.to


def select(standings: Sequence[Standing], selections: Sequence[Selection]) -> list[Standing]:
    """Those that any selection names; all, if there is none. ConfigError names each that names nothing."""
    if not selections:
        return list(standings)
    found: dict[TopicPartition, Standing] = {}
    missed = []
    for topics, partition in selections:
        named = policy.Filter((topics,))
        fit = [s for s in standings if named.accepts(s.tp.topic) and partition in (None, s.tp.partition)]
        if not fit:
            missed.append(topics if partition is None else f"{topics}:{partition}")
        found |= {standing.tp: standing for standing in fit}
    if missed:
        raise ConfigError(
            [f"{one}: the flow neither copies such a partition nor has a position of one" for one in missed]
        )
    return [found[tp] for tp in sorted(found)]


def moved(source: Client, standings: Iterable[Standing], point: StartPoint) -> list[Shift]:
    """Each of these to this point. ConfigError with all that cannot be."""
    standings = list(standings)
    there = {one.tp: point for one in standings if one.source is not None}
    places = resolve(source, there)
    shifts, problems = [], []
    for one in standings:
        place = places.get(one.tp)
        if one.source is None or place is None or isinstance(place, NoStart):
            problems.append(f"{one.tp}: {place.reason if isinstance(place, NoStart) else one.trouble}")
        elif point.at == "offset" and place.offset != point.value:
            problems.append(
                f"{one.tp}: offset {point.value} is gone: the source has {one.source.start} to {one.source.end}"
            )
        else:
            shifts.append(shift(one, one.source, place))
    if problems:
        raise ConfigError(problems)
    return shifts


def forgotten(flow: Flow, source: Client, standings: Iterable[Standing]) -> list[Shift]:
    """Each of these without a position, so that the flow begins where its file says."""
    standings = list(standings)
    places = beginnings(flow, source, [one.tp for one in standings if one.source is not None], {})
    shifts, problems = [], []
    for one in standings:
        place = places.get(one.tp)
        if one.source is None:
            shifts.append(Shift(one, 0, forget=True, note="its source is not there: only its position is removed"))
        elif isinstance(place, Start):
            shifts.append(shift(one, one.source, place, forget=True))
        else:
            problems.append(f"{one.tp}: {place.reason if place else one.trouble}")
    if problems:
        raise ConfigError(problems)
    return shifts


def shift(one: Standing, source: Bounds, place: Start, *, forget: bool = False) -> Shift:
    again, never = consequences(one.position, one.beyond, source, place.offset)
    notes = [place.note] if place.note else []
    if one.position is None and one.target_end:
        notes.append(f"no position says which records its copy, which ends at {one.target_end}, holds")
    if one.position is not None and one.target_end is None:
        notes.append("its copy is not there")
    return Shift(one, place.offset, again, never, forget, "; ".join(notes))


def consequences(position: Position | None, beyond: int, source: Bounds, to: int) -> tuple[int, int]:
    """Records that come again, and records that never come, when a partition goes on at `to`. `beyond`: records that
    the target holds behind the position. Nobody knows of records copied before there was a position."""
    if position is None:
        return 0, max(to - source.start, 0)
    covered = max(position.next_offset + beyond, source.start)
    return max(min(covered, source.end) - to, 0), max(to - covered, 0)


def write(positions: PositionsLog, shifts: Iterable[Shift]) -> int:
    """Those that change anything (invariant a); how many."""
    changed = {one.tp: None if one.forget else Position(one.to) for one in shifts if one.changes}
    if changed:
        positions.ensure()
        positions.set_by_hand(changed)
    return len(changed)

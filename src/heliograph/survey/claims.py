"""Partitions that nobody has claimed yet: where each begins, and its producer id (rule G); or why it may not begin.

`survey.starts` says where, this asks both clusters and claims. What may not begin is parked until the next plan looks
again: it is not copied and not looked at for progress, and all others go on.

Used by the thread that plans; `started` may be asked by any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

import structlog

from heliograph.errors import WireError
from heliograph.health.status import ParkedPartition
from heliograph.mirror.offsetmap import Subject
from heliograph.mirror.positions import Position
from heliograph.state.offsets import Claimed, OffsetMap
from heliograph.state.positions import PositionsLog, Wanted
from heliograph.survey.starts import NoStart, beginnings
from heliograph.survey.topics import Route, Survey
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client

log = structlog.get_logger()


class Claims:
    def __init__(self, flow: Flow, source: Client, target: Client, positions: PositionsLog, offsets: OffsetMap) -> None:
        self._flow = flow
        self._source, self._target = source, target
        self._positions, self._offsets = positions, offsets
        self._unstarted: dict[TopicPartition, ParkedPartition] = {}  # replaced, never changed

    def change(self, flow: Flow) -> None:
        """Where partitions begin that nobody has claimed yet may be another place now."""
        self._flow = flow

    def claim(self, routes: Iterable[Route]) -> bool:
        """Start where MM2 stopped, if it was here; otherwise where the file says, which the claim then fixes. Whether
        other partitions than before may not begin."""
        before = self._unstarted
        self._adopt(routes)
        self._unstarted = self._claim(self._unclaimed(routes))
        self._extend([r for r in routes if r.stages])
        if self._unstarted == before:
            return False
        for tp, parked in self._unstarted.items():
            log.warning("no start yet", flow=self._flow.name, partition=str(tp), why=parked.reason, fix=parked.fix)
        return True

    def started(self, survey: Survey) -> Survey:
        """With those that may not begin among the parked."""
        unstarted = self._unstarted
        if not unstarted:
            return survey
        routes = tuple(r for r in survey.routes if r.tp not in unstarted)
        return replace(survey, routes=routes, parked=(*survey.parked, *(one for _, one in sorted(unstarted.items()))))

    def _unclaimed(self, routes: Iterable[Route]) -> list[Route]:
        known = self._positions.known
        return [r for r in routes if (p := known.get(r.tp)) is None or not p.claimed]

    def _claim(self, routes: list[Route]) -> dict[TopicPartition, ParkedPartition]:
        """Those that may not begin."""
        if not routes:
            return {}
        remotes = list(dict.fromkeys(remote for r in routes for remote in r.remotes))
        ends = self._target.list_offsets(remotes, at="latest")
        # After those of the target: what lies there lies before these ends in the source.
        source_ends = self._source.list_offsets([r.tp for r in routes], at="latest")
        self._doubt(routes, ends, source_ends)
        unclaimed = self._unclaimed(routes)
        begins = beginnings(self._flow, self._source, [r.tp for r in unclaimed], self._positions.known)
        wanted: dict[TopicPartition, Wanted] = {}
        unstarted: dict[TopicPartition, ParkedPartition] = {}
        for route in unclaimed:
            begin = self._missing(route) or begins[route.tp]
            theirs = [ends[remote] for remote in route.remotes]
            there = tuple(end for end in theirs if not isinstance(end, WireError))
            if isinstance(begin, NoStart) or len(there) < len(theirs):
                unasked = next((end for end in theirs if isinstance(end, WireError)), "")
                no = begin if isinstance(begin, NoStart) else NoStart(str(unasked), "")
                unstarted[route.tp] = ParkedPartition(*route.tp, no.reason, no.fix)
                continue
            if begin.note:
                log.warning("start", flow=self._flow.name, partition=str(route.tp), offset=begin.offset, why=begin.note)
            wanted[route.tp] = self._wanted(route, begin.offset, there)
        translated = [r for r in unclaimed if r.tp in wanted and not r.stages]  # no group's offsets are of the others
        copies, new = self._copy_ids(translated), wanted.keys() - self._positions.known.keys()
        if translated:
            self._offsets.catch_up()
        self._positions.claim(wanted, lambda claims: self._generations(translated, copies, claims, new, source_ends))
        return unstarted

    def _copy_ids(self, routes: list[Route]) -> dict[str, UUID | None]:
        """Of the remote topics."""
        names = list(dict.fromkeys(route.remote.topic for route in routes))
        topics = self._target.metadata(names).topics if names else {}
        return {name: topics[name].id if name in topics else None for name in names}

    def _generations(
        self,
        routes: Iterable[Route],
        copies: Mapping[str, UUID | None],
        claims: Mapping[TopicPartition, Position],
        new: set[TopicPartition],
        source_ends: Mapping[TopicPartition, int | WireError],
    ) -> None:
        """The offset map's side of claims that are about to be written: first, so that a reader that knows of a claim
        knows which older generations count with it. `new`: there was no position before."""
        begun = [
            Claimed(
                subject,
                part.next_offset,
                part.target,
                copies[route.remote.topic],
                route.tp in new and bool(route.strands),
                end if isinstance(end := source_ends[route.tp], int) else -1,
            )
            for route in routes
            for subject, part in _subjects(route, claims[route.tp].strands or (claims[route.tp],))
        ]
        self._written(partial(self._offsets.begin, begun))

    def _adopt(self, routes: Iterable[Route]) -> None:
        """Claims of 0.1 get their place in the offset map before a task of ours writes positions under them."""
        known = self._positions.known
        old = [
            route
            for route in routes
            if not route.stages and (p := known.get(route.tp)) is not None and p.claimed and p.run is None
        ]
        if not old:
            return
        self._offsets.catch_up()
        copies = self._copy_ids(old)
        parts = [
            (subject, part, copies[route.remote.topic])
            for route in old
            for subject, part in _subjects(route, known[route.tp].strands or (known[route.tp],))
        ]
        self._written(partial(self._offsets.adopt, parts))

    def _written(self, write: Callable[[], None]) -> None:
        """Copying does not wait for the map. Without these records its older generations do not count."""
        try:
            write()
        except WireError as error:
            log.warning(
                "offset map not written: groups behind new claims are not translated",
                flow=self._flow.name,
                topic=self._offsets.topic,
                why=str(error),
                fix=f"in {self._flow.target.alias}, allow this principal WRITE on this topic",
            )

    def _extend(self, routes: list[Route]) -> None:
        """Targets of partitions that were begun without them. One whose log cannot be asked for its end waits."""
        fresh: dict[TopicPartition, list[TopicPartition]] = {}
        for route in routes:
            position = self._positions.known.get(route.tp)
            if position is not None and position.claimed and position.targets:
                fresh[route.tp] = [one for one in route.strands if one not in position.targets]
        remotes = list(dict.fromkeys(one for some in fresh.values() for one in some))
        ends = self._target.list_offsets(remotes, at="latest") if remotes else {}
        self._positions.extend(
            {
                tp: {one: int(end) for one in some if isinstance(end := ends[one], int)}
                for tp, some in fresh.items()
                if some
            }
        )

    def _wanted(self, route: Route, offset: int, ends: tuple[int, ...]) -> Wanted:
        position = self._positions.known.get(route.tp)
        if position is not None and route.stages and position.targets:
            return _of_era(route, position, offset, ends)
        targets = route.strands if route.stages else ()
        return Wanted(self._starts(route, offset), route.topic_id, ends, bool(route.strands), targets)

    def _starts(self, route: Route, offset: int) -> tuple[int, ...]:
        """For each remote partition: the same, unless a new era says where each went on."""
        position = self._positions.known.get(route.tp)
        if position is not None and route.strands and len(position.strands) == len(route.strands):
            return tuple(max(one.next_offset, offset) for one in position.strands)
        return (offset,) * len(route.remotes)

    def _missing(self, route: Route) -> NoStart | None:
        """Targets of a new era that begin anew and have no place now: a claim without them would forget where they
        stood."""
        position = self._positions.known.get(route.tp)
        if position is None or not route.stages or not position.targets:
            return None
        anew = {target for target, one in zip(position.targets, position.strands, strict=True) if not one.claimed}
        missing = sorted(anew - set(route.strands))
        if not missing:
            return None
        named = ", ".join(map(str, missing[:5])) + (" …" if len(missing) > 5 else "")
        reason = f"records of {route.tp} went on to {named} too, and there is no place for these now"
        return NoStart(reason, "make these topics as they were; what else is in their way stands beside this")

    def _doubt(
        self,
        routes: list[Route],
        remote_ends: Mapping[TopicPartition, int | WireError],
        ends: Mapping[TopicPartition, int | WireError],
    ) -> None:
        """Positions that others wrote, and that no mirror can have reached."""
        known = {r: p for r in routes if (p := self._positions.known.get(r.tp)) is not None}
        beyond = {
            r.tp: (end, all(remote_ends[remote] == 0 for remote in r.remotes))
            for r, position in known.items()
            if isinstance(end := ends[r.tp], int) and position.next_offset > end
        }
        if beyond:
            self._positions.doubt(beyond)


def _subjects(route: Route, parts: Sequence[Position]) -> list[tuple[Subject, Position]]:
    """Of the offset map: one, or one for each strand, with its part of the position. None if the position has another
    shape than the route."""
    strands = [remote.partition for remote in route.strands] or [-1]
    if len(strands) != len(parts):
        return []
    places = zip(strands, parts, strict=True)
    return [(Subject(route.tp, route.topic_id, strand, part.producer_id), part) for strand, part in places]


def _of_era(route: Route, position: Position, offset: int, ends: tuple[int, ...]) -> Wanted:
    """A new era says of its targets where each goes on, whatever the route is now; those that it leaves alone stay as
    they are, also without a place (invariant h of positions). What it does not name begins where the anchor stood,
    which is before the first of its records."""
    stood = dict(zip(position.targets, position.strands, strict=True))
    end_of = dict(zip(route.strands, ends, strict=True))
    targets = tuple(dict.fromkeys((*position.targets, *route.strands)))
    starts = tuple(max(stood.get(one, position.strands[0]).next_offset, offset) for one in targets)
    left = {target: one for target, one in stood.items() if one.claimed}
    places = tuple(end_of.get(one, -1) for one in targets)
    return Wanted(starts, route.topic_id, places, True, targets, tuple(map(left.get, targets)))

"""Positions that are no longer true, and what the coordinator does about them: the source's topic was made anew or cut,
the target lost what it had acknowledged.

Tasks notice some of it and wish for it (`mirror.incident_handler`); a topic with another id and a remote topic that is
gone are noticed here. What is done is the flow's policy: the partition stands still (`stop`), or a new era begins for
it, at the source's beginning (`restart`) or where it stood (`skip`), under a producer id of its own.

Invariants:
  a. The incident is written before the position is given up (invariant a of `mirror.incidents`).
  b. A remote topic that is gone is made anew only when nobody copies to it any more: a broker that knows nothing of a
     producer id takes any sequence, and what a task of the old era still sends would stand in front of everything.
  c. A position is given up when nobody writes it any more: one of the old era between a new era's first record
     and its claim would be taken for that claim.
  d. A wish is heard only if it is about the era that is known: tasks that end go on wishing for a while.
  e. What one target of several lost is that strand's affair: the others keep their producer ids and their places
     (invariant h of `mirror.positions`), so none of their records is repeated or passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol
from uuid import UUID

import structlog

from heliograph.errors import HeliographError
from heliograph.health.status import ParkedPartition
from heliograph.mirror.incidents import Incident, Kind
from heliograph.mirror.offsetmap import Subject
from heliograph.mirror.positions import Position, join, new_era
from heliograph.state.positions import PositionsLog
from heliograph.survey.starts import created_again
from heliograph.survey.topics import Route, Survey, Trouble
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client, NewTopic, TopicMeta
from heliograph.wire.codes import TOPIC_ALREADY_EXISTS

log = structlog.get_logger()


class Written(Protocol):
    """What is needed of `Incidents`."""

    def told(self, subject: Subject, at: int) -> frozenset[tuple[str, int, str]]: ...

    def write(self, incident: Incident) -> None: ...


class Wish(NamedTuple):
    """How a position is to begin anew: all of it, or the strands of these targets (invariant e)."""

    policy: str  # restart or skip
    targets: frozenset[TopicPartition] = frozenset()


class Amends:
    def __init__(
        self,
        flow: Flow,
        source: Client,
        target: Client,
        positions: PositionsLog,
        incidents: Written,
        copied: Callable[[TopicPartition], bool],
        let_end: Callable[[], None],
        reached: Callable[[TopicPartition], int],
    ) -> None:
        """`copied` says whether some task may still append to this partition's copy, `let_end` has all tasks end,
        `reached` says how far tasks said they came: a position is written a moment later."""
        self._flow, self._source, self._target = flow, source, target
        self._positions, self._incidents = positions, incidents
        self._copied, self._let_end, self._reached = copied, let_end, reached
        self._standing: set[tuple[Kind, TopicPartition]] = set()  # written down by us, and lasting
        self._wishes: dict[TopicPartition, Wish] = {}
        self._lock = threading.Lock()

    def change(self, flow: Flow) -> None:
        """Other policies, say; for what is noticed from now on."""
        self._flow = flow

    # ---------------------------------------------------------------- noticed by tasks

    def wished(
        self, tp: TopicPartition, wish: str, producer_id: int, strands: Mapping[TopicPartition, int] | None = None
    ) -> bool:
        """Whether this is news (invariant d): then the plan must change. `strands`: of some targets alone, each with
        its producer id."""
        known = self._positions.known.get(tp)
        if known is None or known.producer_id != producer_id:
            return False
        mine = frozenset(one for one, part in known.parts(tp) if strands and strands.get(one) == part.producer_id)
        if strands and not mine:
            return False
        with self._lock:
            before = self._wishes.get(tp)
            if before is not None and before.policy == wish and before.targets and mine:
                mine |= before.targets
            self._wishes[tp] = Wish(wish, mine)
            return self._wishes[tp] != before

    # ---------------------------------------------------------------- noticed here

    def judge(self, survey: Survey) -> Survey:
        """Without the partitions whose topic was made anew, if they are to stand still."""
        if self._flow.on.recreated != "stop":
            return survey
        known = self._positions.known
        routes: list[Route] = []
        parked: list[ParkedPartition] = []
        for route in survey.routes:
            position = known.get(route.tp)
            if position is None or not created_again(position, route.topic_id):
                routes.append(route)
                continue
            incident = _recreated(route, position, self._at(route.tp, position), "stop")
            self._say(incident)
            fix = "set on.source.recreated = restart to copy it anew, or remove its record from the positions topic"
            parked.append(ParkedPartition(*route.tp, incident.why, fix))
        return replace(survey, routes=tuple(routes), parked=(*survey.parked, *parked))

    def withhold(self, missing: Mapping[str, TopicMeta], remote_of: Mapping[str, str]) -> dict[str, Trouble]:
        """Of source topics whose remote topic is not there: those that had one, and why it is not made now."""
        gone = {tp for kind, tp in self._standing if kind is Kind.TARGET_LOST and tp.topic not in missing}
        self._standing -= {(Kind.TARGET_LOST, tp) for tp in gone}
        if not missing:
            return {}
        known, policy = self._positions.catch_up(), self._flow.on.target_lost
        withheld: dict[str, Trouble] = {}
        for name, topic in missing.items():
            used = {tp: p for tp, p in known.items() if tp.topic == name and self._used(tp, p, topic.id)}
            if not used:
                continue
            remote = remote_of[name]
            if not self._is_gone(remote):
                withheld[name] = Trouble(f"remote topic {remote} is not to be seen yet", "")
                continue
            for tp, position in used.items():
                at = self._at(tp, position)
                self._say(_deleted(tp, position, at, TopicPartition(remote, tp.partition), policy))
            if policy == "stop":
                why = f"{remote} was deleted from {self._flow.target.alias}: {_reached(used)} had been copied to it"
                fix = f"set on.target.lost = restart to copy {name} anew, or skip to go on where it stood"
                withheld[name] = Trouble(why, fix)
            elif any(map(self._copied, used)):
                withheld[name] = Trouble(f"{remote} was deleted: it is made anew when the last task has left it", "")
            else:
                self._begin_anew(dict.fromkeys(used, Wish(policy)))
        return withheld

    def withhold_targets(self, missing: Collection[str]) -> dict[str, Trouble]:
        """Of topics that records are put back into and that are not there: those that had some, and why they are not
        made now. One that may be made begins anew with the next plan, for its strands alone (invariants c and e)."""
        self._standing = {one for one in self._standing if one[0] is not Kind.TARGET_LOST or one[1].topic in missing}
        known, policy = self._positions.catch_up() if missing else {}, self._flow.on.target_lost
        withheld: dict[str, Trouble] = {}
        for remote in sorted(missing):
            used = _used_strands(known, remote)
            if used and not self._is_gone(remote):
                withheld[remote] = Trouble(f"topic {remote} is not to be seen yet", "")
                continue
            for tp, target, strand in used:
                self._say(_deleted(tp, strand, strand.next_offset, target, policy), target)
            if used and policy == "stop":
                whence = ", ".join(f"{tp} up to offset {strand.next_offset}" for tp, _, strand in used[:5])
                why = f"{remote} was deleted from {self._flow.target.alias}: records of {whence} had been put into it"
                fix = f"set on.target.lost = restart to put them into {remote} anew, or skip to go on where it stood"
                withheld[remote] = Trouble(why, fix)
            elif any(self._copied(target) for _, target, _ in used):
                withheld[remote] = Trouble(f"{remote} was deleted: it is made anew when the last task has left it", "")
            for tp, target, strand in used if remote not in withheld else ():
                self.wished(tp, policy, known[tp].producer_id, {target: strand.producer_id})
        return withheld

    def settle(self, routes: Iterable[Route]) -> None:
        """Before a plan is made: fulfil wishes, and let topics that were made anew begin at their start."""
        known = self._positions.known
        anew: dict[TopicPartition, Wish] = {}
        for route in routes:
            position = known.get(route.tp)
            if position is not None and created_again(position, route.topic_id):
                self._say(_recreated(route, position, self._at(route.tp, position), "restart"))
                anew[route.tp] = Wish("restart")
        with self._lock:
            mine = {route.tp for route in routes}
            anew |= {tp: wish for tp, wish in self._wishes.items() if tp in mine and tp not in anew}
        if anew:
            self._let_end()  # invariant c
            self._begin_anew(anew)
        with self._lock:
            for tp in anew:
                self._wishes.pop(tp, None)
                self._standing.discard((Kind.RECREATED, tp))

    # ---------------------------------------------------------------- doing

    def _begin_anew(self, wishes: Mapping[TopicPartition, Wish]) -> None:
        """A new era of the position: one without a producer id, which the next claim takes up."""
        anew = [tp for tp, wish in wishes.items() if wish.policy == "restart"]
        starts = self._source.list_offsets(anew, at="earliest") if anew else {}
        eras: dict[TopicPartition, Position] = {}
        for tp, wish in wishes.items():
            start = starts.get(tp, -1)
            if isinstance(start, HeliographError):
                raise start
            eras[tp] = _era(self._positions.known[tp], wish, start)
        said = {str(tp): position.next_offset for tp, position in list(eras.items())[:10]}
        log.warning("begun anew", flow=self._flow.name, partitions=len(eras), at=said)
        self._positions.write(eras)
        self._positions.catch_up()

    def _is_gone(self, remote: str) -> bool:
        """Not only unseen by the broker that was asked: the controller, which knows, would let it be made. That a topic
        was deleted is not said lightly."""
        spec = NewTopic(remote, 1, -1, {})
        error = self._target.create_topics([spec], validate_only=True)[remote]
        return error is None or error.code != TOPIC_ALREADY_EXISTS

    def _used(self, tp: TopicPartition, position: Position, topic_id: UUID | None) -> bool:
        """Whether something of the topic, as it is now, was copied under this position, or lay on the target already
        when it was claimed."""
        if not position.claimed or created_again(position, topic_id):
            return False
        lay = any(one.target > 0 for one in (position, *position.strands))
        return position.sequence > 0 or lay or self._reached(tp) > position.next_offset

    def _at(self, tp: TopicPartition, position: Position) -> int:
        return max(position.next_offset, self._reached(tp))

    def _say(self, incident: Incident, about: TopicPartition | None = None) -> None:
        """`about`: what it stands for, if that is not the source partition."""
        about = about or incident.tp
        told = self._incidents.told(incident.subject, incident.first)
        known = (str(incident.kind), incident.first, incident.policy) in told
        if not known and (incident.kind, about) not in self._standing:
            log.warning("incident", flow=self._flow.name, what=incident.words)
            self._incidents.write(incident)
        self._standing.add((incident.kind, about))


def _used_strands(
    known: Mapping[TopicPartition, Position], remote: str
) -> list[tuple[TopicPartition, TopicPartition, Position]]:
    """(Shared partition, target, strand): those that records were put back by into this topic, or that lay there when
    the strand was claimed."""
    return [
        (tp, target, strand)
        for tp, position in sorted(known.items())
        for target, strand in list(zip(position.targets, position.strands, strict=False))[1:]
        if target.topic == remote and strand.claimed and (strand.sequence > 0 or strand.target > 0)
    ]


def _era(position: Position, wish: Wish, start: int) -> Position:
    """A new one: at `start`, or where it stood, each strand where it stood. Targets stay what they are, so that the
    order of a partition's records holds."""
    goes_on = wish.policy != "restart"
    if not position.targets:
        strands = tuple(Position(one.next_offset) for one in position.strands) if goes_on else ()
        return join(strands) if strands else Position(position.next_offset if goes_on else start)
    parts = [
        one if wish.targets and target not in wish.targets else Position(one.next_offset if goes_on else start)
        for target, one in zip(position.targets, position.strands, strict=True)
    ]
    return replace(new_era(parts, position.targets), topic_id=position.topic_id if wish.targets else None)


def _reached(used: Mapping[TopicPartition, Position]) -> str:
    shown = [f"{tp} up to offset {position.next_offset}" for tp, position in sorted(used.items())[:5]]
    return ", ".join([*shown, *(["…"] if len(used) > 5 else [])])


def _recreated(route: Route, position: Position, at: int, policy: str) -> Incident:
    why = (
        f"the source topic was deleted and made anew (its id was {position.topic_id}, it is {route.topic_id}): of the "
        f"old one everything before offset {at} had been copied"
    )
    return Incident(Kind.RECREATED, route.tp, position.topic_id, at, at, policy, why, route.remote, _now_ms())


def _deleted(tp: TopicPartition, position: Position, at: int, remote: TopicPartition, policy: str) -> Incident:
    why = f"{remote.topic} was deleted; everything before source offset {at} had been copied to it"
    target = (0, position.target)
    return Incident(Kind.TARGET_LOST, tp, position.topic_id, at, at, policy, why, remote, _now_ms(), (), target)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""The copy looked at after `run --until-current`, at what is durable only.

What is held against each other, for every partition:
  a. its position with the end it had to reach;
  b. how many records the position counts with the last sequence that the target's leader holds of its producer id,
     which is the broker's own count of what it stored (rule B);
  c. the offset behind the last record, as the position has it, with where the target's log really ends;
  d. what the source has and the target refused with what was sent again since: a record that is in quarantine, or was
     skipped, is not in the copy, whatever the policy;
  e. if asked to, every record with its copy (`review.comparison`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from heliograph import policy
from heliograph.errors import BrokerError, VersionUnsupported
from heliograph.mirror.annals import IncidentLog
from heliograph.mirror.incidents import Incident
from heliograph.mirror.ledger import advance
from heliograph.mirror.positions import Position
from heliograph.mirror.target_log import last_sequence
from heliograph.review.comparison import compare, stretch
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.state.quarantine import Quarantine
from heliograph.survey.starts import Bounds, NoStart, bounds
from heliograph.types import STORAGE_FACTOR, Flow, TopicPartition
from heliograph.wire import Client


@dataclass(frozen=True, slots=True)
class Checked:
    """One partition after the copying. `records`: appended since its position was claimed."""

    tp: TopicPartition
    end: int
    records: int
    problem: str = ""
    compared: int | None = None  # records that were read on both sides and are alike
    passed_over: frozenset[int] = frozenset()  # source offsets that the target refused, sent again or not


def audit(flow: Flow, ends: Mapping[TopicPartition, int]) -> list[Checked]:
    if not ends:
        return []
    with Client(flow.target) as target:
        positions = PositionsLog(target, flow)
        known = positions.catch_up() if positions.find() else {}
        remotes = {tp: TopicPartition(policy.remote_topic(flow, tp.topic), tp.partition) for tp in ends if tp in known}
        parts = {tp: known[tp].parts(remote) for tp, remote in remotes.items()}
        everywhere = list(dict.fromkeys(remote for some in parts.values() for remote, _ in some))
        log_ends = target.list_offsets(everywhere, at="latest") if everywhere else {}
        sequences = _sequences(target, [part for some in parts.values() for part in some])
        found = []
        for tp, end in sorted(ends.items()):
            position = known.get(tp)
            if position is None:
                found.append(Checked(tp, end, 0, "it has no position"))
                continue
            problems = {
                remote: verdict(part, end, sequences.get(part.producer_id), log_ends[remote])
                for remote, part in parts[tp]
            }
            wrong = next(((remote, problem) for remote, problem in problems.items() if problem), None)
            problem = "" if wrong is None else f"to {wrong[0]}: {wrong[1]}" if position.strands else wrong[1]
            found.append(Checked(tp, end, position.sequence, problem))
        return _with_refusals(flow, target, known, found)


def _with_refusals(
    flow: Flow, target: Client, known: Mapping[TopicPartition, Position], checks: Sequence[Checked]
) -> list[Checked]:
    refusals = _refusals(flow, target, known)
    if not refusals:
        return list(checks)
    with Client(flow.source) as source:
        logs = bounds(source, [one.tp for one in checks if one.tp in refusals])
    return [
        replace(one, passed_over=frozenset(refused.why), problem=one.problem or refused.problem(logs[one.tp], one.end))
        if (refused := refusals.get(one.tp)) is not None
        else one
        for one in checks
    ]


@dataclass(slots=True)
class Refusals:
    """Of one partition, under its producer id."""

    why: dict[int, str] = field(default_factory=dict)  # by source offset
    absent: set[int] = field(default_factory=set)  # not sent again

    def add(self, incident: Incident, kept: set[int]) -> None:
        for start, length in incident.offsets:
            for offset in range(start, start + length):
                self.why[offset] = incident.why
                if incident.policy != "quarantine" or offset in kept:
                    self.absent.add(offset)

    def problem(self, log: Bounds | NoStart, end: int) -> str:
        """Of those that the source still has."""
        first = log.start if isinstance(log, Bounds) else 0
        absent = sorted(offset for offset in self.absent if first <= offset < end)
        if not absent:
            return ""
        return (
            f"the target refused {len(absent):,} records, which are not in the copy, the first at source offset "
            f"{absent[0]}: {self.why[absent[0]]} (heliograph quarantine list)"
        )


def _refusals(flow: Flow, target: Client, known: Mapping[TopicPartition, Position]) -> dict[TopicPartition, Refusals]:
    alias = flow.source.alias
    log = IncidentLog(target, alias, policy.incidents_topic(alias), flow.factor(STORAGE_FACTOR))
    log.catch_up()
    incidents = [
        one
        for one in log.book.incidents
        if one.held and (p := known.get(one.tp)) and p.topic_id == one.topic_id and _counts(p, one.producer)
    ]
    kept: dict[TopicPartition, set[int]] = {}
    for one in Quarantine(target, flow).read() if incidents else ():
        kept.setdefault(one.place.tp, set()).add(one.place.offset)
    found: dict[TopicPartition, Refusals] = {}
    for incident in incidents:
        found.setdefault(incident.tp, Refusals()).add(incident, kept.get(incident.tp, set()))
    return found


def _counts(position: Position, producer_id: int) -> bool:
    """Whether the producer id is its own, or a strand's."""
    return producer_id in {position.producer_id, *(one.producer_id for one in position.strands)}


def compared(flow: Flow, checks: Sequence[Checked]) -> list[Checked]:
    """The same with every record that the offset map knows of compared with its copy, one partition after the other.
    What is wrong already stays as it is."""
    with Client(flow.source) as source, Client(flow.target) as target:
        positions, offsets = PositionsLog(target, flow), OffsetMap(target, flow)
        if not positions.find() or not offsets.find():
            return [replace(one, problem=one.problem or "there is no offset map to compare by") for one in checks]
        known = positions.catch_up()
        offsets.catch_up()  # after the positions: the map is never behind them
        return [one if one.problem else _compared(flow, one, known[one.tp], offsets, source, target) for one in checks]


def _compared(
    flow: Flow, one: Checked, position: Position, offsets: OffsetMap, source: Client, target: Client
) -> Checked:
    if position.strands:
        return one  # the map of a divided topic does not know each record: it is counted, not compared
    spans = offsets.spans(one.tp, position)
    remote = TopicPartition(policy.remote_topic(flow, one.tp.topic), one.tp.partition)
    limits = bounds(source, [one.tp])[one.tp], bounds(target, [remote])[remote]
    theirs, ours = limits
    if isinstance(theirs, NoStart) or isinstance(ours, NoStart):
        return replace(one, problem=next(limit.reason for limit in limits if isinstance(limit, NoStart)))
    if not spans:
        return replace(one, compared=0)
    settings = target.describe_topic_configs([remote.topic])[remote.topic]
    cleanup = settings.get("cleanup.policy") if isinstance(settings, dict) else None
    first = max(spans[0].source, theirs.start)
    found = compare(
        stretch(source, one.tp, first, one.end),
        stretch(target, remote, max(spans[0].target, ours.start), ours.end),
        spans,
        target_start=ours.start,
        compacted="compact" in ((cleanup.value if cleanup else "") or ""),
        passed_over=one.passed_over,
    )
    return replace(one, compared=found.same, problem=found.problem)


def verdict(position: Position, end: int, last_sequence: int | None, log_end: int | BrokerError) -> str:
    """What is wrong with a copy; "" if nothing is."""
    if position.next_offset < end:
        return f"its position is {position.next_offset}, not {end}"
    if last_sequence is not None and advance(last_sequence, 1) != position.sequence:
        return f"the target counts {advance(last_sequence, 1):,} records, the position {position.sequence:,}"
    if last_sequence is None and position.sequence:
        return f"the target knows nothing of the {position.sequence:,} records that the position counts"
    if isinstance(log_end, BrokerError):
        return f"its copy cannot be asked: {log_end}"
    if position.target > log_end:
        return f"its copy ends at {log_end}, although records up to {position.target} were acknowledged"
    return ""


def _sequences(target: Client, parts: Sequence[tuple[TopicPartition, Position]]) -> dict[int, int]:
    """Producer id -> its last sequence, by the leader of its remote partition; where that has forgotten it, by the
    log."""
    try:
        states = target.describe_producers(list(dict.fromkeys(remote for remote, _ in parts))) if parts else {}
    except VersionUnsupported:
        states = {}
    found = {}
    for remote, part in parts:
        state = states.get(remote)
        known = state.get(part.producer_id) if state is not None and not isinstance(state, BrokerError) else None
        last = known.last_sequence if known is not None else None
        if last is None and part.sequence:
            last = last_sequence(target, remote, part.producer_id)
        if last is not None and last >= 0:
            found[part.producer_id] = last
    return found

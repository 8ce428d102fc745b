"""What is there now, copied and checked: the end of `run --until-current`.

`Goal` holds the ends that the sources had when the flows were ready, and says what is left of the way there. `audit`
looks at the target afterwards, at what is durable only.

What an audit holds against each other, for every partition:
  a. its position with the end it had to reach;
  b. how many records the position counts with the last sequence that the target's leader holds of its producer id,
     which is the broker's own count of what it stored (rule B);
  c. the offset behind the last record, as the position has it, with where the target's log really ends;
  d. if asked to, every record with its copy (`flow.comparison`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from heliograph import policy
from heliograph.errors import BrokerError, VersionUnsupported
from heliograph.flow.comparison import compare, stretch
from heliograph.flow.offsets import OffsetMap
from heliograph.flow.positions import PositionsLog
from heliograph.flow.starts import NoStart, bounds
from heliograph.flow.status import FlowReport, ParkedPartition
from heliograph.mirror.ledger import advance
from heliograph.mirror.positions import Position
from heliograph.mirror.tail import last_sequence_in_log
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client

PATIENCE_S = 15.0  # a parked partition is tried again every 10 s: only one that stays parked is given up


@dataclass(frozen=True, slots=True)
class Left:
    """A partition, or with `partition` None a topic, that is not there yet. `hopeless`: somebody must act."""

    topic: str
    partition: int | None
    reason: str
    hopeless: bool

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"{where}: {self.reason}"


class Goal:
    """Of all flows of a process."""

    def __init__(self, flows: Iterable[Flow], reports: Sequence[FlowReport]) -> None:
        """The ends of what the flows copy now."""
        by_name = {report.status.name: report for report in reports}
        self.ends = {flow.name: _ends(flow, by_name[flow.name]) for flow in flows if flow.name in by_name}
        self._hopeless_since: float | None = None

    def left(self, reports: Sequence[FlowReport]) -> dict[str, list[Left]]:
        """Flow -> what it has not reached, and what it could not even begin."""
        return {report.status.name: self._left(report) for report in reports if report.status.name in self.ends}

    def _left(self, report: FlowReport) -> list[Left]:
        seen = {TopicPartition(one.topic, one.partition): one for one in report.partitions}
        parked = {(one.topic, one.partition): one for one in report.status.parked}
        found = []
        for tp, end in self.ends[report.status.name].items():
            one = seen.get(tp)
            if one is not None and one.position is not None and one.position >= end:
                parked.pop((tp.topic, tp.partition), None)
                continue
            why = parked.pop((tp.topic, tp.partition), None) or parked.get((tp.topic, None))
            if why is not None:
                found.append(Left(*tp, _words(why), True))
            elif one is None:
                found.append(Left(*tp, "it vanished: its source is not copied any more", True))
            else:
                at = "nowhere" if one.position is None else f"at {one.position}"
                found.append(Left(*tp, f"{at} of {end}" + (f", {one.reason}" if one.reason else ""), False))
        return found + [Left(one.topic, one.partition, _words(one), True) for one in parked.values()]

    def reached(self, left: Mapping[str, list[Left]], now: float) -> bool:
        """Whether there is nothing more to wait for: all is there, or what is not has been hopeless for a while."""
        everything = [one for some in left.values() for one in some]
        if any(not one.hopeless for one in everything):
            self._hopeless_since = None
            return False
        if not everything:
            return True
        self._hopeless_since = now if self._hopeless_since is None else self._hopeless_since
        return now - self._hopeless_since >= PATIENCE_S


def _ends(flow: Flow, report: FlowReport) -> dict[TopicPartition, int]:
    tps = [TopicPartition(one.topic, one.partition) for one in report.partitions]
    if not tps:
        return {}
    with Client(flow.source) as source:
        found = source.list_offsets(tps, at="latest", isolation=flow.isolation)
    wrong = next((end for end in found.values() if isinstance(end, BrokerError)), None)
    if wrong is not None:
        raise wrong  # without its end nobody could say when it is reached
    return {tp: end for tp, end in found.items() if isinstance(end, int)}


def _words(one: ParkedPartition) -> str:
    return one.reason + (f". {one.fix}" if one.fix else "")


# ---------------------------------------------------------------- afterwards


@dataclass(frozen=True, slots=True)
class Checked:
    """One partition after the copying. `records`: appended since its position was claimed."""

    tp: TopicPartition
    end: int
    records: int
    problem: str = ""
    compared: int | None = None  # records that were read on both sides and are alike


def audit(flow: Flow, ends: Mapping[TopicPartition, int]) -> list[Checked]:
    if not ends:
        return []
    with Client(flow.target) as target:
        positions = PositionsLog(target, flow)
        known = positions.catch_up() if positions.find() else {}
        remotes = {tp: TopicPartition(policy.remote_topic(flow, tp.topic), tp.partition) for tp in ends if tp in known}
        log_ends = target.list_offsets(list(remotes.values()), at="latest") if remotes else {}
        sequences = _sequences(target, {remotes[tp]: known[tp] for tp in remotes})
        found = []
        for tp, end in sorted(ends.items()):
            position = known.get(tp)
            if position is None:
                found.append(Checked(tp, end, 0, "it has no position"))
                continue
            remote = remotes[tp]
            problem = verdict(position, end, sequences.get(remote), log_ends[remote])
            found.append(Checked(tp, end, position.sequence, problem))
        return found


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


def _sequences(target: Client, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
    """Remote partition -> the last sequence of its producer id, by its leader; where that has forgotten it, by the
    log."""
    try:
        states = target.describe_producers(list(positions)) if positions else {}
    except VersionUnsupported:
        states = {}
    found = {}
    for remote, position in positions.items():
        state = states.get(remote)
        known = state.get(position.producer_id) if state is not None and not isinstance(state, BrokerError) else None
        last = known.last_sequence if known is not None else None
        if last is None and position.sequence:
            last = last_sequence_in_log(target, remote, position.producer_id)
        if last is not None and last >= 0:
            found[remote] = last
    return found

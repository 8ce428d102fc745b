"""What is there now is to be copied, and no more: the ends that `run --until-current` has to reach.

`Goal` holds the ends that the sources had when the flows were ready, and says what is left of the way there. Whether
the copy is good is looked at afterwards (`review.audit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliograph.errors import BrokerError
from heliograph.health.status import FlowReport, ParkedPartition
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
            elif one is not None and one.state in ("paused", "stopped"):
                found.append(Left(*tp, f"{one.reason}. heliograph resume lets it go on", True))
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

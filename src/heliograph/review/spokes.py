"""What is left of a spoke on its way: records in its shared topic that nobody has carried over or put back yet.

Answers for counting them from the clusters themselves, by positions that are written and by the logs' ends, whoever
runs the flows or does not; and for saying whether a spoke is there at all. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from heliograph.errors import HeliographError, TimedOut, Unreachable
from heliograph.mirror.positions import Position
from heliograph.state.positions import PositionsLog
from heliograph.types import Cluster, Flow, TopicPartition
from heliograph.wire import Client

ASK_S = 3.0  # a cluster that is up answers in milliseconds; one that is not shall not hold up what is said of others


@dataclass(frozen=True, slots=True)
class Waiting:
    """Of one shared topic in one place."""

    records: int = 0
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


def dead(cluster: Cluster, timeout_s: float = ASK_S) -> str:
    """Why it cannot be reached, in words; "": it can. One that is there and refuses us is not dead."""
    try:
        with Client(cluster, timeout_s=timeout_s) as client:
            client.cluster_id()
    except (Unreachable, TimedOut) as error:
        return error.message
    except HeliographError:
        return ""
    return ""


def count(
    positions: Mapping[TopicPartition, Position],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Waiting:
    """What is in the log and behind its position. Where there is none yet, all of it is."""
    left = 0
    for tp, end in ends.items():
        stands = positions[tp].next_offset if tp in positions else 0
        left += max(end - max(stands, starts.get(tp, 0)), 0)
    return Waiting(left, dict(ends))


class Watch:
    """One flow's progress through one topic of its source."""

    def __init__(self, flow: Flow, topic: str, source: Client, target: Client) -> None:
        self._topic, self._source = topic, source
        self._positions = PositionsLog(target, flow)

    def look(self) -> Waiting:
        """Raises what is wrong with the clusters."""
        topic = self._source.metadata([self._topic]).topics.get(self._topic)
        if topic is None or not topic.partitions:
            return Waiting()
        tps = [TopicPartition(self._topic, partition) for partition in topic.partitions]
        ends = self._offsets(tps, at="latest")
        starts = self._offsets(tps, at="earliest")
        known = self._positions.catch_up() if self._positions.find() else {}
        return count(known, starts, ends)

    def _offsets(self, tps: list[TopicPartition], *, at: str) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        asked = self._source.list_offsets(tps, at="latest" if at == "latest" else "earliest")
        for tp, offset in asked.items():
            if not isinstance(offset, int):
                raise offset
            found[tp] = offset
        return found


@contextmanager
def watching(flow: Flow, topic: str) -> Iterator[Watch]:
    with Client(flow.source, timeout_s=ASK_S) as source, Client(flow.target, timeout_s=ASK_S) as target:
        yield Watch(flow, topic, source, target)

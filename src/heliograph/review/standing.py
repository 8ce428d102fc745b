"""Where a flow stands on every partition it copies, or has copied: positions beside the logs of both sides.

Reads both clusters and writes nothing. What `offsets list`, `offsets set` and `adopt` show is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from heliograph import policy
from heliograph.errors import BrokerError, VersionUnsupported
from heliograph.mirror.ledger import already_there
from heliograph.mirror.positions import Position
from heliograph.state.positions import PositionsLog
from heliograph.survey.stages import shared_partition
from heliograph.survey.starts import Bounds, NoStart, bounds
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client


@dataclass(frozen=True, slots=True)
class Standing:
    """One partition. None: not known, or there is none."""

    tp: TopicPartition
    remote: TopicPartition  # of one whose records are put back: itself
    copied: bool  # by the flow as the file is now
    position: Position | None
    source: Bounds | None
    target_end: int | None  # of a divided topic: of the longest of its partitions
    beyond: int = 0  # records behind the position that the target holds already: rule D will pass over them
    topic_id: UUID | None = None
    trouble: str = ""

    @property
    def lag(self) -> int | None:
        if self.position is None or self.source is None:
            return None
        return max(self.source.end - max(self.position.next_offset, self.source.start), 0)

    @property
    def by(self) -> str:
        """Whose word the position is."""
        if self.position is None:
            return ""
        return f"producer {self.position.producer_id}" if self.position.claimed else "MM2 or an operator"


def stand(flow: Flow, source: Client, target: Client, positions: PositionsLog) -> list[Standing]:
    """Of every partition that the flow copies and of every one that has a position, in order."""
    known = dict(positions.catch_up()) if positions.find() else {}
    ids: dict[TopicPartition, UUID | None] = {}
    topics = source.metadata(None).topics
    for name, topic in topics.items():
        if not topic.internal and _is_copied(flow, name):
            ids |= {TopicPartition(name, partition): topic.id for partition in topic.partitions}
    tps = sorted({*ids, *known})
    remotes = {tp: _remote(flow, tp) for tp in tps}
    logs = bounds(source, [tp for tp in tps if tp.topic in topics and tp.partition in topics[tp.topic].partitions])
    parts = {tp: known[tp].parts(remotes[tp]) if tp in known else [(remotes[tp], None)] for tp in tps}
    ends = _ends(target, (remote for some in parts.values() for remote, _ in some))
    held = _held(target, [part for tp in tps if tp in known for part in parts[tp] if part[0] in ends])
    return [
        Standing(
            tp=tp,
            remote=remotes[tp],
            copied=tp in ids,
            position=known.get(tp),
            source=log if isinstance(log := logs.get(tp), Bounds) else None,
            target_end=max((ends[remote] for remote, _ in parts[tp] if remote in ends), default=None),
            beyond=sum(held.get(part.producer_id, 0) for _, part in parts[tp] if part is not None),
            topic_id=ids.get(tp),
            trouble=_trouble(tp, logs.get(tp), known.get(tp)),
        )
        for tp in tps
    ]


def _is_copied(flow: Flow, topic: str) -> bool:
    if flow.demux:
        return any(rule.topic == topic for rule in flow.demux)
    return policy.should_multiplex(flow, topic) if flow.mux is not None else policy.should_replicate(flow, topic)


def _remote(flow: Flow, tp: TopicPartition) -> TopicPartition:
    """Where it would go; where strands of a position go, the position says."""
    if flow.demux:
        return tp
    if flow.mux is not None:
        return TopicPartition(flow.mux.topic, shared_partition(tp, flow.mux.partitions))
    return TopicPartition(policy.remote_topic(flow, tp.topic), tp.partition)


def _ends(target: Client, remotes: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Of those that are there. Asked about first: for one that is not, `list_offsets` would wait a while."""
    wanted = sorted(set(remotes))
    topics = target.metadata(sorted({tp.topic for tp in wanted})).topics if wanted else {}
    there = [tp for tp in wanted if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
    found = target.list_offsets(there, at="latest") if there else {}
    return {tp: end for tp, end in found.items() if isinstance(end, int)}


def _held(target: Client, parts: Iterable[tuple[TopicPartition, Position | None]]) -> dict[int, int]:
    """Producer id -> records that lie behind its position already."""
    claimed = [(remote, part) for remote, part in parts if part is not None and part.claimed]
    try:
        states = target.describe_producers(list(dict.fromkeys(remote for remote, _ in claimed))) if claimed else {}
    except VersionUnsupported:
        return {}
    found = {}
    for remote, part in claimed:
        state = states.get(remote)
        if state is not None and not isinstance(state, BrokerError) and part.producer_id in state:
            found[part.producer_id] = max(already_there(part, state[part.producer_id].last_sequence), 0)
    return found


def _trouble(tp: TopicPartition, log: Bounds | NoStart | None, position: Position | None) -> str:
    if log is None:
        return "its source is not there"
    if isinstance(log, NoStart):
        return log.reason
    if position is not None and position.next_offset > log.end:
        return f"its position {position.next_offset} is behind the end of its source, {log.end}"
    if position is not None and position.next_offset < log.start:
        return f"retention took {log.start - position.next_offset:,} offsets before they were copied"
    return ""

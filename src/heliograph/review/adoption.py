"""What is left of a MirrorMaker 2 (or still there) on both sides of a flow, and what Heliograph would make of it.

Reads its topics, its group and its positions; writes nothing. Whether an MM2 runs is told by signs that need no help of
its own: the Connect group of its workers on the target has members (its name is MM2's default); or, where there is no
such group, heartbeats of the pair are being written while nobody of ours (`flow.presence`) runs the flow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from heliograph import policy
from heliograph.batch import Record
from heliograph.flow.presence import Holder, has_workers, holders, mm2_group, mm2_state
from heliograph.formats import Heartbeat
from heliograph.review.standing import Standing, stand
from heliograph.state.compacted import CompactedLog
from heliograph.state.positions import PositionsLog
from heliograph.survey.starts import NoStart, Start, beginnings
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client
from heliograph.wire.groups import EMPTY

YOUNG_S = 15.0  # of a heartbeat: MM2 writes one a second unless told otherwise
ANOTHER_S = 3.0  # how long to wait for the next one, where only heartbeats can tell
TAIL = 50  # records at the end of a topic that are read to learn when it was last written


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic of MM2's own, and what becomes of it."""

    name: str
    cluster: str
    use: str
    partitions: int = 0  # 0: it is not there
    records: int = 0  # by offsets, as far as they are still there
    last_ms: int | None = None  # when the youngest record was written


@dataclass(frozen=True, slots=True)
class Continuation:
    """One partition: where Heliograph would go on, or why not."""

    standing: Standing
    offset: int | None
    why: str


@dataclass(slots=True)
class Findings:
    flow: str
    group: str
    group_state: str  # Kafka's word, or why it could not be asked
    topics: list[InternalTopic] = field(default_factory=list)
    heartbeat_ms: int | None = None
    beating: bool = False  # another came while we looked, and nobody of ours runs the flow
    checkpoint_ms: int | None = None
    running: list[Holder] = field(default_factory=list)  # Heliographs
    partitions: list[Continuation] = field(default_factory=list)
    now_ms: int = 0

    @property
    def mm2_runs(self) -> str:
        """The sign of it; "": there is none."""
        if has_workers(self.group_state):
            return f"its group {self.group} has members ({self.group_state})"
        if self.beating:
            return f"heartbeats of {self.flow} are being written, and not by a Heliograph"
        return ""

    @property
    def traces(self) -> bool:
        """Whether an MM2, or a Heliograph, was ever here."""
        return any(topic.partitions for topic in self.topics)


def look(flow: Flow, source: Client, target: Client) -> Findings:
    found = Findings(flow.name, mm2_group(flow), mm2_state(flow, target))
    found.now_ms = time.time_ns() // 1_000_000
    found.running = holders(flow, target)
    found.topics = list(_topics(flow, source, target))
    found.heartbeat_ms = _last_heartbeat(flow, target)
    if found.group_state != EMPTY and not found.running:  # a group that its workers have left says all there is to say
        found.beating = _beats_go_on(flow, target, found.heartbeat_ms, found.now_ms)
    checkpoints = policy.of(flow).checkpoints_topic(flow.source.alias)
    found.checkpoint_ms = next((topic.last_ms for topic in found.topics if topic.name == checkpoints), None)
    found.partitions = _continuations(flow, source, target)
    return found


def _topics(flow: Flow, source: Client, target: Client) -> Iterator[InternalTopic]:
    alias, names = flow.source.alias, policy.of(flow)
    on_source = flow.offset_syncs_location == "source"
    syncs = names.offset_syncs_topic(flow.target.alias if on_source else alias)
    uses = [
        (
            target,
            flow.positions_topic or policy.positions_topic(alias),
            "goes on from its positions, and keeps its own in it",
        ),
        (target, names.checkpoints_topic(alias), _use(flow.emit_checkpoints_s, "adds exact checkpoints to it")),
        (source if on_source else target, syncs, _use(flow.emit_offset_syncs or None, "adds offset syncs to it")),
        (target, policy.HEARTBEATS, _use(flow.emit_heartbeats_s, "adds heartbeats to it")),
        (target, f"mm2-configs.{alias}.internal", "left alone: Connect's"),
        (target, f"mm2-status.{alias}.internal", "left alone: Connect's"),
    ]
    for client, name, use in uses:
        yield _topic(client, name, use)


def _use(switched_on: object, use: str) -> str:
    return use if switched_on is not None else "left alone: switched off in the file"


def _topic(client: Client, name: str, use: str) -> InternalTopic:
    meta = client.metadata([name]).topics.get(name)
    if meta is None or not meta.partitions:
        return InternalTopic(name, client.alias, use)
    tps = [TopicPartition(name, p) for p in meta.partitions]
    firsts, ends = client.list_offsets(tps, at="earliest"), client.list_offsets(tps, at="latest")
    spans = {
        tp: (first, end)
        for tp in tps
        if isinstance(first := firsts[tp], int) and isinstance(end := ends[tp], int) and end > first
    }
    youngest = [record.timestamp for tp, span in spans.items() for record in _tail(client, tp, *span)]
    records = sum(end - first for first, end in spans.values())
    return InternalTopic(name, client.alias, use, len(tps), records, max(youngest, default=None))


def _tail(client: Client, tp: TopicPartition, first: int, end: int) -> list[Record]:
    log = CompactedLog(client, tp.topic)
    return log.between(tp.partition, max(end - TAIL, first), end)


def _last_heartbeat(flow: Flow, target: Client) -> int | None:
    """Of this pair; several write to the topic, so more of its end is read."""
    meta = target.metadata([policy.HEARTBEATS]).topics.get(policy.HEARTBEATS)
    if meta is None or not meta.partitions:
        return None
    tp = TopicPartition(policy.HEARTBEATS, 0)
    end, first = target.list_offsets([tp], at="latest")[tp], target.list_offsets([tp], at="earliest")[tp]
    if not isinstance(end, int) or not isinstance(first, int):
        return None
    log = CompactedLog(target, policy.HEARTBEATS)
    read = (Heartbeat.read(one.key, one.value) for one in log.between(0, max(end - 20 * TAIL, first), end))
    wanted = (flow.source.alias, flow.target.alias)
    beats = [beat.timestamp_ms for beat in read if beat and (beat.source_alias, beat.target_alias) == wanted]
    return max(beats, default=None)


def _beats_go_on(flow: Flow, target: Client, last_ms: int | None, now_ms: int) -> bool:
    """Whether another heartbeat comes. Not waited for where the last one is old."""
    if last_ms is None or now_ms - last_ms > YOUNG_S * 1000:
        return False
    deadline = time.monotonic() + ANOTHER_S
    while time.monotonic() < deadline:
        time.sleep(0.25)
        latest = _last_heartbeat(flow, target)
        if latest is not None and latest > last_ms:
            return True
    return False


def _continuations(flow: Flow, source: Client, target: Client) -> list[Continuation]:
    standings = stand(flow, source, target, PositionsLog(target, flow))
    known = {one.tp: one.position for one in standings if one.position is not None}
    there = [one.tp for one in standings if one.source is not None]
    places = beginnings(flow, source, there, known)
    return [_continuation(one, places.get(one.tp)) for one in standings]


def _continuation(one: Standing, place: Start | NoStart | None) -> Continuation:
    if one.source is None:
        return Continuation(one, None, "its source is not there: its position stays unused")
    if not one.copied:
        return Continuation(one, None, "the file does not copy it: its position stays unused")
    if isinstance(place, NoStart) or place is None:
        return Continuation(one, None, place.reason if place else one.trouble)
    if one.position is None:
        return Continuation(one, place.offset, f"no position: begins at {place.point}")
    if one.position.next_offset > one.source.end:
        return Continuation(one, None, f"{one.trouble}: no mirror wrote that; see `offsets set`")
    whose = "Heliograph's own position" if one.position.claimed else "MM2's position"
    return Continuation(one, place.offset, whose + (f"; {one.trouble}" if one.trouble else ""))

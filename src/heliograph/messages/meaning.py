"""What the records of MM2's topics and of our own say: heartbeats, checkpoints, offset syncs, positions, the offset
map, incidents, quarantine. For people who look; whoever works with them has readers of his own (`state`, `sync`).

The kind goes by the topic's name, as the flows' policies make it. What cannot be read is no error here: it is shown as
bytes, and said to be no such record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from heliograph import policy
from heliograph.batch import Record
from heliograph.formats import Checkpoint, Heartbeat, OffsetSync
from heliograph.messages.reading import Message
from heliograph.mirror import incidents, offsetmap, positions, quarantine
from heliograph.types import Flow, Naming, TopicPartition

RUNS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Meaning:
    kind: str
    words: str
    fields: dict[str, Any] = field(default_factory=dict)
    record: Record | None = None  # in quarantine: the record that was refused
    readable: bool = True


def kind_of(topic: str, flows: Iterable[Flow] = ()) -> str | None:
    """Which of these a topic holds, None for anybody else's."""
    known = list(flows)
    if any(topic == flow.positions_topic for flow in known):
        return "position"
    policies = {policy.of(flow) for flow in known} | {policy.make(Naming(), "")}
    for kind, name in _OWN.items():
        before, after = name("*").split("*")
        if topic.startswith(before) and topic.endswith(after) and len(topic) > len(before) + len(after):
            return kind
    for one in policies:
        before, after = one.offset_syncs_topic("*").split("*")
        if topic.startswith(before) and topic.endswith(after):
            return "offset sync"
        if one.is_checkpoints(topic):
            return "checkpoint"
        if one.is_heartbeats(topic):
            return "heartbeat"
    return None


_OWN: dict[str, Callable[[str], str]] = {
    "position": policy.positions_topic,
    "offset map": policy.offset_map_topic,
    "incident": policy.incidents_topic,
    "quarantine": policy.quarantine_topic,
}


def read(kind: str, message: Message) -> Meaning:
    found = _READERS[kind](message)
    return found or Meaning(kind, f"not a record of this kind: {kind}", readable=False)


def _heartbeat(message: Message) -> Meaning | None:
    one = Heartbeat.read(message.key, message.value)
    if one is None:
        return None
    fields = {"source": one.source_alias, "target": one.target_alias, "timestamp_ms": one.timestamp_ms}
    return Meaning("heartbeat", f"{one.source_alias}->{one.target_alias}", fields)


def _checkpoint(message: Message) -> Meaning | None:
    one = Checkpoint.read(message.key, message.value)
    if one is None:
        whose = Checkpoint.read_key(message.key) if message.value is None else None
        return (
            Meaning("checkpoint", f"{whose[0]}: none of {whose[1]}", _where(whose[1], group=whose[0]))
            if whose
            else None
        )
    fields = _where(one.tp, group=one.group, upstream=one.upstream, downstream=one.downstream, metadata=one.metadata)
    return Meaning("checkpoint", f"{one.group}: {one.tp} at {one.downstream}, upstream {one.upstream}", fields)


def _offset_sync(message: Message) -> Meaning | None:
    one = OffsetSync.read(message.key, message.value)
    if one is None:
        return None
    fields = _where(one.tp, upstream=one.upstream, downstream=one.downstream)
    return Meaning("offset sync", f"{one.tp}: {one.upstream} became {one.downstream}", fields)


def _position(message: Message) -> Meaning | None:
    name, about = _key(message.key)
    alias = about.get("cluster")
    tp = positions.partition_of_key(message.key, alias, (name,)) if isinstance(alias, str) else None
    if tp is None:  # or MM2's under a connector's name: positions are under any, by what their keys say
        return _of_a_connector(name, about, message.value)
    if message.value is None:
        return Meaning("position", f"{alias} {tp}: none any more", _where(tp, cluster=alias))
    one = positions.decode(message.value)
    if one is None:
        return None
    fields = _where(tp, cluster=alias, next_offset=one.next_offset)
    words = f"{alias} {tp}: next {one.next_offset}"
    if one.claimed:
        fields |= {"producer_id": one.producer_id, "producer_epoch": one.producer_epoch, "sequence": one.sequence}
        fields |= {"topic_id": str(one.topic_id) if one.topic_id else None, "target_offset": one.target}
        words += f", producer {one.producer_id}:{one.producer_epoch}, sequence {one.sequence}"
    if one.strands:
        fields["strands"] = [strand.next_offset for strand in one.strands]
        words += f", {len(one.strands)} strands"
    return Meaning("position", words, fields)


def _of_a_connector(name: str, about: dict[str, Any], value: bytes | None) -> Meaning | None:
    """Whatever else stands in this topic: offsets of MM2's other connectors, our processes, orders."""
    if not name:
        return None
    try:
        said = None if value is None else msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return None
    shown = "none any more" if value is None else msgspec.json.encode(said).decode()
    words = f"{name} {msgspec.json.encode(about).decode()}: {shown}"
    return Meaning("position", words, {"connector": name, "about": about, "says": said})


def _offset_map(message: Message) -> Meaning | None:
    _, about = _key(message.key)
    alias = about.get("cluster")
    one = offsetmap.read(message.key, message.value, alias) if isinstance(alias, str) else None
    if one is None:
        return None
    subject, spans = one.subject, one.spans
    fields = _where(subject.tp, cluster=alias, topic_id=str(subject.topic_id) if subject.topic_id else None)
    fields["runs"] = [list(span) for span in spans]
    whose = f"{alias} {subject.tp}"
    if subject.strand >= 0:
        fields["strand"] = subject.strand
        whose += f" to partition {subject.strand}"
    if subject.producer >= 0:
        fields["producer"] = subject.producer
    if one.generation is not None:
        fields["generation"] = msgspec.to_builtins(one.generation)
        start, end = one.generation.start, one.generation.end
        words = f"{whose}: producer id {subject.producer} copies from {start}, behind {end} of the copy"
        return Meaning("offset map", words, fields)
    shown = ", ".join(f"{span.source}+{span.length} became {span.target}" for span in spans[:RUNS_SHOWN])
    more = f" and {len(spans) - RUNS_SHOWN} more" if len(spans) > RUNS_SHOWN else ""
    return Meaning("offset map", f"{whose}: {shown or 'forgotten'}{more}", fields)


def _incident(message: Message) -> Meaning | None:
    _, about = _key(message.key)
    alias = about.get("cluster")
    one = incidents.decode(message.key, message.value, alias) if isinstance(alias, str) else None
    if one is None:
        return None
    fields = _where(one.tp, cluster=alias, incident=str(one.kind), first=one.first, next=one.next, policy=one.policy)
    fields |= {"why": one.why, "remote_topic": one.remote.topic, "remote_partition": one.remote.partition}
    fields |= {"at_ms": one.at_ms, "offsets": [list(run) for run in one.offsets], "lost": one.lost, "held": one.held}
    return Meaning("incident", f"{alias} {one.words}", fields)


def _quarantine(message: Message) -> Meaning | None:
    _, about = _key(message.key)
    alias = about.get("cluster")
    if not isinstance(alias, str):
        return None
    record = Record(message.offset, message.timestamp_ms, message.key, message.value, message.headers)
    found = quarantine.read(record, alias)
    if found is None:
        return None
    _, kept = found
    if kept is None:
        tp, offset = TopicPartition(str(about["topic"]), int(about["partition"])), about.get("offset")
        return Meaning(
            "quarantine", f"{alias} {tp} offset {offset}: out of it", _where(tp, cluster=alias, offset=offset)
        )
    place = kept.place
    fields = _where(place.tp, cluster=alias, offset=place.offset, reason=kept.reason)
    fields |= {"remote_topic": place.remote.topic, "remote_partition": place.remote.partition}
    words = f"{alias} {place.tp} offset {place.offset}, not in {place.remote}: {kept.reason}"
    return Meaning("quarantine", words, fields, kept.record)


_READERS: dict[str, Callable[[Message], Meaning | None]] = {
    "heartbeat": _heartbeat,
    "checkpoint": _checkpoint,
    "offset sync": _offset_sync,
    "position": _position,
    "offset map": _offset_map,
    "incident": _incident,
    "quarantine": _quarantine,
}


def _where(tp: TopicPartition, **more: Any) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition, **more}


def _key(key: bytes | None) -> tuple[str, dict[str, Any]]:
    """The form of Connect's keys and of ours: a name, and what it speaks of."""
    try:
        name, about = msgspec.json.decode(key or b"")
    except (TypeError, ValueError, RecursionError):
        return "", {}
    return (name, about) if isinstance(name, str) and isinstance(about, dict) else ("", {})

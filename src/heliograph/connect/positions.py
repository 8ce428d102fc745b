"""A connector's offsets by the API: read, altered, reset, in the topic where its flow keeps its positions.

Of a source connector these are the flow's positions (`mirror.positions`), of which the API shows what MM2 would: a
position written here has no producer id, which begins a new era. Only while nothing runs the connector; whoever calls
sees to that, and `require_free` looks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from heliograph.connect.asking import Offsets
from heliograph.flow.presence import require_free
from heliograph.mirror import positions
from heliograph.mirror.positions import Position, partition_for
from heliograph.state.compacted import CompactedLog
from heliograph.state.positions import PositionsLog
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client

Entries = Mapping[str, tuple[dict[str, Any], dict[str, Any]]]
CALL_S = 20.0
# The order in which Java's HashMap has them: Connect looks offsets up by the bytes of their keys.
ORDER = ("cluster", "sourceClusterAlias", "targetClusterAlias", "partition", "topic", "group")


def read(flow: Flow, topic: str) -> Entries:
    """By the text of their keys. `topic`: of the worker."""
    with Client(flow.target, timeout_s=CALL_S) as client:
        return _read(CompactedLog(client, flow.positions_topic or topic), flow)


def require_stopped(flow: Flow) -> None:
    """Raises Held while somebody runs the connector's flow. May wait for the next heartbeat of a process."""
    if flow.copies and flow.enabled:
        with Client(flow.target, timeout_s=CALL_S) as client:
            require_free(flow, client)


def change(flow: Flow, topic: str, deed: Offsets) -> None:
    """Raises Held if somebody runs the connector's flow after all."""
    with Client(flow.target, timeout_s=CALL_S) as client:
        if flow.copies and flow.enabled:
            require_free(flow, client)
        log = CompactedLog(client, flow.positions_topic or topic)
        if not log.count():
            return
        if deed.what == "reset":
            wanted: list[tuple[bytes, bytes | None]] = [(key.encode(), None) for key in _read(log, flow)]
        else:
            wanted = [(_key(_whose(flow), partition), _value(offset)) for partition, offset in deed.entries]
        fences = _fences(client, flow, log.topic, wanted) if flow.copies else {}
        for key, value in wanted:
            log.append(partition_for(key, log.partitions), [*fences.get(key, ()), (key, value)])


def _fences(
    client: Client, flow: Flow, topic: str, wanted: list[tuple[bytes, bytes | None]]
) -> dict[bytes, list[tuple[bytes, bytes]]]:
    """Before each: what a task that slept writes later is void (`state.fence`)."""
    known = PositionsLog(client, replace(flow, positions_topic=topic))
    if not known.find():
        return {}
    known.catch_up()
    found: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for key, value in wanted:
        tp = positions.partition_of_key(key, flow.source.alias, flow.positions_under)
        fence = None if tp is None else known.fence(tp, positions.decode(value))
        if fence is not None:
            found[key] = [fence]
    return found


def _read(log: CompactedLog, flow: Flow) -> Entries:
    found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    folded: dict[str, Position] = {}
    if not log.count():
        return found
    for _, record in log.news():
        about = _about(record.key, _whose(flow))
        if about is None or record.key is None:
            continue
        text = record.key.decode()
        if record.value is None:
            found.pop(text, None)
            folded.pop(text, None)
            continue
        value = _shown(text, record.value, folded, copies=flow.copies)
        if value is not None:
            found[text] = about, value
    return found


def _shown(text: str, value: bytes, folded: dict[str, Position], *, copies: bool) -> dict[str, Any] | None:
    if not copies:
        try:
            plain = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return None
        return plain if isinstance(plain, dict) else None
    position = positions.fold(folded.get(text), value)
    if position is None:
        return None
    folded[text] = position
    return {"offset": position.next_offset - 1} if position.next_offset > 0 else None


def _whose(flow: Flow) -> str:
    return flow.positions_under[0] if flow.copies else flow.label


def _about(key: bytes | None, connector: str) -> dict[str, Any] | None:
    try:
        name, about = msgspec.json.decode(key or b"")
    except (TypeError, ValueError, RecursionError):
        return None
    return about if name == connector and isinstance(about, dict) else None


def _key(connector: str, partition: Mapping[str, Any]) -> bytes:
    if partition.keys() == {"cluster", "partition", "topic"} and isinstance(partition["partition"], int):
        tp = TopicPartition(str(partition["topic"]), partition["partition"])
        return positions.key_of(str(partition["cluster"]), tp, connector)
    known = {name: partition[name] for name in ORDER if name in partition}
    return msgspec.json.encode([connector, {**known, **partition}])


def _value(offset: Mapping[str, Any] | None) -> bytes | None:
    return None if offset is None else msgspec.json.encode({"offset": offset["offset"]})

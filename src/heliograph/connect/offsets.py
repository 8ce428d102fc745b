"""Offsets by the API: seen at any time, changed only of a connector that is stopped, by MM2's own rules. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from heliograph.connect.asking import Ask, Decision, Offsets, Refusal, Sight
from heliograph.connect.board import Connector
from heliograph.connect.bodies import object_of
from heliograph.connect.decisions import connector_of
from heliograph.connect.siblings import kind_of

_PARTITION_FIELDS: Mapping[str, Mapping[str, type]] = {
    "source": {"cluster": str, "topic": str, "partition": int},
    "checkpoint": {"group": str, "topic": str, "partition": int},
    "heartbeat": {"sourceClusterAlias": str, "targetClusterAlias": str},
}


def offsets(sight: Sight, ask: Ask) -> Decision:
    one = connector_of(sight, ask)
    return Decision(HTTPStatus.OK, deeds=(Offsets(one.name, "read"),))


def alter_offsets(sight: Sight, ask: Ask) -> Decision:
    body = object_of(ask.body, 'offsets: {"offsets": [{"partition": {…}, "offset": {…}}]}')
    listed = body.get("offsets")
    if not listed:
        why = "Partitions / offsets need to be provided for an alter offsets request"
        raise Refusal(HTTPStatus.BAD_REQUEST, why)
    one = _stopped(sight, ask)
    kind = kind_of(one.config) or "source"
    entries = tuple(_entry(kind, entry) for entry in (listed if isinstance(listed, list) else [listed]))
    said = {"message": "The offsets for this connector have been altered successfully"}
    return Decision(HTTPStatus.OK, said, (Offsets(one.name, "alter", entries),))


def reset_offsets(sight: Sight, ask: Ask) -> Decision:
    one = _stopped(sight, ask)
    said = {"message": "The offsets for this connector have been reset successfully"}
    return Decision(HTTPStatus.OK, said, (Offsets(one.name, "reset"),))


def _stopped(sight: Sight, ask: Ask) -> Connector:
    one = connector_of(sight, ask)
    state = sight.board.statuses.get((one.name, None))
    if one.target != "STOPPED" or one.tasks or (state is not None and state.state != "STOPPED"):
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            f"specified connector by issuing a 'PUT' request to the '/connectors/{one.name}/stop' endpoint",
        )
    return one


def _entry(kind: str, entry: Any) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    about = object_of(entry, "an entry of offsets")
    partition, offset = about.get("partition"), about.get("offset")
    if not isinstance(partition, dict):
        raise Refusal(HTTPStatus.BAD_REQUEST, "The partition for a connector offset cannot be null or missing")
    if offset is None:
        return partition, None
    for name, wanted in _PARTITION_FIELDS[kind].items():
        value: Any = partition.get(name)
        right = isinstance(value, wanted) and not isinstance(value, bool)
        if not right or (wanted is int and not 0 <= value < 1 << 31):
            what = "a number from 0 to 2147483647" if wanted is int else "a text"
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{name!r} in a partition of this connector must be {what}")
    at = offset.get("offset") if isinstance(offset, dict) else None
    if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < (1 << 63) - 1:
        raise Refusal(HTTPStatus.BAD_REQUEST, "'offset' must be a whole number from 0 on: {\"offset\": 41}")
    if kind != "source" and at != 0:
        raise Refusal(HTTPStatus.BAD_REQUEST, "this connector has no offsets but 0: give 0, or null to reset")
    return partition, {"offset": at}

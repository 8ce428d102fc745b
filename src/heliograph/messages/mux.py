"""The headers by which a record of a multiplexed topic says where it came from, read for people. Pure.

Names, numbers and times are those of `batch.labels`. Where that can put the record back, its reading is shown; beside
it, and where it cannot, what stands there as it stands, with the reason. Then of several headers of one name the last
counts, in any order, and a second topic begins anew: what stands before it says where the record had been before, or
is the record's own.
"""

from __future__ import annotations

from typing import Any

from heliograph.batch import labels
from heliograph.batch.labels import NAMES, Absurd, Label
from heliograph.batch.records import Headers

FIELDS = {
    Label.TOPIC: "source_topic",
    Label.PARTITION: "source_partition",
    Label.TIMESTAMP: "source_timestamp",
    Label.BOOTSTRAP_SERVERS: "source_bootstrap_servers",
    Label.INTERMEDIATE_TOPIC: "intermediate_topic",
    Label.IDENTIFIER: "source_identifier",
    Label.CLUSTER_ID: "source_cluster_id",
    Label.OFFSET: "source_offset",
}
NUMBERS = (Label.PARTITION, Label.OFFSET)
PROBLEM = "problem"  # the field that says why the record cannot be put back


def read(headers: Headers) -> dict[str, Any] | None:
    """The fields that are there and can be read, times in milliseconds; None if no header is of these names."""
    if not any(name in NAMES for name, _ in headers):
        return None
    found = _standing(headers)
    origin = labels.read(headers)
    if isinstance(origin, Absurd):
        return {**found, PROBLEM: origin.words}
    meant = {
        Label.TOPIC: origin.tp.topic,
        Label.PARTITION: origin.tp.partition,
        Label.TIMESTAMP: origin.timestamp,
        Label.OFFSET: origin.offset,
    }
    return found | {FIELDS[label]: value for label, value in meant.items() if value is not None}


def _standing(headers: Headers) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in headers:
        if name not in NAMES:
            continue
        label = Label(NAMES.index(name))
        if label is Label.TOPIC and FIELDS[label] in found:
            found.clear()
        if value is None:
            continue
        try:
            found[FIELDS[label]] = _value(label, value)
        except UnicodeDecodeError:
            found.pop(FIELDS[label], None)
    return found


def _value(label: Label, value: bytes) -> str | int:
    """A number or a time if it is one, else the text."""
    if label is Label.TIMESTAMP:
        number = labels.time_of(value)
    else:
        number = labels.number_of(value) if label in NUMBERS else None
    return value.decode() if number is None else number


def words(fields: dict[str, Any]) -> str:
    """`spoke1 topic-3 offset 1041`, as far as it is known, and what is wrong with it."""
    who = fields.get("source_identifier") or fields.get("source_cluster_id") or fields.get("source_bootstrap_servers")
    topic, partition = fields.get("source_topic"), fields.get("source_partition")
    parts = [who, topic if partition is None else f"{topic or '?'}-{partition}"]
    if "source_offset" in fields:
        parts.append(f"offset {fields['source_offset']}")
    if PROBLEM in fields:
        parts = [*(parts if any(parts) else ["?"]), f"({fields[PROBLEM]})"]
    return " ".join(str(part) for part in parts if part)

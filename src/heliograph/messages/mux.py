"""The headers by which a record of a multiplexed topic says where it came from, read for people. Pure.

Shows what stands there and trusts none of it; whoever puts records back into their topics has rules of his own. Of
several headers of one name the last counts: it was added last. A second topic begins anew: what stands before it says
where the record had been before, or is the record's own.
"""

from __future__ import annotations

from typing import Any

from heliograph.batch.records import Headers

# header -> the field it becomes, and whether it is a number
FIELDS = {
    "MUX_SOURCE_TOPIC": ("source_topic", False),
    "MUX_SOURCE_TOPIC_PARTITION": ("source_partition", True),
    "MUX_SOURCE_OFFSET": ("source_offset", True),
    "MUX_SOURCE_TIMESTAMP": ("source_timestamp", True),
    "MUX_SOURCE_IDENTIFIER": ("source_identifier", False),
    "MUX_SOURCE_CLUSTER_ID": ("source_cluster_id", False),
    "MUX_SOURCE_BOOTSTRAP_SERVERS": ("source_bootstrap_servers", False),
    "MUX_INTERMEDIATE_TOPIC": ("intermediate_topic", False),
}


def read(headers: Headers) -> dict[str, Any] | None:
    """The fields that are there and can be read; None if there is none."""
    found: dict[str, Any] = {}
    for name, value in headers:
        field, number = FIELDS.get(name, ("", False))
        if field == "source_topic" and field in found:
            found.clear()
        if not field or value is None:
            continue
        try:
            text = value.decode()
        except UnicodeDecodeError:
            found.pop(field, None)
            continue
        # The seed's own programs write times as text: then it is shown as it stands.
        found[field] = int(text) if number and text.removeprefix("-").isdecimal() and len(text) < 20 else text
    return found or None


def words(fields: dict[str, Any]) -> str:
    """`spoke1 topic-3 offset 1041`, as far as it is known."""
    who = fields.get("source_identifier") or fields.get("source_cluster_id") or fields.get("source_bootstrap_servers")
    topic, partition = fields.get("source_topic"), fields.get("source_partition")
    parts = [who, topic if partition is None else f"{topic or '?'}-{partition}"]
    if "source_offset" in fields:
        parts.append(f"offset {fields['source_offset']}")
    return " ".join(str(part) for part in parts if part)

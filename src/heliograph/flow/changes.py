"""What an edited file means for a flow that runs: taken up as it goes, or begun anew; whether two do the same. Pure.

A setting is taken up alive by whom it concerns: the survey, the tasks (by a word, or with the next plan), the
specialists. Where it decides where records go or how clusters are reached, the flow begins anew, alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from enum import Enum

from heliograph.types import Flow

# Where records go, where positions stand, and how both are reached: nothing of a running flow would stay.
ANEW = frozenset(
    {
        *("source", "target", "enabled", "naming", "positions_topic", "offset_storage_partitions"),
        *("label", "copies", "positions_under"),
    }
)
# In an assignment: the next plan has it, and is made at once. Epochs overlap, so nobody waits.
PLANNED = frozenset({"tasks_max", "isolation", "caps"})
TOLD = frozenset({"on"})  # to the tasks, by a word
# What there is to copy, and what its remote topics should be like: looked at again at once.
SURVEYED = frozenset(
    {
        *("topics", "topics_exclude", "heartbeats_replication", "replication_factor", "start", "start_at"),
        *("target_partitions", "mux", "demux", "awaits"),
        *("refresh_topics_interval_seconds", "config_properties_exclude", "use_defaults_from", "lower_durability"),
        "shorten_retention",
    }
)
STORED = frozenset({"offset_storage_replication_factor", "factors_set"})  # read when a topic of ours is made
ALIVE = PLANNED | TOLD | SURVEYED | STORED  # all others are the specialists' alone

# Not part of what is done to a flow, but of how this machine does it. `factors_set` names lines of the file: what a
# factor is stands in the field of its own.
HOW = frozenset({"source", "target", "tasks_max", "admin_timeout_s", "factors_set"})


class Way(Enum):
    SAME = "same"
    ALIVE = "alive"
    ANEW = "anew"


def changed(old: Flow, new: Flow) -> frozenset[str]:
    """The fields that differ."""
    return frozenset(one.name for one in fields(Flow) if getattr(old, one.name) != getattr(new, one.name))


def way(old: Flow, new: Flow) -> Way:
    found = changed(old, new)
    if not found:
        return Way.SAME
    return Way.ANEW if found & ANEW else Way.ALIVE


def concerns_specialists(found: frozenset[str]) -> bool:
    surveyed_too = {"config_properties_exclude", "use_defaults_from", "lower_durability", "shorten_retention"}
    surveyed_too |= {"replication_factor", "factors_set", "demux"}
    return bool(found - ALIVE or found & surveyed_too)


def digest(flow: Flow) -> str:
    """Of what the flow does, not of how its clusters are reached: two processes with the same one may run it together.
    No secret is in it."""
    said = [f"{one.name}={getattr(flow, one.name)!r}" for one in fields(Flow) if one.name not in HOW]
    text = "\n".join([flow.name, *sorted(said)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]

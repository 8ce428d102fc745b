"""Topics given the replicas that they should have, by partition reassignments (KIP-455).

A topic that was created when its cluster had one broker keeps one replica when the cluster grows. Replicas are only
added: leaders and the replicas that are there stay where they are. The cluster copies the records over by itself, also
when this process ends; `min.insync.replicas` that was lowered to fit is taken back when the new replicas are in sync.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliograph.errors import BrokerError
from heliograph.types import TopicPartition
from heliograph.wire import Client

MIN_INSYNC = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Raise:
    """One topic that gets more replicas."""

    topic: str
    has: int  # replicas of the partition that has the fewest
    to: int
    replicas: Mapping[TopicPartition, tuple[int, ...]]  # of partitions that get more: then


def planned(client: Client, wanted: Mapping[str, int]) -> list[Raise]:
    """`wanted`: topic -> how many replicas each of its partitions should have. As many as brokers are up can be had."""
    topics = client.metadata(sorted(wanted)).topics if wanted else {}
    racks = client.broker_racks()
    load = dict.fromkeys(racks, 0)
    found = []
    for name, topic in sorted(topics.items()):
        counts = [len(part.replicas) for part in topic.partitions.values()]
        to = min(wanted[name], len({*racks, *(id_ for part in topic.partitions.values() for id_ in part.replicas)}))
        more: dict[TopicPartition, tuple[int, ...]] = {}
        for number, part in sorted(topic.partitions.items()):
            if len(part.replicas) < to:
                after = placed(part.replicas, to, racks, load)
                if len(after) > len(part.replicas):
                    more[TopicPartition(name, number)] = after
        if more:
            found.append(Raise(name, min(counts), min(map(len, more.values())), more))
    return found


def placed(
    replicas: Sequence[int], wanted: int, racks: Mapping[int, str | None], load: dict[int, int]
) -> tuple[int, ...]:
    """The brokers that hold a partition, then: those that do, and others that are up; of racks that hold none of it
    first, and of these the ones that were given the fewest. `load` counts what was given."""
    chosen = list(replicas)
    while len(chosen) < wanted and (free := racks.keys() - chosen):
        used = {racks.get(one) for one in chosen if racks.get(one) is not None}
        best = min(free, key=lambda one: (racks[one] in used, load[one], one))
        load[best] += 1
        chosen.append(best)
    return tuple(chosen)


def begin(client: Client, raises: Iterable[Raise]) -> dict[TopicPartition, BrokerError]:
    """Ask the controller; what it refused, and why."""
    replicas = {tp: after for one in raises for tp, after in one.replicas.items()}
    return {tp: error for tp, error in client.reassign(replicas).items() if error is not None}


def unfinished(client: Client, raises: Sequence[Raise]) -> set[TopicPartition]:
    """Partitions whose new replicas are not all in sync yet."""
    topics = client.metadata(sorted({one.topic for one in raises})).topics
    return {
        tp
        for one in raises
        for tp, after in one.replicas.items()
        if not (part := topics[tp.topic].partitions.get(tp.partition)) or not set(after) <= set(part.isr)
    }


def restore_insync(client: Client, raises: Sequence[Raise]) -> list[str]:
    """Topics whose own min.insync.replicas, which was lowered to their replicas when they were created, is removed."""
    described = client.describe_topic_configs([one.topic for one in raises], inherited=True)
    changes: dict[str, dict[str, str | None]] = {}
    for one in raises:
        entries = described.get(one.topic)
        entry = entries.get(MIN_INSYNC) if isinstance(entries, dict) else None
        if entry is None or entry.is_default or entry.value != str(one.has):
            continue
        inherited = int(entry.inherited) if entry.inherited and entry.inherited.isdigit() else 0
        if one.has < inherited <= one.to:
            changes[one.topic] = {MIN_INSYNC: None}
    return sorted(name for name, error in client.alter_topic_configs(changes).items() if error is None)

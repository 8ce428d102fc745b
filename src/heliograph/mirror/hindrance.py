"""Why a lane does not go on, in words, from what its task knows at the moment of a report.

Asked once a second for each lane, so it only looks, never asks anybody. It names the first thing in the way: reading
before writing. A hindrance is no verdict: a broker that is late by three seconds hinders, and the copy may still be
sound; whether it is, is decided by progress (`health.verdict`). The words hold no seconds, so that they stay the same
while nothing changes, and a report need not repeat them.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_

from heliograph.mirror.append import Target
from heliograph.mirror.brokers import REQUEST_TIMEOUT_S, Brokers
from heliograph.mirror.fetch import Source
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.ways import node_of
from heliograph.types import TopicPartition
from heliograph.wire import Metadata, PartitionMeta, name_of
from heliograph.wire.codes import KAFKA_STORAGE_ERROR

# A broker that has been silent for so long hinders. Its fetch answers are due every half second, an append is answered
# in milliseconds unless a disk or a replica is slow.
QUIET_S = 2.0
DISK = "a disk failed or is full"


@dataclass(frozen=True, slots=True)
class Hindrance:
    why: str = ""
    blind: bool = False  # the source's end is not being seen meanwhile
    vague: bool = (
        False  # something is due and nothing is known to keep it: right for a moment, a fault of ours for long
    )


NONE = Hindrance()


def of_lane(lane: Lane, source: Source, target: Target, now: float) -> Hindrance:
    if lane.state is State.PARKED:
        return Hindrance(lane.reason, blind=True)
    if lane.state is State.HALTED:
        return Hindrance("an operator halted it", blind=True)
    if lane.state is State.LOST:  # not fetched until the target has said what it holds (rule D)
        why = _and_before(of_partition(target.brokers, lane.spec.remote, now), lane.write_trouble)
        return Hindrance(why or f"{target.brokers.cluster.alias} is being asked what it holds", True, vague=not why)
    # What is seen now stands before what was said last: behind NOT_LEADER_OR_FOLLOWER there may be no leader at all.
    reading = _and_before(of_partition(source.brokers, lane.spec.tp, now, source.key_of(lane)), lane.read_trouble)
    if reading and not source.is_stalled(lane):  # one that holds enough is not read on purpose
        return Hindrance(reading, blind=True)
    if not lane.idle or lane.in_flight:
        seen = of_partition(target.brokers, lane.spec.remote, now, target.key_of(lane))
        if writing := _and_before(seen, lane.write_trouble):
            return Hindrance(writing)
    if held_back := source.held_back(lane):  # on purpose: its source's end is not seen either
        return Hindrance(held_back, blind=True)
    throttled = source.throttled_ms(lane)
    if throttled:
        return Hindrance(f"{source.brokers.cluster.alias} throttles this client: a quota is used up")
    if lane.high_watermark < 0:
        return Hindrance(f"{source.brokers.cluster.alias} is being asked", blind=True, vague=True)
    return NONE


class Outlook:
    """What all lanes of a task have in common between them and their brokers: metadata, connections, quotas."""

    def __init__(self) -> None:
        self._seen: list[object] = []

    def is_unchanged(self, source: Source, target: Target, now: float) -> bool:
        """Whether it is as it was when this was last asked, and nothing in it hinders anybody. Then nothing hinders a
        lane that nothing hindered before, that stands where it stood and has nothing waiting."""
        before, self._seen = self._seen, []
        quiet = False
        for brokers in (source.brokers, target.brokers):
            open_now = brokers.connections
            self._seen += [brokers.metadata, *open_now]
            since = [one.oldest_sent_at for one in open_now]
            quiet = quiet or any(at is not None and now - at > QUIET_S for at in since)
        same = len(before) == len(self._seen) and all(map(is_, before, self._seen))
        return same and not quiet and not source.is_throttled


def _and_before(seen: str, said: str) -> str:
    """A broker whose only disk is full ends right after it said so: what is seen is that it is gone, not why."""
    if seen and DISK not in seen and name_of(KAFKA_STORAGE_ERROR) in said:
        return f"{seen}; before that, {said}"
    return seen or said


def of_partition(brokers: Brokers, tp: TopicPartition, now: float, key: int | None = None) -> str:
    """What is between us and the leader of a partition, on this connection to it; "" if nothing is."""
    alias, metadata = brokers.cluster.alias, brokers.metadata
    if metadata is None:
        return brokers.trouble.message if brokers.trouble else f"{alias} has not said yet who leads {tp}"
    partition = metadata.leader(tp)
    if partition is None:
        return f"{alias} knows no partition {tp}"
    if partition.leader not in metadata.brokers:
        return f"{tp} has no leader on {alias}: {_of_replicas(partition, metadata)}"
    ours = key is not None and node_of(key) == partition.leader
    return _of_broker(brokers, key if ours and key is not None else partition.leader, now)


def _of_replicas(partition: PartitionMeta, metadata: Metadata) -> str:
    broken = [one for one in partition.offline if one in metadata.brokers]
    if broken:  # the broker lives, its replica does not
        return (
            f"broker {', '.join(map(str, broken))} is up and its log directory with this partition is offline: {DISK}. "
            "Make room, then restart the broker, which takes the directory back only then"
        )
    holders = ", ".join(map(str, partition.replicas))
    return f"its replicas are on broker {holders}, and none of them that is up may lead"


def _of_broker(brokers: Brokers, key: int, now: float) -> str:
    alias, address = brokers.cluster.alias, brokers.metadata.brokers[node_of(key)] if brokers.metadata else ""
    connection = brokers.connected(key)
    if connection is None:
        tried = brokers.trying_since(key)
        if tried is not None and now - tried > QUIET_S:  # whatever it said last time, now it says nothing
            return f"{alias} broker {address} does not answer; it is being connected to"
        failure = brokers.failure(key)
        if failure is not None:
            return f"{failure.message}; tried again within 2 s"
        return f"{alias} broker {address} is being connected to"
    sent_at = connection.oldest_sent_at
    if sent_at is not None and now - sent_at > QUIET_S:
        return f"{alias} broker {address} does not answer; after {REQUEST_TIMEOUT_S:.0f} s the connection is made anew"
    return ""

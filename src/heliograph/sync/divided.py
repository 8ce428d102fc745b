"""Where a group goes on in a copy with another number of partitions than its source.

A target partition holds records of every source partition, and a group stands at one offset in each of those. What can
be said is from where on it must read so as to miss nothing: the smallest, over the source partitions, of where the
first record lies that it has not read. So nothing is passed over, and some may be read again: at least once, not
exactly.

Invariants:
  a. The answer lies before every record of the target partition that the group has not read. What makes it so for a
     source partition that was read to its end: where the copy ended before that end was asked for. Whatever the source
     got since was appended behind it.
  b. Without a committed offset for each source partition that holds records there is no answer: what the group would do
     about the others is its `auto.offset.reset`'s affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heliograph import policy
from heliograph.mirror.positions import Position
from heliograph.state.offsets import OffsetMap
from heliograph.types import Flow, TopicPartition
from heliograph.wire import Client, Committed


@dataclass(frozen=True, slots=True)
class Place:
    """In one target partition. `upstream`: the group's offsets in all source partitions, summed: it grows as they do,
    which is all that it is good for."""

    remote: TopicPartition
    upstream: int
    downstream: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A divided topic at one moment."""

    positions: Mapping[int, Position]  # by source partition
    copies: Mapping[int, int]  # target partition -> its end, asked for first (invariant a)
    ends: Mapping[int, int]  # source partition -> its end, asked for afterwards


class Divided:
    def __init__(self, flow: Flow, source: Client, target: Client, offsets: OffsetMap) -> None:
        self._flow = flow
        self._source, self._target, self._offsets = source, target, offsets

    def look(self, positions: Mapping[TopicPartition, Position]) -> dict[str, Topic]:
        """The divided topics among those that have positions. One with an end that cannot be asked for is left out."""
        by_topic: dict[str, dict[int, Position]] = {}
        for tp, position in positions.items():
            if position.strands and policy.accepts_topic(self._flow, tp.topic):
                by_topic.setdefault(tp.topic, {})[tp.partition] = position
        if not by_topic:
            return {}
        remotes = {name: policy.remote_topic(self._flow, name) for name in by_topic}
        copies = {
            TopicPartition(remotes[name], q): None
            for name, parts in by_topic.items()
            for q in range(max(len(position.strands) for position in parts.values()))
        }
        timeout_s = self._flow.admin_timeout_s
        copied = self._target.list_offsets(list(copies), at="latest", timeout_s=timeout_s)
        sources = [TopicPartition(name, p) for name, parts in by_topic.items() for p in parts]
        ends = self._source.list_offsets(sources, at="latest", isolation=self._flow.isolation, timeout_s=timeout_s)
        found: dict[str, Topic] = {}
        for name, parts in by_topic.items():
            there = {tp.partition: end for tp, end in copied.items() if tp.topic == remotes[name]}
            here = {tp.partition: end for tp, end in ends.items() if tp.topic == name}
            asked = [*there.values(), *here.values()]
            alike = len({len(position.strands) for position in parts.values()}) == 1
            if alike and all(isinstance(end, int) for end in asked):
                found[name] = Topic(parts, _whole(there), _whole(here))
        return found

    def places(self, name: str, topic: Topic, committed: Mapping[int, Committed]) -> list[Place]:
        """`committed`: by source partition."""
        if any(end > 0 and p not in committed for p, end in topic.ends.items()):
            return []  # invariant b
        remote, upstream = policy.remote_topic(self._flow, name), sum(at.offset for at in committed.values())
        found = []
        for q, copied in topic.copies.items():
            limits = [self._limit(name, p, q, topic, committed) for p in topic.positions]
            if None not in limits:
                least = min((limit for limit in limits if limit is not None), default=copied)
                found.append(Place(TopicPartition(remote, q), upstream, min(least, copied)))
        return found

    def _limit(self, name: str, p: int, q: int, topic: Topic, committed: Mapping[int, Committed]) -> int | None:
        """Before which no unread record of source partition `p` lies in target partition `q`. None: nobody knows."""
        offset = committed[p].offset if p in committed else 0
        if offset >= topic.ends[p]:
            return topic.copies[q]
        return self._offsets.translate_strand(TopicPartition(name, p), q, offset, topic.positions[p])


def _whole(ends: Mapping[int, object]) -> dict[int, int]:
    return {partition: end for partition, end in ends.items() if isinstance(end, int)}

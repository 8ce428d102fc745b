"""Fences: what an operator set stays set, whatever a task that slept writes afterwards.

A position that an operator sets has no producer id, and the next claim in the log is taken for its own (invariants a
and b of `mirror.positions`). A task that was frozen, or whose write was on its way, may append one more position of the
old producer id after it: read as that claim, it would undo the change, and compaction could leave it alone in the log.
So a change by hand comes with a fence, in the same batch: a record of a key of its own that names the producer ids that
the change ends, and the position that it sets.

Invariants:
  a. A position whose producer id a fence before it names is void. Producer ids are never given out twice, so nothing
     that counts is lost.
  b. Where only the void position is left, compaction having removed what the operator wrote, the fence's position is
     the one that counts; none, if the operator took the position away.
  c. What came after the fence and counts, a claim above all, would be lost with that compaction. So a void position is
     not left as the last of its key: the coordinator writes what counts behind it (`PositionsLog.repair`).
MM2 and Connect pass these records over: their key names a connector that they do not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import structlog

from heliograph.mirror.positions import Position, decode, encode
from heliograph.types import TopicPartition

log = structlog.get_logger()

NAME = "HeliographFence"
REMEMBERED = 64  # producer ids of one fence: those of a divided partition's targets, and of changes before


@dataclass(frozen=True, slots=True)
class Fence:
    voids: frozenset[int]  # producer ids
    position: Position | None  # that was set; None: it was taken away


class Fences:
    """Of one flow's positions, as they are read."""

    def __init__(self, source_alias: str, under: Sequence[str]) -> None:
        self._alias, self._under = source_alias, under
        self._known: dict[TopicPartition, Fence] = {}
        self._named: set[TopicPartition] = set()

    def hear(self, key: bytes | None, value: bytes | None, known: dict[TopicPartition, Position]) -> None:
        """A record that is no position; it may be no fence either. A position in `known` that it ends is replaced."""
        tp = self._partition(key)
        fence = _decode(value)
        if tp is None or fence is None:
            return
        self._known[tp] = fence
        if self.voids(tp, known.get(tp)):
            del known[tp]
            if fence.position is not None:
                known[tp] = fence.position

    def voids(self, tp: TopicPartition, position: Position | None) -> bool:
        """Invariant a."""
        fence = self._known.get(tp)
        return fence is not None and position is not None and position.producer_id in fence.voids

    def restores(self, tp: TopicPartition, position: Position | None) -> bool:
        """Whether a reader who finds the fence and a void position alone comes to this position."""
        return self._known[tp].position == position

    def instead(self, tp: TopicPartition, void: Position, before: Position | None) -> Position | None:
        """What counts after a void position was read (invariant b)."""
        if tp not in self._named:
            self._named.add(tp)
            log.info("position of an ended producer id is ignored", partition=str(tp), next_offset=void.next_offset)
        return before or self._known[tp].position

    def pair(self, tp: TopicPartition, before: Position | None, after: Position | None) -> tuple[bytes, bytes] | None:
        """The record to write before a change by hand; None where no producer id has to be ended."""
        ids = [] if before is None else [before.producer_id, *(one.producer_id for one in before.strands)]
        old = self._known.get(tp)
        voids = [one for one in dict.fromkeys([*ids, *(sorted(old.voids) if old else ())]) if one >= 0][:REMEMBERED]
        if not voids:
            return None
        about = {"cluster": self._alias, "connector": self._under[0], "partition": tp.partition, "topic": tp.topic}
        value = {"voids": voids, "position": None if after is None else encode(after).decode()}
        return msgspec.json.encode([NAME, about]), msgspec.json.encode(value)

    def _partition(self, key: bytes | None) -> TopicPartition | None:
        try:
            name, about = msgspec.json.decode(key or b"")
            if name != NAME or about["cluster"] != self._alias or about["connector"] not in self._under:
                return None
            topic, partition = about["topic"], about["partition"]
        except (TypeError, ValueError, KeyError, RecursionError):
            return None
        return TopicPartition(topic, partition) if isinstance(topic, str) and isinstance(partition, int) else None


def _decode(value: bytes | None) -> Fence | None:
    try:
        about = msgspec.json.decode(value or b"")
        voids, text = about["voids"], about["position"]
    except (TypeError, ValueError, KeyError, RecursionError):
        return None
    if not isinstance(voids, list) or not all(type(one) is int for one in voids):
        return None
    position = decode(text.encode()) if isinstance(text, str) else None
    return None if text is not None and position is None else Fence(frozenset(voids), position)

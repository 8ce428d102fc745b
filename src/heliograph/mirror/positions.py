"""Where a flow stands on each source partition, in MM2's topic and format.

MM2's worker keeps its source offsets in `mm2-offsets.<source>.internal` on the target: a compacted topic of Connect's
JSON, looked up by the exact bytes of the key. Heliograph writes the same records with flat fields of its own beside
`"offset"`, which MM2 ignores: either can go on where the other stopped. This module is the format and the rule by which
records of one key fold into a position. It does no I/O; `state.positions` and `mirror.task` read and write.

Invariants of a log of records of one key, read in order:
  a. A record without a producer id (MM2 wrote it, or an operator) starts a new era: whatever came before is void.
  b. In an era the first producer id wins (rule G: the first claim in the log). Records with another id are the losers'
     claims and are ignored.
  c. All positions of one producer id are true at once: each says "everything before `next_offset` was appended, in
     `sequence` records". So the furthest is taken, and a stale writer that writes an older one does no harm.
  d. A loser writes the winner's claim again after its own, so that compaction, which keeps the last record of a key,
     can never leave a loser's claim alone in the log.
  e. Where the target has another number of partitions, a position holds one for each of them, its strands: each with a
     producer id of its own, all claimed by one record. a to d hold for each; the first strand's id stands for all, and
     `offset` is that of the one least far, from which MM2 would go on.
  f. A record that cannot be read changes nothing. Only a tombstone says that there is no position.
  g. Where strands go to partitions of any topics (`survey.stages`), the position names these targets beside them.
     Strands are added as targets are found, at the end, and never taken away; a record of before that says less of
     some. Of two claims of a target the first wins, as in b.
  h. A new era of such a position may leave strands their producer ids and counts: it is about the others alone, and
     the claim that follows has the same ids for those that were left.
  i. A position names the run of the offset map that its generation ends with, and where that run ends: `mapRun`, -1 for
     none, and `mapEnd`. One that says nothing of it was written by 0.1, or by a claim of 0.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard
from uuid import UUID

import msgspec

from heliograph.types import POSITIONS_UNDER, TopicPartition

SEQUENCES = 1 << 31  # sequence numbers are counted modulo 2^31
_STRAND = re.compile(r"(-1|[0-9]{1,19}):(-1|[0-9]{1,5}):([0-9]{1,10}):([0-9]{1,19}):(-1|[0-9]{1,19})")
_TARGET = re.compile(r"([a-zA-Z0-9._-]{1,249})/([0-9]{1,10})")
OFFSETS, EPOCHS = 1 << 63, 1 << 15  # Kafka's offsets and producer ids are smaller than this, its producers' epochs too


@dataclass(frozen=True, slots=True)
class Position:
    next_offset: int  # the source offset to go on from
    producer_id: int = -1  # -1: nobody has claimed yet (MM2 was here last)
    producer_epoch: int = -1
    sequence: int = 0  # of the record at next_offset or the first one after it
    topic_id: UUID | None = None  # the source topic's, when the position was written
    target: int = -1  # the target offset right after the last record counted; -1: not known
    strands: tuple[Position, ...] = ()  # by target partition, where their number is another (invariant e)
    targets: tuple[
        TopicPartition, ...
    ] = ()  # of the strands, if they are not the partitions of one topic (invariant g)
    run: int | None = None  # source offset of the map's last run of this producer id; -1: none; None: 0.1 wrote this
    run_end: int = -1  # the target offset at which that run ends (invariant i)

    @property
    def claimed(self) -> bool:
        return self.producer_id >= 0

    def parts(self, remote: TopicPartition) -> list[tuple[TopicPartition, Position]]:
        """What is counted alone, with where it lies: itself in `remote`, or its strands in that topic's partitions."""
        if not self.strands:
            return [(remote, self)]
        if self.targets:
            return list(zip(self.targets, self.strands, strict=True))
        return [(TopicPartition(remote.topic, q), one) for q, one in enumerate(self.strands)]


def join(strands: Sequence[Position], targets: Sequence[TopicPartition] = ()) -> Position:
    """The position of a source partition that is divided over these, each the part of one target partition."""
    first = strands[0]
    least = min(one.next_offset for one in strands)
    records = sum(one.sequence for one in strands) % SEQUENCES
    whole = (least, first.producer_id, first.producer_epoch, records, first.topic_id, -1)
    return Position(*whole, tuple(strands), tuple(targets), -1)  # its strands' maps have points, which never grow


def new_era(strands: Sequence[Position], targets: Sequence[TopicPartition] = ()) -> Position:
    """One that is to be claimed, where these say; strands that have a producer id keep it (invariant h)."""
    return replace(join(strands, targets), producer_id=-1, producer_epoch=-1)


def key_of(source_alias: str, tp: TopicPartition, under: str = POSITIONS_UNDER) -> bytes:
    """The exact bytes Java writes: no spaces, and the key order of its HashMap. `under`: the connector's name."""
    return msgspec.json.encode([under, {"cluster": source_alias, "partition": tp.partition, "topic": tp.topic}])


def partition_of_key(
    key: bytes | None, source_alias: str, under: Sequence[str] = (POSITIONS_UNDER,)
) -> TopicPartition | None:
    """The source partition a record speaks of; None for other connectors, other clusters and nonsense."""
    connector, about = _parse(key)
    if connector not in under or about.get("cluster") != source_alias:
        return None
    topic, partition = about.get("topic"), about.get("partition")
    if not isinstance(topic, str) or not _whole(partition):
        return None
    return TopicPartition(topic, partition)


def is_for_others(key: bytes | None, source_alias: str, under: Sequence[str] = (POSITIONS_UNDER,)) -> bool:
    """Whether a key that names no partition of ours is a proper one all the same: MM2 keeps the offsets of its other
    connectors here too, and several clusters may share a topic."""
    connector, about = _parse(key)
    return bool(connector) and (connector not in under or about.get("cluster") != source_alias)


def _parse(key: bytes | None) -> tuple[str, dict[str, Any]]:
    """Connect's form: a connector's name and what it speaks of; an empty name for anything else."""
    try:
        connector, about = msgspec.json.decode(key or b"")
    except (TypeError, ValueError, RecursionError):
        return "", {}
    return (connector, about) if isinstance(connector, str) and isinstance(about, dict) else ("", {})


def encode(position: Position) -> bytes:
    value: dict[str, Any] = {"offset": position.next_offset - 1}
    if position.claimed:
        value["producerId"] = position.producer_id
        value["producerEpoch"] = position.producer_epoch
        value["sequence"] = position.sequence
    if position.topic_id is not None:
        value["topicId"] = str(position.topic_id)
    if position.claimed and position.target >= 0:
        value["targetOffset"] = position.target
    if position.claimed and position.run is not None:
        value["mapRun"] = position.run
        if position.run >= 0:
            value["mapEnd"] = position.run_end
    if position.strands:
        value["strands"] = strands_text(position)  # a text: Connect takes flat fields only
    if position.targets:
        value["targets"] = " ".join(f"{topic}/{partition}" for topic, partition in position.targets)
    return msgspec.json.encode(value)


def decode(value: bytes | None) -> Position | None:
    """None for a tombstone and for what cannot be read."""
    try:
        fields = msgspec.json.decode(value or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not _whole(fields.get("offset")) or not -1 <= fields["offset"] < OFFSETS - 1:
        return None
    next_offset = int(fields["offset"]) + 1
    producer_id, epoch, sequence = (fields.get(k) for k in ("producerId", "producerEpoch", "sequence"))
    if not (_whole(producer_id) and _whole(epoch) and _whole(sequence)):
        return _unclaimed(next_offset, fields)
    target = fields["targetOffset"] if _whole(fields.get("targetOffset")) else -1
    if not (0 <= producer_id < OFFSETS and 0 <= epoch < EPOCHS and sequence >= 0 and -1 <= target < OFFSETS):
        return None
    if "strands" in fields:
        strands = strands_of(fields["strands"], _uuid(fields))
        mine = bool(strands) and strands[0].producer_id == producer_id and all(one.claimed for one in strands)
        targets = _targets_of(fields.get("targets"))
        fits = targets is not None and len(targets) in (0, len(strands))
        return replace(join(strands, targets or ()), run=_run(fields)[0]) if mine and fits else None
    whole = (next_offset, producer_id, epoch, sequence % SEQUENCES, _uuid(fields), target)
    return Position(*whole, (), (), *_run(fields))


def _run(fields: Mapping[str, Any]) -> tuple[int | None, int]:
    """Invariant i. What makes no sense names no run."""
    if "mapRun" not in fields:
        return None, -1
    run, end = fields["mapRun"], fields.get("mapEnd", -1)
    known = _whole(run) and _whole(end) and 0 <= run < OFFSETS and 0 <= end < OFFSETS
    return (run, end) if known else (-1, -1)


def _unclaimed(next_offset: int, fields: Mapping[str, Any]) -> Position:
    """MM2's, or a new era of ours, which may say where each strand goes on (and invariant h)."""
    strands, targets = strands_of(fields.get("strands"), _uuid(fields)), _targets_of(fields.get("targets")) or ()
    claimed = sum(one.claimed for one in strands)
    if not strands or claimed == len(strands) or (claimed and not targets) or len(targets) not in (0, len(strands)):
        return Position(next_offset)
    era = new_era(strands, targets)
    return era if era.next_offset == next_offset else Position(next_offset)


def _strand(one: Position) -> str:
    return f"{one.producer_id}:{one.producer_epoch}:{one.sequence}:{one.next_offset}:{one.target}"


def strands_text(position: Position) -> str:
    return " ".join(map(_strand, position.strands))


def strands_of(text: object, topic_id: UUID | None) -> list[Position]:
    """Empty for nonsense."""
    found: list[Position] = []
    for part in text.split(" ") if isinstance(text, str) else ():
        match = _STRAND.fullmatch(part)
        if match is None:
            return []
        producer_id, epoch, sequence, next_offset, target = map(int, match.groups())
        if max(producer_id, next_offset, target) >= OFFSETS or epoch >= EPOCHS:
            return []
        found.append(Position(next_offset, producer_id, epoch, sequence % SEQUENCES, topic_id, target))
    return found


def _targets_of(text: object) -> tuple[TopicPartition, ...] | None:
    """None for nonsense, and for a target that is named twice."""
    if text is None:
        return ()
    found: dict[TopicPartition, None] = {}
    for part in text.split(" ") if isinstance(text, str) else ("",):
        match = _TARGET.fullmatch(part)
        if match is None:
            return None
        found[TopicPartition(match[1], int(match[2]))] = None
    return tuple(found) if isinstance(text, str) and len(found) == text.count(" ") + 1 else None


def fold(current: Position | None, value: bytes | None) -> Position | None:
    """The position after one more record of the key (invariants a–c, e and f)."""
    new = decode(value)
    if new is None:
        return None if value is None else current
    if not new.claimed or current is None or not current.claimed:
        return new
    return furthest(current, new)


def furthest(current: Position, new: Position) -> Position:
    """Invariant c, strand by strand."""
    if new.producer_id != current.producer_id:
        return current
    if current.targets and new.targets:
        return _by_target(current, new)
    if len(new.strands) != len(current.strands) or new.targets != current.targets:
        return current
    if new.strands:
        return join([furthest(one, other) for one, other in zip(current.strands, new.strands, strict=True)])
    return current if new.next_offset < current.next_offset else new


def _by_target(current: Position, new: Position) -> Position:
    """Invariant g."""
    found = dict(zip(current.targets, current.strands, strict=True))
    for target, strand in zip(new.targets, new.strands, strict=True):
        found[target] = furthest(found[target], strand) if target in found else strand
    return join(list(found.values()), list(found))


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _uuid(fields: Mapping[str, Any]) -> UUID | None:
    try:
        return UUID(fields["topicId"]) if isinstance(fields.get("topicId"), str) else None
    except ValueError:
        return None


def murmur2(data: bytes) -> int:
    """Kafka's default partitioner's hash, so that a key lands in the partition where Java would put it."""
    m, r, mask = 0x5BD1E995, 24, 0xFFFFFFFF
    length = len(data)
    h = (0x9747B28C ^ length) & mask
    for i in range(0, length - 3, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * m) & mask
        k ^= k >> r
        k = (k * m) & mask
        h = (h * m) & mask
        h ^= k
    rest = data[length & ~3 :]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * m) & mask
    h ^= h >> 13
    h = (h * m) & mask
    h ^= h >> 15
    return h


def partition_for(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions

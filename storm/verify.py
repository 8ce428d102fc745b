"""What must hold at the end of a storm, as pure functions over what was read from both clusters.

Invariants checked, each with the record, the partition and the offset where it is broken:
  lost        every record of the last generation of a source partition is in the copy; of an earlier generation, which
              was deleted at the source, the copy holds a prefix
  duplicated  no record is in the copy more often than in the source, in whatever partition
  reordered   in each target partition the records of a source partition lie in their order, generations too
  misrouted   without `target.partitions` a record lies in the partition of its source
  foreign     the copy holds nothing that the source does not hold
  misplaced   no unread record of a group lies before the group's offset in the copy, nor is that offset past the end
  source      every acknowledged record is in the source (Kafka's promise, on which the others rest)

With --old the load's own producer has no idempotence, and now and then its library sends a request twice. What the
source holds twice the copy must hold twice; only then (`may_repeat`) that is no finding about the source itself.

Nothing is read here, and nothing of the engine is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from storm.identity import Identity, IntArray

NAMED = 5  # findings of one kind and place that are named one by one; the rest are counted
_GENERATION = 1 << 44  # above every offset: one integer orders (generation, offset)


@dataclass(frozen=True, slots=True)
class SourceLog:
    """One source partition in one generation of its topic: offset and number of each record."""

    offsets: IntArray
    numbers: IntArray

    @property
    def repeated(self) -> IntArray:
        """Numbers that it holds more than once."""
        numbers, counts = np.unique(self.numbers, return_counts=True)
        return numbers[counts > 1]


@dataclass(frozen=True, slots=True)
class CopyLog:
    """One partition of a remote topic: where each record lies, and which record it is."""

    offsets: IntArray
    generations: IntArray
    partitions: IntArray
    numbers: IntArray
    end: int

    def identity(self, index: int) -> Identity:
        return Identity(int(self.generations[index]), int(self.partitions[index]), int(self.numbers[index]))


@dataclass(frozen=True, slots=True)
class Read:
    """What a group has read of one source partition: everything before `offset` in this generation."""

    generation: int
    offset: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A group's offset in a partition of the copy, and what the group had read of each source partition by then."""

    group: str
    partition: int
    offset: int
    read: Mapping[int, Read]
    told_by: str = "group"  # or "checkpoint"


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    where: str  # the remote topic and partition, or the group
    count: int
    named: tuple[str, ...]  # the first few, one sentence each


Generations = Mapping[int, Mapping[int, SourceLog]]  # generation -> source partition -> its log


@dataclass(frozen=True, slots=True)
class Topic:
    """Everything that is known of one topic and its copy."""

    name: str
    remote: str
    sources: Generations
    copies: Mapping[int, CopyLog]
    divided: bool = False
    may_repeat: bool = False  # the load's producer may have stored records twice
    acknowledged: Mapping[tuple[int, int], IntArray] = field(default_factory=dict)  # by (generation, partition)
    placements: Sequence[Placement] = ()


def check(topic: Topic) -> list[Finding]:
    """Every invariant that this topic and its copy break."""
    every = _all_copies(topic.copies)
    found: list[Finding] = []
    last = max(topic.sources, default=0)
    for generation, logs in sorted(topic.sources.items()):
        for partition, source in sorted(logs.items()):
            mine = np.flatnonzero((every.generations == generation) & (every.partitions == partition))
            found += _check_source(topic, generation, partition, source)
            found += _check_once(topic, every, mine, Identity(generation, partition, 0), source, generation == last)
    found += _check_foreign(topic, every)
    for target, copy in sorted(topic.copies.items()):
        found += _check_order(topic, target, copy)
    return [*found, *_check_placements(topic)]


# Records


@dataclass(frozen=True, slots=True)
class _Every:
    """The records of all partitions of a copy, in one table."""

    targets: IntArray
    offsets: IntArray
    generations: IntArray
    partitions: IntArray
    numbers: IntArray


def _all_copies(copies: Mapping[int, CopyLog]) -> _Every:
    def joined(columns: Iterable[IntArray]) -> IntArray:
        return np.concatenate([np.zeros(0, np.int64), *columns])

    return _Every(
        joined(np.full(len(copy.offsets), target, np.int64) for target, copy in copies.items()),
        joined(copy.offsets for copy in copies.values()),
        joined(copy.generations for copy in copies.values()),
        joined(copy.partitions for copy in copies.values()),
        joined(copy.numbers for copy in copies.values()),
    )


def _check_source(topic: Topic, generation: int, partition: int, source: SourceLog) -> list[Finding]:
    where = f"{topic.name}-{partition}"
    acknowledged = topic.acknowledged.get((generation, partition), np.zeros(0, np.int64))
    gone = acknowledged[~np.isin(acknowledged, source.numbers)]
    found = _finding("source", where, gone, lambda n: f"{Identity(generation, partition, n)} was acknowledged, is gone")
    back = np.flatnonzero(np.diff(source.numbers) <= 0) + 1
    if topic.may_repeat:
        back = back[~np.isin(source.numbers[back], source.repeated)]
    at = source.offsets[back]
    return found + _finding("source", where, at, lambda o: f"the source itself is out of order at offset {o}")


def _check_once(
    topic: Topic, every: _Every, mine: IntArray, who: Identity, source: SourceLog, last: bool
) -> list[Finding]:
    """The records of one generation of a source partition: none lost, none twice, none elsewhere."""
    order = mine[np.argsort(every.numbers[mine], kind="stable")]
    numbers = every.numbers[order]

    def place(index: int) -> str:
        return f"{topic.remote}-{every.targets[order[index]]} offset {every.offsets[order[index]]}"

    def record(number: int) -> str:
        return str(Identity(who.generation, who.partition, number))

    # The n-th copy of a record belongs to the n-th time that the source has it.
    nth = np.arange(len(numbers)) - np.searchsorted(numbers, numbers)
    again = np.flatnonzero(nth >= np.maximum(_times(source.numbers, numbers), 1))
    where = f"{topic.remote} (of {topic.name}-{who.partition})"
    found = _finding("duplicated", where, again, lambda i: f"{record(int(numbers[i]))}: {place(i - 1)} and {place(i)}")
    lost = _times(numbers, source.numbers) < _times(source.numbers, source.numbers)
    if not last:  # the tail was deleted with its topic before it was copied
        lost &= source.numbers < (numbers[-1] if len(numbers) else 0)
    found += _finding(
        *("lost", where, np.flatnonzero(lost)),
        lambda i: f"{record(int(source.numbers[i]))}, source offset {source.offsets[i]}",
    )
    if not topic.divided:
        astray = np.flatnonzero(every.targets[order] != who.partition)
        found += _finding("misrouted", where, astray, lambda i: f"{record(int(numbers[i]))}: {place(i)}")
    return found


def _times(held: IntArray, asked: IntArray) -> IntArray:
    """How often each of the asked numbers is among those held."""
    ordered = np.sort(held)
    return np.searchsorted(ordered, asked, side="right") - np.searchsorted(ordered, asked, side="left")


def repeated(topic: Topic) -> int:
    """How many records the source itself holds more than once."""
    return sum(len(source.repeated) for logs in topic.sources.values() for source in logs.values())


def _check_foreign(topic: Topic, every: _Every) -> list[Finding]:
    """Judged by what the source partitions hold: a record that was sent but never stored may not be in the copy."""
    known = np.zeros(len(every.numbers), bool)
    for generation, logs in topic.sources.items():
        for partition, source in logs.items():
            mine = np.flatnonzero((every.generations == generation) & (every.partitions == partition))
            known[mine] = np.isin(every.numbers[mine], source.numbers)

    def name(i: int) -> str:
        identity = Identity(int(every.generations[i]), int(every.partitions[i]), int(every.numbers[i]))
        return f"{identity} is not in the source: {topic.remote}-{every.targets[i]} offset {every.offsets[i]}"

    return _finding("foreign", topic.remote, np.flatnonzero(~known), name)


def _check_order(topic: Topic, target: int, copy: CopyLog) -> list[Finding]:
    where = f"{topic.remote}-{target}"
    found: list[Finding] = []
    for partition in np.unique(copy.partitions):
        mine = np.flatnonzero(copy.partitions == partition)
        keys = copy.generations[mine] * _GENERATION + copy.numbers[mine]
        back = np.flatnonzero(np.diff(keys) < 0) + 1
        back = back[~np.isin(keys[back], _repeated_keys(topic, int(partition)))]
        found += _finding(
            *("reordered", where, mine[back]),
            lambda i: f"offset {copy.offsets[i]}: {copy.identity(i)} lies behind a later one",
        )
    return found


def _repeated_keys(topic: Topic, partition: int) -> IntArray:
    """Of all generations: where the source goes back the copy must too."""
    sources = [(generation, logs[partition]) for generation, logs in topic.sources.items() if partition in logs]
    return np.concatenate(
        [np.zeros(0, np.int64), *(generation * _GENERATION + source.repeated for generation, source in sources)]
    )


# Groups


class _Unread:
    """For one target and one source partition: where the first record lies that is at or behind a source offset."""

    def __init__(self, copy: CopyLog, partition: int, sources: Generations) -> None:
        mine = np.flatnonzero(copy.partitions == partition)
        keys = np.full(len(mine), -1, np.int64)  # a foreign record has no source offset; it is reported as foreign
        for generation, logs in sources.items():
            if partition not in logs:
                continue
            source = logs[partition]
            here = np.flatnonzero(copy.generations[mine] == generation)
            numbers = copy.numbers[mine][here]
            order = np.argsort(source.numbers, kind="stable")  # of a repeated record the first offset counts
            known = source.numbers[order]
            at = np.minimum(np.searchsorted(known, numbers), max(len(known) - 1, 0))
            exact = known[at] == numbers if len(known) else np.zeros(len(here), bool)
            keys[here[exact]] = generation * _GENERATION + source.offsets[order[at[exact]]]
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._indexes = mine[order]
        self._first = np.minimum.accumulate(copy.offsets[mine[order]][::-1])[::-1]
        self._copy = copy

    def first(self, read: Read) -> tuple[int, Identity] | None:
        """The lowest target offset of an unread record, and a record that lies there."""
        at = int(np.searchsorted(self._keys, read.generation * _GENERATION + read.offset))
        if at == len(self._keys):
            return None
        offset = int(self._first[at])
        behind = self._indexes[at:]
        return offset, self._copy.identity(int(behind[self._copy.offsets[behind] == offset][0]))


class _Index:
    """The unread records of a copy by target and source partition, each made when it is first asked for."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._unread: dict[tuple[int, int], _Unread] = {}

    def first(self, target: int, partition: int, read: Read) -> tuple[int, Identity] | None:
        key = target, partition
        if key not in self._unread:
            self._unread[key] = _Unread(self._topic.copies[target], partition, self._topic.sources)
        return self._unread[key].first(read)

    def first_unread(self, placement: Placement) -> int:
        limits = [self.first(placement.partition, partition, read) for partition, read in placement.read.items()]
        end = self._topic.copies[placement.partition].end
        return min([end, *(limit[0] for limit in limits if limit is not None)])


def _check_placements(topic: Topic) -> list[Finding]:
    index = _Index(topic)
    broken: dict[tuple[str, int], list[str]] = {}
    for placement in topic.placements:
        why = _misplaced(topic, placement, index)
        if why:
            said = f"the {placement.told_by} says offset {placement.offset}: {why}"
            broken.setdefault((placement.group, placement.partition), []).append(said)
    return [
        Finding("misplaced", f"{group} in {topic.remote}-{partition}", len(why), tuple(why[:NAMED]))
        for (group, partition), why in sorted(broken.items())
    ]


def _misplaced(topic: Topic, placement: Placement, index: _Index) -> str:
    """Why this offset is wrong; empty where it is right."""
    copy = topic.copies.get(placement.partition)
    if copy is None:
        return "the copy has no such partition"
    if placement.offset > copy.end:
        return f"the copy ends at {copy.end}"
    for partition, read in placement.read.items():
        unread = index.first(placement.partition, partition, read)
        if unread is not None and unread[0] < placement.offset:
            only = f"it has read {topic.name}-{partition} up to offset {read.offset} only"
            return f"{only}, and {unread[1]} lies at offset {unread[0]}"
    return ""


def count_exact(topic: Topic) -> tuple[int, int]:
    """Of the groups' last offsets, how many are exactly at the first unread record (or the end), and how many there
    are. Those before it are right too: they read some records again."""
    index = _Index(topic)
    last = {(one.group, one.partition): one for one in topic.placements if one.told_by == "group"}
    found = [one for one in last.values() if one.partition in topic.copies]
    return sum(one.offset == index.first_unread(one) for one in found), len(found)


def _finding(kind: str, where: str, at: IntArray, name: object) -> list[Finding]:
    assert callable(name)
    return [Finding(kind, where, len(at), tuple(str(name(int(one))) for one in at[:NAMED]))] if len(at) else []

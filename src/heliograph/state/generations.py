"""What the offset map knows of one source partition, generation by generation, and how an offset translates over them.

A generation is what was copied under one producer id (`mirror.offsetmap`). A position names its own; the header that
was written at the claim names the older ones whose records are still in the copy. All others are void: the copy they
tell of was deleted or cut, or the process that wrote them had lost the claim. Does no I/O; `state.offsets` reads and
writes.

Invariant: a group is never placed past a record it has not read. For a source offset the newest generation counts that
was claimed at or before it, and of an older one only what lies before that claim: later records come again. But one
that was followed by the next before it had copied so far may leave the only copy of a record in a generation before
it: then the lowest answer of all counts (`Stored.covers`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from heliograph.mirror.offsetmap import HEADER, OF_0_1, SEGMENT_RUNS, Generation, Segment, Span
from heliograph.mirror.positions import Position
from heliograph.mirror.runs import Runs

FOLLOWED = 32  # generations that a claim may name; older ones are forgotten, and their checkpoints withdrawn
LEFT_ALONE = 2  # segments at the end, which a task may still be writing


class Rewrite(NamedTuple):
    """Of the segments of a generation: those that are to go, those that are to stand in their place, and all firsts
    after that."""

    removed: list[int]
    segments: list[list[Span]]
    firsts: array[int]


@dataclass(slots=True)
class Stored:
    """One generation, as the topic has it."""

    runs: Runs = field(default_factory=Runs)
    firsts: array[int] = field(default_factory=lambda: array("q"))  # of its segments' keys, in order
    generation: Generation | None = None
    counted: int = 0  # the target offset behind the last record that a position counted, as far as positions were seen

    def take(self, segment: Segment) -> None:
        if segment.generation is not None:
            self.generation = segment.generation
            self.runs.exact_from = max(self.runs.exact_from, segment.generation.exact)
        elif segment.spans:
            at = bisect_left(self.firsts, segment.first)
            if at == len(self.firsts) or self.firsts[at] != segment.first:
                self.firsts.insert(at, segment.first)
            self.runs.add(segment.spans)
        elif segment.first == HEADER:
            self.generation = None
        else:
            self._remove(segment.first)

    def _remove(self, first: int) -> None:
        """A tombstone: the runs of the segment go too."""
        at = bisect_left(self.firsts, first)
        if at < len(self.firsts) and self.firsts[at] == first:
            del self.firsts[at]
            self.runs.remove(first, self.firsts[at] if at < len(self.firsts) else None)

    @property
    def empty(self) -> bool:
        return not self.firsts and self.generation is None

    @property
    def keys(self) -> list[int]:
        """What there are records of."""
        return [*self.firsts, *([HEADER] if self.generation is not None else [])]

    @property
    def reach(self) -> int:
        """The target offset behind all that is known of it: when it was claimed the copy had the records before."""
        last, began = self.runs.last, self.generation
        mapped = last.target + last.length if last is not None else 0
        return max(mapped, began.end if began is not None else 0, self.counted)

    def covers(self, source: int) -> bool:
        """Whether it has all records from its claim to this source offset, or at least all that may lie before it in
        the remote partition: those had been in the source when it was claimed. By what it wrote down."""
        began, last = self.generation, self.runs.last
        if began is None:
            return True  # of 0.1: the generation that follows was claimed at its position
        copied = last.source + last.length if last is not None else began.start
        return source <= copied or 0 <= began.source_end <= copied

    def floor(self, source: int) -> int | None:
        """Of its own records."""
        found, began = self.runs.floor(source), self.generation
        if found is None and began is not None and (source >= began.start or began.fresh):
            return began.end
        return found

    @property
    def first_of_all(self) -> bool:
        """Whether nothing lay in the remote partition before it."""
        began, first = self.generation, self.runs.first
        return (began is not None and began.end == 0) or (first is not None and first.target == 0)

    @property
    def scattered(self) -> bool:
        """Whether its runs would fit into far fewer segments than the topic has."""
        return len(self.firsts) > 2 * (len(self.runs) // SEGMENT_RUNS + 1) + LEFT_ALONE

    def rewrite(self) -> Rewrite:
        """The last segments stay as they are."""
        settled, rest = self.firsts[:-LEFT_ALONE], self.firsts[-LEFT_ALONE:]
        spans = self.runs.until(rest[0])
        segments = [spans[at : at + SEGMENT_RUNS] for at in range(0, len(spans), SEGMENT_RUNS)]
        firsts = [segment[0].source for segment in segments]
        return Rewrite(sorted(set(settled) - set(firsts)), segments, array("q", [*firsts, *rest]))


class Link(NamedTuple):
    """A generation among those that count. `cut`: from this source offset on newer ones have all records (None: there
    is no newer one). `covers`: it has all records up to there; one that has not does not stand in for older ones."""

    stored: Stored
    cut: int | None
    covers: bool


class Lowest(NamedTuple):
    """The lowest target offset of the generations that were asked, and the oldest that knows anything. `is_final`: no
    older one could have a lower answer."""

    target: int | None
    is_final: bool
    oldest: Stored | None


class Partition:
    """All generations of one source partition, or of one of its strands."""

    def __init__(self) -> None:
        self.stored: dict[int, Stored] = {}  # by producer id

    def of(self, producer: int) -> Stored:
        return self.stored.setdefault(producer, Stored())

    def generation(self, producer: int) -> Generation | None:
        own = self.stored.get(producer)
        return own.generation if own is not None else None

    # ---------------------------------------------------------------- a new generation

    def still_true(self, producer: int, end: int, copy: UUID | None) -> list[int]:
        """The generations whose records the copy still has, newest first: those of the same remote topic. If one of
        them reaches beyond the end of the remote partition, or began there, that was cut, and none can be relied on.
        Where brokers have no topic ids nothing proves that it is the same."""
        same = {
            pid: one
            for pid, one in self.stored.items()
            if pid != producer and copy is not None and one.generation and one.generation.copy == str(copy)
        }
        older = [pid for one in same.values() if one.generation for pid in one.generation.follows]
        followed = same | {pid: self.stored[pid] for pid in older if pid in self.stored and pid != producer}
        if any(one.reach > end for one in followed.values()):
            return []
        return sorted(followed, key=lambda pid: _begun(followed[pid]), reverse=True)[:FOLLOWED]

    # ---------------------------------------------------------------- translation

    def chain(self, producer: int, *, of_0_1: bool) -> Iterator[Link]:
        """The generations that count, newest first."""
        cut: int | None = None
        for one in self._following(producer, of_0_1=of_0_1):
            covers = cut is None or one.covers(cut)
            yield Link(one, cut, covers)
            if one.generation is not None and covers:
                cut = one.generation.start if cut is None else min(cut, one.generation.start)

    def _following(self, producer: int, *, of_0_1: bool) -> list[Stored]:
        generation = self.generation(producer)
        follows = generation.follows if generation is not None else [OF_0_1] if of_0_1 else []
        return [self.stored[pid] for pid in (producer, *follows) if pid in self.stored]

    def extend(self, position: Position) -> None:
        """The last run, as long as the position says (invariant i of positions)."""
        if position.producer_id in self.stored:
            own = self.stored[position.producer_id]
            own.counted = max(own.counted, position.target)
        if position.run is None:
            self._extend_of_0_1(position)
        elif position.run >= 0 and position.producer_id in self.stored:
            self.stored[position.producer_id].runs.extend(position.run, position.run_end)

    def _extend_of_0_1(self, position: Position) -> None:
        """0.1 let the last run end at the position, whatever lay between. That holds where its own counts leave no room
        for a hole: as many target offsets as source offsets, and as many records counted."""
        last = self.stored[OF_0_1].runs.last if OF_0_1 in self.stored else None
        if last is not None:
            length = position.target - last.target
            if length == position.next_offset - last.source and length <= position.sequence:
                self.stored[OF_0_1].runs.extend(last.source, position.target)

    def floor(self, offset: int, position: Position) -> int | None:
        """A target offset before which no record lies that the source has at or after this offset; the record's own
        where runs are exact. None: not known."""
        links = self.chain(position.producer_id, of_0_1=position.run is None)
        found = _lowest(offset, links, lambda one, at: one.floor(at))
        if found.is_final:
            return found.target
        if found.oldest is not None and found.oldest.first_of_all:
            return found.target or 0
        return 0 if position.target == 0 else None

    def ceiling(self, offset: int, position: Position) -> int | None:
        """Where that record lies at the furthest. None: not known."""
        limit: int | None = None
        for link in self.chain(position.producer_id, of_0_1=position.run is None):
            if link.cut is not None and offset >= link.cut:
                break
            found = link.stored.runs.ceiling(offset)
            limit = limit if found is None else found
        return limit

    def behind(self, offset: int, producer: int, *, of_0_1: bool) -> int | None:
        """Of points: before which target offset there is no record at or after this source offset. None: there are no
        points."""
        found = _lowest(offset, self.chain(producer, of_0_1=of_0_1), lambda one, at: one.runs.floor(at))
        if found.is_final:
            return found.target
        return 0 if found.oldest is not None else None  # rule D may have passed over the first records: without a point


def _lowest(offset: int, links: Iterable[Link], floor: Callable[[Stored, int], int | None]) -> Lowest:
    """Asks generation after generation until one covers what the newer ones lack."""
    lowest: int | None = None
    oldest: Stored | None = None
    for one, cut, covers in links:
        found = floor(one, offset if cut is None else min(offset, cut))
        if found is not None:
            lowest = found if lowest is None else min(lowest, found)
            if covers:
                return Lowest(lowest, True, one)
        oldest = one if found is not None or len(one.runs) else oldest
    return Lowest(lowest, False, oldest)


def _begun(one: Stored) -> int:
    return one.generation.end if one.generation is not None else -1

"""All runs of one generation of a copy, as a reader of the offset map holds them: 24 bytes each, bounded in number.

Invariants:
  a. Runs are in order and do not overlap, in source offsets and in target offsets.
  b. An answer never lies behind a record that the source has at or after the offset asked for. Behind the end of a run
     the answer is that end, where the next record begins at the latest.
  c. So a run may be dropped at any time: the offsets it covered translate to the end of the run before it. The answer
     gets less exact and stays safe. The first run and the last are never dropped.
  d. From `exact_from` on no run was dropped, by this reader or by the coordinator that rewrote the topic.

A topic that is produced to in transactions gets a run for each of them. `thin` keeps the newest half of what it may
keep in full; before that it keeps runs at distances that grow with their age, so that the error of an answer is a small
share of how far the group is behind.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from heliograph.mirror.offsetmap import Span

KEPT_AFTER_THINNING = 0.75  # of the limit: the next thinning comes after a quarter of it in new runs
WIDTH_STEPS = 24  # of the search for a distance; each halves the error


class Runs:
    def __init__(self) -> None:
        self._sources, self._targets, self._lengths = array("q"), array("q"), array("q")
        self.exact_from = 0

    # ---------------------------------------------------------------- in

    def add(self, spans: Sequence[Span]) -> None:
        news = spans[self._known(spans) :]
        if not news:
            return
        self._add(news[0])
        if not self._follow(news[1:]):
            for span in news[1:]:
                self._add(span)

    def _follow(self, spans: Sequence[Span]) -> bool:
        """Append them at once if they are in order behind the last run, as those of nearly all segments are."""
        last = self.last
        if last is None or not all(_precedes(a, b) for a, b in pairwise((last, *spans))):
            return False
        for at, column in enumerate((self._sources, self._targets, self._lengths)):
            column.extend(span[at] for span in spans)
        return True

    def _known(self, spans: Sequence[Span]) -> int:
        """How many of them need no look: a segment that grows is read again and again, and what stands in it before
        our last run was there when that run was read."""
        if not self._sources or not spans or not spans[0].source <= self._sources[-1]:
            return 0
        at = bisect_left(spans, self._sources[-1], key=lambda span: span.source)
        return at if at < len(spans) and spans[at][:2] == (self._sources[-1], self._targets[-1]) else 0

    def _add(self, span: Span) -> None:
        at = bisect_right(self._sources, span.source)
        before = self._at(at - 1) if at else None
        after = self._at(at) if at < len(self) else None
        if before is not None and _continues(before, span):
            self._lengthen(at - 1, span.source - before.source + span.length)
        elif (before is None or _precedes(before, span)) and (after is None or _precedes(span, after)):
            self._insert(at, span)
        else:
            # It contradicts what came earlier (of 0.1, whose maps name no generation): the later record counts.
            keep = next((i for i, known in enumerate(self) if not _precedes(known, span)), len(self))
            self._drop(keep, len(self))
            self._insert(keep, span)

    def extend(self, source: int, target_end: int) -> None:
        """The run that begins at this source offset reaches to this target offset: a position says so. Without such a
        run nothing is known of it."""
        at = bisect_left(self._sources, source)
        if at < len(self) and self._sources[at] == source:
            self._lengthen(at, target_end - self._targets[at])

    def _lengthen(self, at: int, length: int) -> None:
        if at + 1 < len(self):  # invariant a
            length = min(
                length, self._sources[at + 1] - self._sources[at], self._targets[at + 1] - self._targets[at]
            )  # fmt: skip
        self._lengths[at] = max(self._lengths[at], length)

    def _insert(self, at: int, span: Span) -> None:
        self._sources.insert(at, span.source)
        self._targets.insert(at, span.target)
        self._lengths.insert(at, span.length)

    # ---------------------------------------------------------------- out

    def remove(self, first: int, until: int | None) -> None:
        """What begins at source offsets from `first` to before `until`."""
        self._drop(bisect_left(self._sources, first), len(self) if until is None else bisect_left(self._sources, until))

    def _drop(self, begin: int, end: int) -> None:
        for column in (self._sources, self._targets, self._lengths):
            del column[begin:end]

    def trim(self, log_start: int) -> None:
        """What lies before the target's first record leads there, whichever run says so: the first and the last of
        those are enough."""
        gone = bisect_right(self._targets, log_start)
        if gone and self._targets[gone - 1] + self._lengths[gone - 1] > log_start:
            gone -= 1
        if gone > 2:
            self._drop(1, gone - 1)
            self.exact_from = max(self.exact_from, self._sources[1])

    def thin(self, limit: int) -> bool:
        """Drop old runs if there are more than the limit (invariant c). Whether any was dropped."""
        limit = max(limit, 4)
        if len(self) <= limit:
            return False
        old = len(self) - limit // 2
        keep = np.concatenate([self._spread(old, int(limit * KEPT_AFTER_THINNING) - limit // 2), _all(old, len(self))])
        self.exact_from = max(self.exact_from, self._sources[old])
        for name in ("_sources", "_targets", "_lengths"):
            column = np.frombuffer(getattr(self, name), dtype=np.int64)
            setattr(self, name, array("q", column[keep].tobytes()))
        return True

    def _spread(self, old: int, room: int) -> npt.NDArray[np.int64]:
        """Indices of about `room` of the first `old` runs, one for each step of the logarithm of their age."""
        targets = np.frombuffer(self._targets, dtype=np.int64)
        ages = np.log((targets[-1] + 1 - targets[:old]).astype(np.float64))  # falling
        narrow, wide = 0.0, max(float(ages[0]), 1.0)
        for _ in range(WIDTH_STEPS):
            width = (narrow + wide) / 2
            if len(_firsts(ages, width)) > max(room, 2):
                narrow = width
            else:
                wide = width
        return _firsts(ages, wide)

    # ---------------------------------------------------------------- what it says

    @property
    def last(self) -> Span | None:
        return self._at(len(self) - 1) if len(self) else None

    @property
    def first(self) -> Span | None:
        return self._at(0) if len(self) else None

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[Span]:
        return (self._at(i) for i in range(len(self)))

    def exact(self) -> list[Span]:
        """Those from `exact_from` on."""
        return [self._at(i) for i in range(bisect_left(self._sources, self.exact_from), len(self))]

    def until(self, source: int) -> list[Span]:
        """Those that begin before this source offset."""
        return [self._at(i) for i in range(bisect_left(self._sources, source))]

    def floor(self, source: int) -> int | None:
        """Before this target offset lies no record of the source at or after this source offset (invariant b). None:
        the offset is before the first run."""
        at = bisect_right(self._sources, source) - 1
        if at < 0:
            return None
        return self._targets[at] + min(source - self._sources[at], self._lengths[at])

    def ceiling(self, source: int) -> int | None:
        """Where the first record at or after this source offset lies at the furthest. None: there is no run behind
        it."""
        at = bisect_right(self._sources, source) - 1
        if at >= 0 and source < self._sources[at] + self._lengths[at]:
            return self._targets[at] + source - self._sources[at]
        return self._targets[at + 1] if at + 1 < len(self) else None

    def _at(self, i: int) -> Span:
        return Span(self._sources[i], self._targets[i], self._lengths[i])


def _firsts(ages: npt.NDArray[np.float64], width: float) -> npt.NDArray[np.int64]:
    """Where each step of this width begins."""
    steps = (ages / width).astype(np.int64)
    return np.append(0, np.flatnonzero(np.diff(steps)) + 1).astype(np.int64)


def _all(begin: int, end: int) -> npt.NDArray[np.int64]:
    return np.arange(begin, end, dtype=np.int64)


def _continues(known: Span, span: Span) -> bool:
    """Inside the known run or right behind it."""
    same_distance = span.target - span.source == known.target - known.source
    return same_distance and known.source <= span.source <= known.source + known.length


def _precedes(first: Span, second: Span) -> bool:
    return first.source + first.length <= second.source and first.target + first.length <= second.target


def of(spans: Iterable[Span]) -> Runs:
    runs = Runs()
    runs.add(list(spans))
    return runs

"""Whether a partition is healthy, decided from what was seen of it. Pure: no clock, no threads, no sockets.

A partition is *good* at a moment at which it was seen level with its source, or at which its position was seen to have
moved. It is healthy as long as that moment is at most `limit_s` ago. There is no other way to be healthy: not a task
that runs, not a connection that stands, not the absence of an error.

Invariants:
  a. A source that moved and a position that did not are never healthy for longer than the limit.
  b. A source that nobody could look at is not idle: it is unseen, and that too is healthy for the limit only.
  c. A partition that went back (its topic was made anew) moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from heliograph.types import TopicPartition

# Shorter than the 10 s within which an operator must read it, with room for a report (1 s) and a slow scrape; longer
# than what is normal: the change of an epoch, an election, a broker's garbage collection.
LIMIT_S = 5.0
NO_REASON = "of nothing that Heliograph can see: the log may know (-v)"
NAMED = 3  # partitions in a flow's one-line reason


class Health(Enum):
    STARTING = "starting"  # nothing was seen of it yet
    IDLE = "idle"
    MOVING = "moving"
    STALLED = "stalled"
    PARKED = "parked"
    PAUSED = "paused"  # both by an operator, so all is as it should be
    STOPPED = "stopped"

    @property
    def healthy(self) -> bool:
        return self in (Health.IDLE, Health.MOVING, Health.PAUSED, Health.STOPPED)


@dataclass(frozen=True, slots=True)
class Verdict:
    health: Health
    because: str = ""  # without seconds, so that it stays the same while it lasts
    behind: int | None = None  # records, when it is stalled; None: not known whether the source moved
    still_s: float = 0.0  # how long it has not been good
    clueless_s: float = 0.0  # how long of that a task has had it and known nothing that is in its way

    @property
    def words(self) -> str:
        """ "" when there is nothing to say."""
        if self.health is Health.STALLED:
            if self.behind is None:
                return f"source not seen for {self.still_s:.0f} s, because {self.because}"
            return (
                f"source moved ({self.behind:,} records), we did not, for {self.still_s:.0f} s, because {self.because}"
            )
        return self.because


_MOVING, _IDLE = Verdict(Health.MOVING), Verdict(Health.IDLE)  # nearly always, and for thousands of partitions


@dataclass(slots=True)
class Progress:
    """What was seen of one partition. Times are of one clock that only goes forward."""

    good_at: float  # at first: when it was decided to copy it
    next_offset: int = -1  # our position; -1: not known yet
    end_offset: int = -1  # the source's; of several looks the farthest: one that sees less may have lost sight of it
    moved_at: float = field(default=float("-inf"))
    level_at: float = field(default=float("-inf"))
    _ends: dict[str, int] = field(default_factory=dict)  # who looked -> the source's end, as they saw it last

    @property
    def lag(self) -> int | None:
        if self.next_offset < 0 or self.end_offset < 0:
            return None
        return max(self.end_offset - self.next_offset, 0)

    def saw_position(self, next_offset: int, at: float) -> None:
        if self.next_offset not in (-1, next_offset):
            self.moved_at = self.good_at = max(self.good_at, at)
        self.next_offset = next_offset

    def saw_end(self, who: str, end_offset: int, at: float) -> None:
        """Somebody looked at the source at this moment."""
        if self._ends.get(who) != end_offset:
            self._ends[who] = end_offset
            self.end_offset = max(self._ends.values())
        if 0 <= self.end_offset <= self.next_offset:
            self.level_at = max(self.level_at, at)
            self.good_at = max(self.good_at, at)

    def begin_again(self, at: float) -> None:
        """It was not to move until this moment."""
        self.good_at = max(self.good_at, at)

    def verdict(
        self,
        now: float,
        *,
        because: str = "",
        clueless_at: float | None = None,
        parked: str = "",
        limit_s: float = LIMIT_S,
    ) -> Verdict:
        """`because`: what is in the way; or, if nothing has been known to be since `clueless_at`, what should have come
        by now. It matters only without progress."""
        still_s = max(now - self.good_at, 0.0)
        if parked:
            return Verdict(Health.PARKED, parked, self.lag, still_s)
        if still_s > limit_s:
            clueless_s = 0.0 if clueless_at is None else min(now - clueless_at, still_s)
            return Verdict(Health.STALLED, because or NO_REASON, self.lag or None, still_s, clueless_s)
        if self.lag is None:
            return Verdict(Health.STARTING, because)
        moving = self.lag > 0 or now - self.moved_at <= limit_s
        return _MOVING if moving else _IDLE


@dataclass(frozen=True, slots=True)
class Summary:
    """A flow's health follows from its partitions'."""

    health: Health
    words: str
    because: str
    counts: Mapping[Health, int]


def summary(verdicts: Mapping[TopicPartition, Verdict]) -> Summary:
    counts = dict.fromkeys(Health, 0)
    for verdict in verdicts.values():
        counts[verdict.health] += 1
    for health in (Health.STALLED, Health.PARKED, Health.STARTING):
        if counts[health]:
            ill = {tp: verdict for tp, verdict in verdicts.items() if verdict.health is health}
            worst = max(ill.values(), key=lambda verdict: verdict.still_s)
            return Summary(health, _words(ill, worst, len(verdicts)), worst.because, counts)
    return Summary(Health.MOVING if counts[Health.MOVING] else Health.IDLE, "", "", counts)


def _words(ill: Mapping[TopicPartition, Verdict], worst: Verdict, of: int) -> str:
    if not worst.words:
        return ""
    names = sorted(tp for tp, verdict in ill.items() if verdict.because == worst.because)
    named = ", ".join(map(str, names[:NAMED])) + (", …" if len(names) > NAMED else "")
    return f"{len(ill)} of {of} partitions {worst.health.value} ({named}): {worst.words}"

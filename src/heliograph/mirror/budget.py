"""What a task may copy in a second: a token bucket for each cap of its flow, filled at the share the task was dealt.

Answers for whether the reading side may ask a broker now, for how many bytes, and if not, when. A cap is held by not
fetching: what was fetched is sent at once. The coordinator deals the shares (`flow.caps`), so that a cap is one figure
however many tasks there are; here a share is a number that changes once a second.

Invariants:
  a. What is taken in any stretch of time is at most share × time + BURST_S × share + what one answer overshot by: a
     broker gives a whole batch however small the rest is, and the bucket goes below zero for it.
  b. A bucket is empty at first: a task that begins again and again gets no more than one that goes on.
  c. History leaves something in the bucket, so a live record never waits for tokens that history took.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from heliograph.policy import cap_of
from heliograph.types import Cap

# What may pile up while nothing is to be copied, an answer is on its way or this process has no turn: half a second of
# thirty is 1.7 %, and a source half a second away still gives all that it may.
BURST_S = 0.5

# Before a live lane is asked for: at a near broker an answer takes a millisecond, and every one would bring a batch.
LIVE_S = 0.02

# Before history is: ten answers a second are large enough to be worth their request, and twice of what it leaves.
HISTORY_S = 0.1
LEFT_S = 0.05

CLOCK_S = 1e-6


@dataclass(slots=True)
class Bucket:
    """Bytes that may be taken; below zero after an answer that was larger than asked for."""

    rate: float  # bytes/s
    level: float = 0.0
    at: float | None = None  # when the level was right; None: not in use yet (invariant b)
    taken: int = 0  # since it was last told
    refused: bool = False  # whether somebody had to wait since then

    def fill(self, now: float) -> float:
        if self.at is not None:
            self.level = min(self.level + max(now - self.at, 0.0) * self.rate, BURST_S * self.rate)
        self.at = now
        return self.level

    def take(self, size: int) -> None:
        self.level -= size
        self.taken += size

    def set_rate(self, rate: float, now: float) -> None:
        """What came in so far came in at the old rate; what is there beyond a burst of the new one is given back."""
        if self.at is not None:
            self.fill(now)
        self.rate = rate
        self.level = min(self.level, BURST_S * rate)

    def full_in(self, seconds_worth: float) -> float:
        """How long until so much is there; 0: it is, as far as a clock can tell."""
        missing_s = seconds_worth - self.level / self.rate
        return missing_s if missing_s > CLOCK_S else 0.0


@dataclass(slots=True)
class Allowance:
    """How much may be asked for; 0: nothing before `due`."""

    bytes: int
    due: float = 0.0


@dataclass(slots=True)
class Budget:
    """The caps that lanes of one task are under. Lanes of one group (`group_of`) are under the same ones: 0 are those
    that no pattern fits, and i + 1 those of the i-th pattern."""

    caps: tuple[Cap, ...] = ()
    shares: Sequence[float] = ()  # bytes/s of each cap for this task; none: all of it
    _buckets: list[Bucket] = field(init=False)

    def __post_init__(self) -> None:
        shares = self.shares or [cap.bytes_per_s for cap in self.caps]
        self._buckets = [Bucket(max(share, 1.0)) for share in shares]

    def group_of(self, topic: str) -> int:
        found = cap_of(self.caps, topic)
        return 0 if found is None else found + 1

    def allowance(self, group: int, most: int, now: float, *, history: bool) -> Allowance:
        """For one answer with lanes of this group, which is not to be larger than `most` in any case."""
        need_s, left_s = (HISTORY_S, LEFT_S) if history else (LIVE_S, 0.0)
        wait_s = 0.0
        for _, bucket in self._over(group):
            bucket.fill(now)
            if (missing_s := bucket.full_in(need_s)) > 0:
                bucket.refused = True
                wait_s = max(wait_s, missing_s)
            most = min(most, int(bucket.level - left_s * bucket.rate))
        return Allowance(0, now + wait_s) if wait_s > 0 else Allowance(max(most, 1))

    def take(self, group: int, size: int) -> None:
        for _, bucket in self._over(group):
            bucket.take(size)

    def reserve(self, group: int, size: int) -> None:
        """For an answer that is on its way and will be full; what is negative is given back when it is here."""
        for _, bucket in self._over(group):
            bucket.level -= size

    def deal(self, shares: Sequence[float], now: float) -> None:
        for bucket, share in zip(self._buckets, shares, strict=False):
            bucket.set_rate(max(share, 1.0), now)

    def told(self) -> list[tuple[int, bool]]:
        """For each cap: bytes taken since this was last asked, and whether that was too little."""
        said = [(bucket.taken, bucket.refused) for bucket in self._buckets]
        for bucket in self._buckets:
            bucket.taken, bucket.refused = 0, False
        return said

    def words(self, group: int) -> str:
        """Why a lane of this group waits."""
        empty = [str(cap) for cap, bucket in self._over(group) if bucket.level < LIVE_S * bucket.rate]
        return f"held back by max.bytes.per.second = {', '.join(empty)}" if empty else ""

    def _over(self, group: int) -> Iterable[tuple[Cap, Bucket]]:
        for index, (cap, bucket) in enumerate(zip(self.caps, self._buckets, strict=True)):
            if cap.topics is None or index == group - 1:
                yield cap, bucket

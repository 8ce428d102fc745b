"""How often somebody may do something: so many at once, and so many a second after that."""

from __future__ import annotations

import time

KEYS = 4096  # clients or users that are remembered


class Bucket:
    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._tokens, self._at = burst, time.monotonic()

    def take(self) -> bool:
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        self._tokens = min(self._tokens + 1, self._burst)

    @property
    def is_full(self) -> bool:
        self._fill()
        return self._tokens >= self._burst

    def _fill(self) -> None:
        now = time.monotonic()
        self._tokens, self._at = min(self._tokens + (now - self._at) * self._per_second, self._burst), now


class Buckets:
    """One for each key. Those that do not fit share one: an attacker with a million addresses has one bucket more.
    Used under its owner's lock."""

    def __init__(self, per_second: float, burst: float, most: int = KEYS) -> None:
        self._per_second, self._burst, self._most = per_second, burst, most
        self._of: dict[str, Bucket] = {}
        self._others = Bucket(per_second, burst)

    def __len__(self) -> int:
        return len(self._of)

    def of(self, key: str) -> Bucket:
        if key not in self._of and len(self._of) >= self._most:
            self._of = {one: bucket for one, bucket in self._of.items() if not bucket.is_full}
        if key not in self._of and len(self._of) < self._most:
            self._of[key] = Bucket(self._per_second, self._burst)
        return self._of.get(key, self._others)

"""How long to wait before trying again: doubling, with jitter, so that many tasks do not come back in step."""

from __future__ import annotations

import random


class Backoff:
    """Seconds to wait, growing from `first_s` to `most_s`."""

    def __init__(self, first_s: float = 0.05, most_s: float = 1.5) -> None:
        self.failures = 0
        self._first_s = first_s
        self._most_s = most_s

    def next_s(self) -> float:
        self.failures += 1
        longest: float = min(self._most_s, self._first_s * 2 ** min(self.failures - 1, 16))
        return longest * random.uniform(0.7, 1.0)

    def reset(self) -> None:
        self.failures = 0

"""Whether this process stood still: stopped by a signal, a debugger or a hypervisor, or starved of CPU.

While a task stood still another one may have taken over its partitions. What the task knew before is then out of date,
and a batch sent on it could be stored a second time by a broker that has forgotten the producer id meanwhile.

Invariant: after a pause longer than FROZEN_S nothing is sent to the target before control messages were read and every
partition went through the producer-state probe again. `mirror.append` asks before each request, `mirror.task` after
each wait. What the sockets had not taken by then is given up with its connections.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Longer than a turn of a busy loop, shorter than any time after which another process may take over.
FROZEN_S = 5.0


class FreezeDetector:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = clock()

    def awake(self) -> bool:
        """Whether the loop has passed here within FROZEN_S."""
        return self._clock() - self._seen <= FROZEN_S

    def passed(self) -> None:
        """The loop is here, and knows of any pause before."""
        self._seen = self._clock()

"""This process's lease of a flow: beaten as long as it runs, and looked after when it slept.

`flow.presence` says what the records are, `flow.tenure` which of two processes keeps a flow. Here is the order in which
a process does things (invariant b of presence):

  a. After LAPSE_S without an acknowledged beat, after LAPSE_S in which this process did not run, and after another
     process has removed its record, it first reads leases and orders (`look`) and, if it keeps the flow, positions
     (`reread`). Only then it beats again, and `holds` is true again.
  b. `lapses` counts how often that happened: what was made before is not used after.
  c. A look that fails is repeated by the next beat; until then the process does not hold the flow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from heliograph.flow.presence import LAPSE_S, Moment, Presence
from heliograph.flow.tenure import Tenure

log = structlog.get_logger()


class Lease:
    def __init__(
        self,
        presence: Presence,
        tenure: Tenure,
        *,
        look: Callable[[], object],
        reread: Callable[[], object],
        now: Callable[[], Moment] = Moment.now,
    ) -> None:
        """`look`: read what is new of leases and orders, and let `tenure` judge; `reread`: positions, and act on what
        was changed. Both raise what keeps them from it."""
        self._presence, self._tenure = presence, tenure
        self._look, self._reread, self._now = look, reread, now
        self._resuming = threading.Lock()
        self._ran_at = now()
        self._lapsed_at: Moment | None = None  # the last beat before the silence that was noticed
        self.frozen = False  # this process did not run for LAPSE_S, and has not looked since
        self.lapses = 0

    def begin(self) -> None:
        """From now on it is beaten."""
        self._presence.beat_at = self._ran_at = self._now()

    def beat(self) -> None:
        try:
            if self.holds():
                self._presence.beat()
        finally:
            self._ran_at = self._now()  # a call that failed after a minute was no freeze

    def holds(self) -> bool:
        """Whether this process may go on. Raises what keeps it from looking."""
        now = self._now()
        self.frozen = self.frozen or now.since(self._ran_at) > LAPSE_S
        silent = now.since(self._presence.beat_at) > LAPSE_S
        if not (silent or self.frozen or self._tenure.lapsed or self._tenure.removed):
            return not self._tenure.gone
        with self._resuming:
            return self._resume()

    @property
    def silent_s(self) -> float:
        """Since the last beat that the target acknowledged."""
        return self._now().since(self._presence.beat_at)

    def _resume(self) -> bool:
        before = self._presence.beat_at
        if self._tenure.removed or self._lapsed_at != before:  # once for each silence
            self._lapsed_at = before
            self._tenure.lapse()
            log.warning(
                "this process was silent longer than its lease: reading leases, orders and positions again",
                flow=self._presence.flow.name,
                silent_s=round(self._now().since(before), 1),
            )
        self._look()
        if self._tenure.gone or self._tenure.lapsed:
            return False
        self.lapses += 1
        self._reread()
        self._presence.beat()
        self.frozen = False
        return True

"""A flow's recurring work beside the copying, each on a thread of its own: one that hangs delays no other.

A chore that fails is tried again at its next turn; what went wrong is said when it changes, not every time, and
stands in the flow's status until a turn goes well. That holds for whatever a turn raises: a chore ends when it is
stopped, and never by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from heliograph.errors import HeliographError
from heliograph.wire.internal_errors import InternalErrors

log = structlog.get_logger()

SOONEST_AGAIN_S = 0.05  # between two turns, whatever the interval says


class Chore:
    """`action` every `interval_s`, the first time after `delay_s`."""

    def __init__(
        self,
        flow: str,
        what: str,
        action: Callable[[], object],
        *,
        interval_s: float,
        delay_s: float = 0.0,
    ) -> None:
        self.what = what
        self.trouble: HeliographError | None = None
        self._flow, self._action = flow, action
        self._interval_s, self._delay_s = interval_s, delay_s
        self._internal_errors = InternalErrors(what)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{what}-{flow}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic() + self._delay_s
        while not self._stop.wait(max(due - time.monotonic(), SOONEST_AGAIN_S)):
            due = max(due + self._interval_s, time.monotonic())
            try:
                self._action()
            except HeliographError as error:
                self._troubled(error)
            except BaseException as error:  # noqa: BLE001 - the top of the thread: must not end it, nor be silent
                self._troubled(self._internal_errors.answer(error, flow=self._flow))
            else:
                if self.trouble is not None:
                    log.info("goes on", flow=self._flow, chore=self.what)
                self.trouble = None

    def _troubled(self, error: HeliographError) -> None:
        if self._stop.is_set():
            return
        if self.trouble is None or self.trouble.message != error.message:
            log.warning("trouble", flow=self._flow, chore=self.what, condition=error.condition, why=str(error))
        self.trouble = error

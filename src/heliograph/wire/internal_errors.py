"""Exceptions that no code foresaw, turned into InternalError at the top of a background thread.

Invariant: a background thread that works for callers answers each of them and does not end because of one call. So the
top of such a thread catches everything, answers with an InternalError and goes on. BaseException counts: Rust panics
(cryptography, cramjam) derive from it, and SystemExit in a background thread would end that thread without a word.
"""

from __future__ import annotations

from typing import Any

import structlog

from heliograph.errors import InternalError

log = structlog.get_logger()


class InternalErrors:
    """Of one background thread, or of threads that do the same. Logs each traceback once: calls are repeated."""

    def __init__(self, thread: str) -> None:
        self._thread = thread
        self._logged: set[tuple[type[BaseException], str, int]] = set()

    def answer(self, error: BaseException, **context: Any) -> InternalError:
        """The error for the caller. `context`: cluster, broker, topic, as known."""
        raised_at = _raised_at(error)
        if (type(error), *raised_at) not in self._logged:
            self._logged.add((type(error), *raised_at))
            log.error(
                "unforeseen exception, answered as INTERNAL_ERROR", thread=self._thread, exc_info=error, **context
            )
        return InternalError(
            f"{self._thread}: unforeseen {type(error).__name__}: {error}",
            fix="This is a bug of Heliograph: report it with the traceback in the log",
            **context,
        )


def _raised_at(error: BaseException) -> tuple[str, int]:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)

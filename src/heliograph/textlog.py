"""Logs as text, for a terminal and for the files of Spark's executors: nothing foreign in them reaches it raw."""

from __future__ import annotations

import io
from typing import Any, TextIO

import structlog

from heliograph.escaping import escape_event, escape_lines


def text_renderers(*, colors: bool) -> list[Any]:
    """The last of structlog's processors."""
    return [escape_event, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=_traceback)]


def _traceback(out: TextIO, exc_info: Any) -> None:
    """An exception's words may be a broker's."""
    plain = io.StringIO()
    structlog.dev.plain_traceback(plain, exc_info)
    out.write(escape_lines(plain.getvalue()))

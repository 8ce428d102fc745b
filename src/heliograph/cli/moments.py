"""Where to begin or end, as `--from` and `--until` take it: an offset, a time, a time ago, or a word. Pure.

`-5m` and its like are from now; `WHERE` of the configuration (`offset:1200`, `timestamp:…`) is understood too.
"""

from __future__ import annotations

import re

from heliograph.config.starts import point
from heliograph.types import StartPoint

FORMS = "beginning, end, an offset (1200), a time (2026-11-01T00:00:00Z) or a time ago (-5m, -2h, -1d)"
_WORDS = {"beginning": "earliest", "start": "earliest", "end": "latest"}
_NUMBER = re.compile(r"[0-9]{1,18}")
_AGO = re.compile(r"([+-])((?:[0-9]{1,12}(?:ms|s|m|h|d|w))+)")
_PART = re.compile(r"([0-9]+)(ms|[smhdw])")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


def moment(text: str, now_ms: int) -> StartPoint:
    """Raises ValueError with the reason."""
    text = text.strip()
    if text in _WORDS:
        return point(_WORDS[text])
    if text == "now":
        return StartPoint("timestamp", now_ms)
    if _NUMBER.fullmatch(text):
        return StartPoint("offset", int(text))
    if (ago := _AGO.fullmatch(text)) is not None:
        away_ms = sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(ago[2]))
        return StartPoint("timestamp", max(now_ms + (away_ms if ago[1] == "+" else -away_ms), 0))
    if re.fullmatch(r"-[0-9]+", text):
        raise ValueError(
            f"{text} could be a time or a number of messages: write {text}s or {text}m, or --last {text[1:]}"
        )
    try:
        return point(text if text.startswith(("earliest", "latest", "timestamp:", "offset:")) else f"timestamp:{text}")
    except ValueError as problem:
        raise ValueError(f"{problem}. It may be {FORMS}") from None

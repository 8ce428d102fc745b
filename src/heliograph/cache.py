"""Where Heliograph keeps what can be fetched or made again: Kafka's jars, class archives. Nothing here writes."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """In the user's cache folder; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "heliograph"

"""Where Heliograph keeps what can be made again: Kafka's jars, class archives, what Spark needs while it runs. Nothing
here writes."""

from __future__ import annotations

import os
from pathlib import Path

SPARK_FOLDER = "heliograph-spark-"  # begins the name of a process's temporary folder; its id follows


def folder() -> Path:
    """In the user's cache folder; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "heliograph"

"""Which changes of a topic's settings would delete records that the topic keeps now. Pure.

What counts, because it is a promise to keep records:

- `retention.ms`, `retention.bytes`: lower is shorter; -1 is unlimited.
- `delete.retention.ms`: tombstones go sooner, and a reader that is behind never learns that a key was deleted.
- `min.compaction.lag.ms`: superseded records go sooner, and a reader that is behind misses updates.
- `cleanup.policy`: `delete` added where the retention is limited takes every record older than that, the last one of a
  key included; `compact` added takes all but the last record of each key, where the topic kept them.
- `remote.storage.enable` from true to false: Kafka deletes the remote segments (KIP-950).

What does not count: `local.retention.*` (records stay in remote storage), `max.compaction.lag.ms`,
`min.cleanable.dirty.ratio` and `segment.*` (when a record goes that may go anyway), `file.delete.delay.ms`.

Invariant: where a value cannot be compared (missing, not a number), the change counts as one that deletes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

RETENTION_MS, RETENTION_BYTES = "retention.ms", "retention.bytes"
CLEANUP_POLICY, REMOTE_STORAGE = "cleanup.policy", "remote.storage.enable"
_HAVE_UNLIMITED = (RETENTION_MS, RETENTION_BYTES)
_HIGHER_KEEPS_LONGER = (RETENTION_MS, RETENTION_BYTES, "delete.retention.ms", "min.compaction.lag.ms")
KEYS = (*_HIGHER_KEEPS_LONGER, CLEANUP_POLICY, REMOTE_STORAGE)


def loses(key: str, now: str | None, then: str | None) -> str:
    """What this change would delete; nothing: no record. `cleanup.policy` is judged by `loses_by_policy`."""
    if now == then or key not in KEYS:
        return ""
    if key == REMOTE_STORAGE:
        return "records in remote storage would be deleted" if now == "true" and then != "true" else ""
    before, after = _kept(key, now), _kept(key, then)
    if before is not None and after is not None and after >= before:
        return ""
    if key in _HAVE_UNLIMITED:
        return "records would be deleted sooner"
    return "superseded records and tombstones would be deleted sooner"


def loses_by_policy(now: str | None, then: str | None, *, archive: bool, unlimited_then: bool) -> str:
    """What a change of `cleanup.policy` would delete. `archive`: the topic keeps all its records, or keeps them for
    longer than its source would; `unlimited_then`: its retention has no limit after the change."""
    before, after = _policies(now), _policies(then)
    added = after - before
    if "delete" in added and not unlimited_then:
        return "records older than its retention would be deleted, the last one of a key included"
    if "compact" in added and archive:
        return "all but the last record of each key would be deleted"
    return ""


def is_unlimited(settings: Mapping[str, str | None]) -> bool:
    return all(settings.get(key) == "-1" for key in _HAVE_UNLIMITED)


def _kept(key: str, text: str | None) -> float | None:
    """How much is kept, in the setting's unit."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return math.inf if number == -1 and key in _HAVE_UNLIMITED else number


def _policies(text: str | None) -> set[str]:
    return {part.strip() for part in (text or "").split(",")} - {"", "none"}

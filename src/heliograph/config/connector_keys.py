"""The keys of a connector's JSON: which of the table's they are, whether they are known, which values may be shown."""

from __future__ import annotations

from heliograph.config import clients, keys, place
from heliograph.config.shape import Key, Scope
from heliograph.types import is_secret

_FAMILIES = (
    *("config.providers", "topic.creation.", "value.converter", "key.converter", "header.converter"),
    *("transforms", "predicates", "errors."),
)
_OF_TASKS = ("task.class", "task.index", "task.assigned.")  # what MM2's connectors add to their tasks' configurations


def find(key: str) -> Key | None:
    """The key of the table that a connector's key is, if it is one."""
    bare = of_cluster(key)
    if bare is not None:
        return keys.find(bare, (Scope.CLIENT,))
    found = keys.find(key, (Scope.FLOW,))
    return None if found is not None and found.name in ("source.cluster.*", "target.cluster.*") else found


def is_known(key: str) -> bool:
    """Whether Connect or MM2 has such a key, of any effect."""
    if key.startswith(("security.", "ssl.", "sasl.", *_FAMILIES)):
        return True
    return _is_of_client(key)


def is_shown(key: str) -> bool:
    """Whether readers may see its value. Not that of an unknown key: it may be a password under a mistyped name."""
    if is_secret(key):
        return False
    return find(key) is not None or key.startswith((*_FAMILIES, *_OF_TASKS)) or _is_of_client(key)


def _is_of_client(key: str) -> bool:
    part = place.Place(key, flow=("", "")).client_part
    if part is not None:
        return clients.knows(part.client, part.rest) or keys.find(part.rest, (Scope.CLIENT,)) is not None
    bare = of_cluster(key) or key
    return clients.client_of(bare) is not None or keys.find(bare, (Scope.CLIENT,)) is not None


def of_cluster(key: str) -> str | None:
    """`bootstrap.servers` of `source.cluster.bootstrap.servers`."""
    for prefix in ("source.cluster.", "target.cluster."):
        if key.startswith(prefix) and key not in keys.FLOW_ALIASES:
            return key.removeprefix(prefix)
    return None

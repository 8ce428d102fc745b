"""Where a key of the file stands: at the top level, under a cluster's alias, or under a flow.

Answers for taking `us.consumer.isolation.level` and `us->eu.topics` apart, given the declared aliases, and for finding
the key of the table that is meant there.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass

from heliograph.config import keys
from heliograph.config.keys import Key, Scope

ARROW = "->"
CLIENTS = ("consumer", "producer", "admin")


@dataclass(frozen=True, slots=True)
class Place:
    name: str  # what is left of the key
    alias: str | None = None  # `<alias>.<name>`
    flow: tuple[str, str] | None = None  # `<source>-><target>.<name>`

    @property
    def prefix(self) -> str:
        if self.flow:
            return f"{ARROW.join(self.flow)}."
        return "" if self.alias is None else f"{self.alias}."

    @property
    def scopes(self) -> tuple[Scope, ...]:
        if self.flow:
            return (Scope.FLOW, Scope.CLIENT)
        if self.alias is not None:
            return (Scope.CLUSTER, Scope.CLIENT)
        return (Scope.GLOBAL, Scope.FLOW, Scope.CLIENT, Scope.CLUSTER)

    @property
    def client(self) -> tuple[str, str] | None:
        """(`consumer`, `ssl.protocol`) for `consumer.ssl.protocol`."""
        head, _, rest = self.name.partition(".")
        return (head, rest) if head in CLIENTS and rest else None


def locate(key: str, aliases: Collection[str]) -> Place:
    if ARROW in key:
        source, rest = key.split(ARROW, 1)
        declared = [alias for alias in aliases if rest.startswith(f"{alias}.")]
        target = max(declared, key=len, default=rest.partition(".")[0])
        return Place(rest[len(target) + 1 :], flow=(source, target))
    declared = [alias for alias in aliases if key.startswith(f"{alias}.")]
    if declared:
        alias = max(declared, key=len)
        return Place(key[len(alias) + 1 :], alias=alias)
    return Place(key)


def find(place: Place) -> Key | None:
    if place.flow and place.name == f"source.{keys.ISOLATION.name}":
        return keys.ISOLATION
    found = keys.find(place.name, place.scopes)
    if place.client and (found is None or found.is_family):
        # `us.consumer.ssl.protocol` is a security key of one client
        return keys.find(place.client[1], (Scope.CLIENT,)) or found
    return found


def has_no_effect(key: Key, place: Place) -> str | None:
    """Why MM2 drops this key here, without a word, and so do we, with one."""
    top_level = place.alias is None and place.flow is None
    if top_level and key.flow_only:
        return f"has an effect only under a flow: A{ARROW}B.{place.name}"
    if top_level and key is keys.ISOLATION:
        return f"has an effect only under the source's alias: <alias>.{place.name}"
    if top_level and key.scope is Scope.CLUSTER and not place.name.startswith(keys.WORKER_PREFIXES):
        return f"has an effect only under the target's alias: <alias>.{place.name}"
    if place.flow and key.scope is Scope.CLIENT and key is not keys.ISOLATION:
        return f"has an effect only for a cluster: {place.flow[0]}.{place.name} or {place.flow[1]}.{place.name}"
    return None


def misplaced(place: Place) -> str | None:
    """The same for a key that exists, but in another scope."""
    if place.alias is not None and keys.find(place.name, (Scope.FLOW,)):
        return f"has no effect under a cluster: write {place.name}, or A{ARROW}B.{place.name} for one flow"
    if place.flow and keys.find(place.name, (Scope.CLUSTER,)):
        return f"has an effect only under the target's alias: {place.flow[1]}.{place.name}"
    if (place.flow or place.alias is not None) and keys.find(place.name, (Scope.GLOBAL,)):
        return f"has an effect only at the top level: {place.name}"
    return None


def nearest(place: Place, aliases: Collection[str]) -> str | None:
    """The known key that this one may have been meant to be, with its prefix."""
    head, _, rest = place.name.partition(".")
    if place.alias is None and not place.flow and keys.find(rest, (Scope.CLUSTER, Scope.CLIENT)):
        alias = nearest_alias(head, aliases)
        if alias:
            return f"{alias}.{rest}"
    near = keys.nearest(place.name, place.scopes)
    return f"{place.prefix}{near}" if near else None


def nearest_alias(alias: str, aliases: Collection[str]) -> str | None:
    return next(iter(difflib.get_close_matches(alias, list(aliases), n=1, cutoff=0.5)), None)

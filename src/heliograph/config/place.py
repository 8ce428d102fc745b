"""Where a key of the file stands (at the top level, under a cluster's alias, under a flow), and what it is there.

Answers for taking `us.consumer.isolation.level` and `us->eu.topics` apart, given the declared aliases, and for the
judgement: honoured, known with nothing to act on, known but useless in this place, unknown. A key that MM2 knows is
never judged unknown, wherever it stands.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from heliograph.config import clients, keys
from heliograph.config.shape import Key, Scope

ARROW = "->"


class Standing(Enum):
    HONOURED = "honoured"
    MOOT = "known to MM2, without effect here"
    USELESS = "known, in a place where MM2 drops it"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    standing: Standing
    key: Key | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClientPart:
    """`consumer.fetch.min.bytes`, `source.consumer.…`, `producer.override.…` taken apart."""

    client: str
    rest: str
    side: str = ""  # source, target
    override: bool = False


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
            return (Scope.FLOW,)
        if self.alias is not None:
            return (Scope.CLUSTER, Scope.CLIENT)
        return (Scope.GLOBAL, Scope.FLOW, Scope.CLIENT, Scope.CLUSTER)

    @property
    def client_part(self) -> ClientPart | None:
        name, side = self.name, ""
        head, _, rest = name.partition(".")
        if self.flow and head in ("source", "target"):
            name, side = rest, head
        client, _, rest = name.partition(".")
        if client not in clients.CLIENTS or not rest:
            return None
        override = self.alias is None and not side and rest.startswith("override.")
        return ClientPart(client, rest.removeprefix("override.") if override else rest, side, override)


def locate(key: str, aliases: Collection[str]) -> Place:
    if ARROW in key:
        source, rest = key.split(ARROW, 1)
        declared = [alias for alias in aliases if rest.startswith(f"{alias}.")]
        target = max(declared, key=len, default=rest.partition(".")[0])
        return Place(rest[len(target) + 1 :], flow=(source, target))
    declared = [alias for alias in aliases if key.startswith(f"{alias}.")]
    if declared and key not in keys.FLOW_NAMES:
        alias = max(declared, key=len)
        return Place(key[len(alias) + 1 :], alias=alias)
    return Place(key)


def judge(place: Place) -> Verdict:
    key = keys.find(place.name, place.scopes)
    if key is None or key.is_family:
        part = place.client_part
        elsewhere = keys.find(place.name, tuple(Scope))
        if part and (elsewhere is None or elsewhere.is_family or elsewhere.scope is Scope.CLIENT):
            return _judge_client(place, part)
    if key is None:
        why = _misplaced(place)
        return Verdict(Standing.USELESS, None, why) if why else Verdict(Standing.UNKNOWN)
    why = _has_no_effect(key, place)
    if why:
        return Verdict(Standing.USELESS, key, why)
    return Verdict(Standing.HONOURED if key.honoured else Standing.MOOT, key)


def _judge_client(place: Place, part: ClientPart) -> Verdict:
    special = keys.find(f"{part.client}.{part.rest}", (Scope.CLIENT,))
    security = keys.find(part.rest, (Scope.CLIENT,))
    key = special or security
    top_level = place.alias is None and place.flow is None
    if key is None and not clients.knows(part.client, part.rest):
        if clients.client_of(part.rest) or keys.find(part.rest, tuple(Scope)):
            return Verdict(Standing.USELESS, None, f"Kafka's {part.client} has no such setting")
        return Verdict(Standing.UNKNOWN)
    if top_level:
        where = f"A{ARROW}B" if part.override else "<alias>"
        return Verdict(Standing.USELESS, key, f"MM2 drops it at the top level: write {where}.{place.name}")
    # MM2 writes records with the worker's producer, which a flow reaches only through `producer.override.`
    writes = part.client == "producer" and (place.alias is not None or part.override)
    reads = part.client == "consumer" and part.side != "target" and not part.override
    used = reads if special else reads or writes
    return Verdict(Standing.HONOURED if key is not None and key.honoured and used else Standing.MOOT, key)


def _has_no_effect(key: Key, place: Place) -> str | None:
    """Why MM2 drops this key here, without a word, and so do we, with one."""
    if place.alias is not None or place.flow:
        return None
    if key.flow_only:
        return f"MM2 drops it at the top level, it has an effect only under a flow: A{ARROW}B.{place.name}"
    if key.name.startswith("consumer.") and key.scope is Scope.CLIENT:
        return f"MM2 drops it at the top level, it has an effect only under the source's alias: <alias>.{place.name}"
    if key.scope is Scope.CLUSTER and not place.name.startswith(keys.WORKER_PREFIXES):
        return f"MM2 drops it at the top level, it has an effect only under the target's alias: <alias>.{place.name}"
    return None


def _misplaced(place: Place) -> str | None:
    """The same for a key that exists, but in another scope."""
    client = clients.client_of(place.name)
    if place.flow and keys.find(place.name, (Scope.CLIENT,)):
        source, target = place.flow
        return f"has an effect only for a cluster: {source}.{place.name} or {target}.{place.name}"
    if place.flow and keys.find(place.name, (Scope.CLUSTER,)):
        return f"has an effect only under the target's alias: {place.flow[1]}.{place.name}"
    if place.alias is not None and keys.find(place.name, (Scope.FLOW,)):
        return f"has no effect under a cluster: write {place.name}, or A{ARROW}B.{place.name} for one flow"
    if keys.find(place.name, (Scope.GLOBAL,)):
        return f"has an effect only at the top level: {place.name}"
    if client:
        alias = place.alias or (place.flow[0] if place.flow else "<alias>")
        return f"a setting of Kafka's clients that reaches none from here: {alias}.{client}.{place.name}"
    return None


def nearest(place: Place, aliases: Collection[str]) -> str | None:
    """The known key that this one may have been meant to be, with its prefix."""
    head, _, rest = place.name.partition(".")
    if place.alias is None and not place.flow and keys.find(rest, (Scope.CLUSTER, Scope.CLIENT)):
        alias = nearest_alias(head, aliases)
        if alias:
            return f"{alias}.{rest}"
    part = place.client_part
    if part:
        known = {key.name for key in keys.KEYS if key.scope is Scope.CLIENT and not key.is_family}
        near = difflib.get_close_matches(part.rest, sorted(known | clients.names_of(part.client)), n=1, cutoff=0.7)
        if near:
            return f"{place.prefix}{place.name.removesuffix(part.rest)}{near[0]}"
    found = keys.nearest(place.name, place.scopes)
    return f"{place.prefix}{found}" if found else None


def nearest_alias(alias: str, aliases: Collection[str]) -> str | None:
    return next(iter(difflib.get_close_matches(alias, list(aliases), n=1, cutoff=0.5)), None)

"""What an edited file changes, flow by flow and key by key, in words that may be shown: secrets are masked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from heliograph.config.model import Config, Explained
from heliograph.types import Cluster, Flow

MASK = "***"


@dataclass(frozen=True, slots=True)
class Difference:
    """One effective value; None: there was none, or there is none any more."""

    key: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        old = "(unset)" if self.old is None else self.old or "(empty)"
        new = "(unset)" if self.new is None else self.new or "(empty)"
        return f"{self.key}: {old} -> {new}" + (" (changed)" if old == new else "")


def differences(old: Config, new: Config) -> dict[str, tuple[Difference, ...]]:
    """Of the flows that are in both, those that differ; what is added or removed is not explained by keys."""
    before, after = _flows(old), _flows(new)
    found: dict[str, tuple[Difference, ...]] = {}
    for name in before.keys() & after.keys():
        rows = _rows(old.explained.get(name, ()), new.explained.get(name, ()))
        rows += _masked(before[name], after[name], {row.key for row in rows})
        if rows:
            found[name] = tuple(rows)
    return found


def _flows(config: Config) -> dict[str, Flow]:
    return {flow.name: flow for flow in (*config.flows, *config.heartbeat_only)}


def _rows(old: tuple[Explained, ...], new: tuple[Explained, ...]) -> list[Difference]:
    before, after = _values(old), _values(new)
    keys = [*before, *(key for key in after if key not in before)]
    return [Difference(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


def _values(rows: tuple[Explained, ...]) -> dict[str, str]:
    return {row.key: row.value for row in rows}


def _masked(old: Flow, new: Flow, shown: set[str]) -> list[Difference]:
    """Masked values look alike whatever they are: secrets, and all that a config provider answered."""
    found = []
    for side in ("source", "target"):
        before, after = _properties(getattr(old, side)), _properties(getattr(new, side))
        both = [f"{side}: {key}" for key in before if key in after and before[key] != after[key]]
        found += [Difference(key, MASK, MASK) for key in both if key not in shown]
    if not found and not shown:
        others = [one.name for one in fields(Flow) if getattr(old, one.name) != getattr(new, one.name)]
        found = [Difference(name.replace("_", "."), MASK, MASK) for name in others]
    return found


def _properties(cluster: Cluster) -> Mapping[str, str]:
    return cluster.properties

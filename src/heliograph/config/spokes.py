"""The spokes of a file: which there are, and the file with one more or one less. Pure.

A spoke is a pair whose topics are multiplexed. Answers for which flows are whose, for which lines come and go, and for
proving that the other flows are as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heliograph.config import edit
from heliograph.config.keys import nearest_of
from heliograph.config.load import parse
from heliograph.config.model import Config
from heliograph.config.place import ARROW, locate
from heliograph.errors import ConfigError
from heliograph.types import Cap, Demux, Flow


@dataclass(frozen=True, slots=True)
class Spoke:
    alias: str
    hub: str
    mux: Flow
    own: Flow | None  # the pair's: it carries the shared topic over, if that lies on the spoke
    demux: Flow | None  # the hub's, with all its spokes; None: nothing is put back
    rule: Demux | None

    @property
    def name(self) -> str:
        return f"{self.alias}{ARROW}{self.hub}"

    @property
    def intermediate(self) -> bool:
        return self.mux.target.alias == self.alias

    @property
    def weight(self) -> int:
        return 1 if self.rule is None else self.rule.weight

    @property
    def cap(self) -> Cap | None:
        """The narrowest of those that its records are under as a whole."""
        carried = self.own if self.intermediate else self.mux
        whole = [cap for cap in (carried.caps if carried else ()) if cap.topics is None]
        shared = self.rule.topic.replace(".", r"\.") if self.rule else None
        back = [cap for cap in (self.demux.caps if self.demux else ()) if cap.topics == shared]
        return min([*whole, *back], key=lambda cap: cap.bytes_per_s, default=None)


@dataclass(frozen=True, slots=True)
class Wish:
    """A spoke to be."""

    alias: str
    hub: str
    topics: str
    bootstrap: str = ""  # "": the file has it
    properties: Mapping[str, str] = field(default_factory=dict)  # of the cluster
    settings: Mapping[str, str] = field(default_factory=dict)  # of the pair


def spokes_of(config: Config) -> list[Spoke]:
    found = []
    for mux in (flow for flow in config.flows if flow.mux is not None):
        alias, hub = mux.source.alias, mux.mux.hub if mux.mux else ""
        plain = (flow for flow in config.flows if not flow.staged)
        own = next((flow for flow in plain if (flow.source.alias, flow.target.alias) == (alias, hub)), None)
        backs = (flow for flow in config.flows if flow.demux and flow.target.alias == hub)
        pairs = ((flow, rule) for flow in backs for rule in flow.demux if rule.spoke.alias == alias)
        demux, rule = next(pairs, (None, None))
        found.append(Spoke(alias, hub, mux, own, demux, rule))
    return found


def spoke_of(config: Config, alias: str, hub: str = "") -> Spoke:
    there = spokes_of(config)
    found = [one for one in there if one.alias == alias and hub in ("", one.hub)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{alias} is a spoke of {', '.join(one.hub for one in found)}", fix="say which: --hub ALIAS")
    near = nearest_of(alias, [one.alias for one in there])
    names = ", ".join(one.name for one in there) or "none: no pair has mux.topics"
    raise ConfigError(f"{alias} is no spoke of this file", fix=f"did you mean {near}?" if near else f"there is {names}")


def hub_of(config: Config) -> str:
    """Where spokes go, if that is one cluster."""
    hubs = sorted({one.hub for one in spokes_of(config)})
    if len(hubs) != 1:
        why = f"the file has several hubs: {', '.join(hubs)}" if hubs else "the file has no hub yet"
        raise ConfigError(why, fix="say which cluster it is: --hub ALIAS")
    return hubs[0]


def with_spoke(data: bytes, source: str, wish: Wish, *, lenient: bool = False) -> bytes:
    before = parse(data, source, lenient=lenient)
    if any((one.alias, one.hub) == (wish.alias, wish.hub) for one in spokes_of(before)):
        fix = f"edit {wish.alias}{ARROW}{wish.hub}.* in the file, then: heliograph apply {source}"
        raise ConfigError(f"{wish.alias} is a spoke of {wish.hub} already", fix=fix)
    if wish.hub not in before.clusters:
        raise ConfigError(f"no cluster {wish.hub!r} is in the file: there is {', '.join(before.clusters)}")
    known = before.clusters.get(wish.alias)
    if known is None and not wish.bootstrap:
        raise ConfigError(f"{wish.alias} is not in the file yet", fix="say where it is: --bootstrap-servers HOST:PORT")
    if known is not None and (wish.bootstrap or wish.properties):
        fix = "leave out --bootstrap-servers and --property, or change them in the file"
        raise ConfigError(f"{wish.alias} is in the file already, at {known.bootstrap}", fix=fix)
    cluster = {"bootstrap.servers": wish.bootstrap, **wish.properties} if known is None else {}
    entries = {f"{wish.alias}.{key}": value for key, value in cluster.items()}
    pair = {"enabled": "true", "mux.topics": wish.topics, **wish.settings}
    entries |= {f"{wish.alias}{ARROW}{wish.hub}.{key}": value for key, value in pair.items()}
    _refuse_standing(data, entries)
    after = edit.add(data, entries, alias="" if known else wish.alias)
    new = parse(after, source, lenient=lenient)
    spoke_of(new, wish.alias, wish.hub)
    _prove_others(before, new, wish.alias)
    return after


def without_spoke(data: bytes, source: str, spoke: Spoke, *, lenient: bool = False) -> bytes:
    """The pair's lines go; the cluster's too, if no other pair names it."""
    before = parse(data, source, lenient=lenient)
    alias, pair = spoke.alias, (spoke.alias, spoke.hub)
    copying = [flow for flow in before.flows if flow not in (spoke.mux, spoke.own)]
    gone = not any(alias in (flow.source.alias, flow.target.alias) for flow in copying)

    def drops(key: str) -> bool:
        where = locate(key, before.clusters)
        return where.flow == pair or (gone and (where.alias == alias or alias in (where.flow or ())))

    after = edit.remove(data, drops, alias=alias if gone else "")
    new = parse(after, source, lenient=lenient)
    if any(one.name == spoke.name for one in spokes_of(new)):
        raise ConfigError(
            f"{spoke.name} is still there without its lines: keys for all pairs enable it",
            fix="edit the file by hand, then: heliograph apply FILE",
        )
    _prove_others(before, new, alias)
    return after


def _refuse_standing(data: bytes, entries: Mapping[str, str]) -> None:
    there = edit.keys_of(data)
    if standing := [key for key in entries if key in there]:
        fix = f"remove {'it' if len(standing) == 1 else 'these'} first, or edit the file by hand"
        raise ConfigError(f"{', '.join(standing)} is in the file already", fix=fix)


def _prove_others(old: Config, new: Config, alias: str) -> None:
    """No flow but this spoke's is another one; of a hub's own, the other spokes' rules are what they were."""
    before, after = _others(old, alias), _others(new, alias)
    touched = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    if touched:
        fix = "edit the file by hand, then: heliograph apply FILE"
        raise ConfigError(f"{', '.join(touched)} would change too", fix=fix)


def _others(config: Config, alias: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for flow in (*config.flows, *config.heartbeat_only):
        if flow.demux:
            rules = [replace(rule, shared=()) for rule in flow.demux if rule.spoke.alias != alias]
            found |= {flow.name: (flow.source, flow.positions_topic, rules)} if rules else {}
        elif alias not in (flow.source.alias, flow.target.alias):
            found[flow.name] = flow
    return found

"""An mm2.properties file read into clusters and flows.

Answers for MM2's order of resolution (the nearer prefix wins), for finding every problem of a file in one go and naming
each with its line, value and nearest known key, and for the warnings. It opens no connection.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import TypeVar

from heliograph.config import keys, place, properties, values
from heliograph.config.keys import Key, Scope
from heliograph.config.model import Config
from heliograph.config.place import ARROW, Place
from heliograph.config.properties import Entry
from heliograph.errors import ConfigError
from heliograph.types import Cluster, Flow, Isolation, is_secret

T = TypeVar("T")

# `refresh.topics.enabled=false` as an interval: ten years, which every timer can hold.
NEVER_S = 10 * 365 * 86_400.0

_TOPIC_CHARACTERS = re.compile(r"[a-zA-Z0-9._-]*")
_PROVIDER = re.compile(r"\$\{([^}:]+):")


def load(path: str | os.PathLike[str]) -> Config:
    source = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise ConfigError(f"{source}: cannot be read: {problem.strerror or problem}") from problem
    except ValueError as problem:  # a NUL in the name
        raise ConfigError(f"{source!r}: not a file name: {problem}") from problem
    return parse(data, source)


def parse(data: bytes, source: str = "mm2.properties") -> Config:
    return _Reading(properties.parse(data), source).config()


class _Reading:
    """One file on its way to a Config. Problems and warnings gather here; values that were refused count as absent."""

    def __init__(self, file: properties.Properties, source: str) -> None:
        self.source = source
        self.entries = file.entries
        self.refused: set[str] = set()
        self.problems: list[tuple[int, str]] = []
        self.warnings: list[str] = []
        for line, reason in file.malformed:
            self.problems.append((line, f"{source}:{line}: {reason}"))
        for entry in file.repeated:
            winner = self.entries[entry.key]
            self.warnings.append(f"{source}:{entry.line}: {entry.key} stands again on line {winner.line}, which wins")

    def config(self) -> Config:
        aliases = self._aliases()
        if aliases:
            self._check_keys(aliases)
        clusters = {alias: self._cluster(alias) for alias in aliases}
        flows = tuple(self._flow(pair) for pair in self._enabled(aliases)) if aliases else ()
        if aliases and not flows and not self.problems:
            example = f"{aliases[0]}{ARROW}{aliases[1] if len(aliases) > 1 else '<another alias>'}.enabled = true"
            self._problem(0, f"no flow is enabled: add a line such as {example}")
        if self.problems:
            texts = list(dict.fromkeys(_escaped(text) for _, text in sorted(self.problems)))
            raise ConfigError(texts, source=self.source if len(texts) > 1 else "")
        return Config(clusters, flows, tuple(dict.fromkeys(map(_escaped, self.warnings))))

    # ---- saying what is wrong ----

    def _problem(self, line: int, text: str) -> None:
        self.problems.append((line, f"{self.source}:{line}: {text}" if line else f"{self.source}: {text}"))

    def _refuse(self, entry: Entry, reason: str, near: str | None = None) -> None:
        self.refused.add(entry.key)
        self._problem(entry.line, f"{_shown(entry)}: {reason}" + (f"; did you mean {near}?" if near else ""))

    def _warn(self, entry: Entry, reason: str, near: str | None = None) -> None:
        text = f"{self.source}:{entry.line}: {_printable(entry.key)}: {reason}"
        self.warnings.append(text + (f"; did you mean {near}?" if near else ""))

    # ---- aliases ----

    def _aliases(self) -> list[str]:
        entry = self.entries.get("clusters")
        aliases = list(dict.fromkeys(values.split(entry.value))) if entry else []
        if not aliases:
            self._missing_clusters(entry)
        for alias in aliases if entry else []:
            reason = _bad_alias(alias)
            if reason and entry:
                self._problem(entry.line, f"{_shown(entry)}: {reason}")
        return aliases

    def _missing_clusters(self, entry: Entry | None) -> None:
        named = [key.removesuffix(".bootstrap.servers") for key in self.entries if key.endswith(".bootstrap.servers")]
        example = f"clusters = {_printable(', '.join(named) or 'us, eu')}"
        near = next((e for key, e in self.entries.items() if keys.nearest(key) == "clusters"), None)
        if entry:
            self._problem(entry.line, f"clusters names no alias: write {example}")
        elif near:
            self._refuse(near, "not a key, and clusters is missing", f"clusters = {near.value}")
        else:
            self._problem(0, f"clusters is missing: add the line {example}")

    # ---- keys, one by one ----

    def _check_keys(self, aliases: list[str]) -> None:
        waiting: list[Entry] = []
        bad_flows: set[tuple[str, str]] = set()
        for entry in self.entries.values():
            where = place.locate(entry.key, aliases)
            if where.flow and (reason := _bad_flow(where.flow, aliases)):
                if where.flow not in bad_flows:
                    self._refuse(entry, reason, _nearest_flow(where, aliases))
                bad_flows.add(where.flow)
            elif entry.value.startswith(ARROW) and entry.key in aliases:
                self._refuse(entry, f"a flow is written without blanks: {entry.key}{ARROW}<alias>.enabled = true")
            elif self._check_key(entry, where, aliases):
                waiting.append(entry)
        if waiting:
            listed = ", ".join(f"{_printable(entry.key)} (line {entry.line})" for entry in waiting)
            self.warnings.append(f"{self.source}: known to MM2, not honoured yet: {listed}")

    def _check_key(self, entry: Entry, where: Place, aliases: list[str]) -> bool:
        """True for a key that is known, in its place, and not honoured yet."""
        key = place.find(where)
        if key is None:
            reason = place.misplaced(where)
            self._warn(entry, reason or "unknown key", None if reason else place.nearest(where, aliases))
            return False
        useless = place.has_no_effect(key, where)
        if useless:
            self._warn(entry, useless)
            return False
        if key.decisive:
            self._check_decisive(entry, key)
            return False
        if key.honoured:
            self._check_value(entry, key)
            if where.client and where.client[0] == "admin":
                return True
        return not key.honoured

    def _check_decisive(self, entry: Entry, key: Key) -> None:
        if entry.value.strip() not in key.allowed:
            self._refuse(
                entry, f"not honoured yet, and without it topics would be written elsewhere; only {key.default}"
            )

    def _check_value(self, entry: Entry, key: Key) -> None:
        provider = _PROVIDER.search(entry.value)
        if provider and provider[1] in values.split(self._text("config.providers")):
            self._refuse(entry, "config providers are not honoured yet: write the value itself")
            return
        try:
            values.check(key, entry.value)
            if key.name.endswith("replication.factor"):
                values.replication_factor(key, entry.value)
            if key.name == "refresh.topics.interval.seconds" and values.integer(key, entry.value) == 0:
                raise ValueError("must not be 0: a negative number turns refreshing off")
        except ValueError as problem:
            self._refuse(entry, str(problem))

    # ---- clusters ----

    def _cluster(self, alias: str, client: str = "") -> Cluster:
        """Precedence `alias.client.k` > `alias.k` > `k`, for the keys that every client shares."""
        prefixes = ("", f"{alias}.", f"{alias}.{client}.") if client else ("", f"{alias}.")
        resolved: dict[str, str] = {}
        for prefix in prefixes:
            for full, entry in self.entries.items():
                name = full.removeprefix(prefix)
                if not full.startswith(prefix) or full in self.refused or not _is_client_key(name):
                    continue
                resolved[name] = _normal(name, entry.value)
        if not client:
            self._check_cluster(alias, resolved)
        return Cluster(alias, resolved)

    def _check_cluster(self, alias: str, resolved: dict[str, str]) -> None:
        line = next((e.line for k, e in self.entries.items() if k.startswith(f"{alias}.")), self._line("clusters"))
        servers = f"{alias}.bootstrap.servers"
        if "bootstrap.servers" not in resolved and not self.refused & {servers, "bootstrap.servers"}:
            near = place.nearest_alias(servers, [k for k in self.entries if k.endswith(".servers")])
            hint = f"; did you mean {servers} on line {self._line(near)} ({near})?" if near else ""
            self._problem(self._line("clusters"), f"{servers} is missing: add the line {servers} = <host>:<port>{hint}")
        if resolved.get("security.protocol", "").startswith("SASL"):
            self._check_login(alias, resolved, line)

    def _check_login(self, alias: str, resolved: dict[str, str], line: int) -> None:
        mechanism = resolved.get("sasl.mechanism")
        if mechanism is None and not any(key.endswith("sasl.mechanism") for key in self.refused):
            self._problem(
                line,
                f"{alias}.sasl.mechanism is missing: security.protocol = {resolved['security.protocol']} needs it, and "
                f"Kafka's default, GSSAPI (Kerberos), is not supported; set it to {' or '.join(keys.MECHANISMS)}",
            )
        elif (
            mechanism
            and mechanism != "OAUTHBEARER"
            and not (resolved.get("sasl.jaas.config") or resolved.get("sasl.username"))
        ):
            self._problem(
                line, f"{alias}.sasl.jaas.config is missing: {mechanism} needs the user name and the password in it"
            )

    # ---- flows ----

    def _enabled(self, aliases: list[str]) -> Iterator[tuple[str, str]]:
        for pair in permutations(aliases, 2):
            if self._value(pair, "enabled", values.boolean, False):
                yield pair

    def _flow(self, pair: tuple[str, str]) -> Flow:
        source, target = pair
        defaults = Flow(Cluster(source), Cluster(target))
        if not _TOPIC_CHARACTERS.fullmatch(source):
            self._problem(
                self._line("clusters"),
                f"the alias {source!r} begins the names of remote topics: use letters, digits, _ and - only",
            )
        return Flow(
            source=self._cluster(source, "consumer"),
            target=self._cluster(target, "producer"),
            topics=self._value(pair, "topics", values.regexes, defaults.topics),
            topics_exclude=self._excluded(pair, defaults.topics_exclude),
            heartbeats_replication=self._value(
                pair, "heartbeats.replication.enabled", values.boolean, defaults.heartbeats_replication
            ),
            tasks_max=self._value(pair, "tasks.max", _int("tasks.max"), defaults.tasks_max),
            replication_factor=self._value(
                pair, "replication.factor", _int("replication.factor"), defaults.replication_factor
            ),
            isolation=self._isolation(pair, defaults.isolation),
            offset_storage_replication_factor=self._offset_storage(target, defaults.offset_storage_replication_factor),
            refresh_topics_interval_seconds=self._refresh(pair, defaults.refresh_topics_interval_seconds),
        )

    def _excluded(self, pair: tuple[str, str], default: tuple[str, ...]) -> tuple[str, ...]:
        old = self._entry(pair, "topics.blacklist")
        new = self._entry(pair, "topics.exclude")
        if old and new:
            self._warn(old, f"the old name of topics.exclude, which is set too (line {new.line}) and wins")
        return self._value(pair, "topics.exclude" if new else "topics.blacklist", values.regexes, default)

    def _isolation(self, pair: tuple[str, str], default: Isolation) -> Isolation:
        """MM2's order: a setting of the cluster beats one of the flow, unless the flow's says `source.`."""
        name = keys.ISOLATION.name
        flow = ARROW.join(pair)
        for key in (f"{flow}.source.{name}", f"{pair[0]}.{name}", f"{flow}.{name}"):
            if key in self.entries and key not in self.refused:
                word = values.choice(keys.ISOLATION, self.entries[key].value)
                return "read_uncommitted" if word == "read_uncommitted" else "read_committed"
        return default

    def _offset_storage(self, target: str, default: int) -> int:
        """MM2 lays the top level over the cluster's here, not under it."""
        name = "offset.storage.replication.factor"
        for key in (name, f"{target}.{name}"):
            if key in self.entries and key not in self.refused:
                return int(self.entries[key].value)
        return default

    def _refresh(self, pair: tuple[str, str], default: float) -> float:
        name = "refresh.topics.interval.seconds"
        seconds = self._value(pair, name, _int(name), default)
        enabled = self._value(pair, "refresh.topics.enabled", values.boolean, True)
        return min(float(seconds), NEVER_S) if enabled and seconds > 0 else NEVER_S

    # ---- looking up ----

    def _entry(self, pair: tuple[str, str], name: str) -> Entry | None:
        return self.entries.get(f"{ARROW.join(pair)}.{name}") or self.entries.get(name)

    def _value(self, pair: tuple[str, str], name: str, read: Callable[[str], T], default: T) -> T:
        entry = self._entry(pair, name)
        return default if entry is None or entry.key in self.refused else read(entry.value)

    def _text(self, key: str) -> str:
        return self.entries[key].value if key in self.entries else ""

    def _line(self, key: str | None) -> int:
        return self.entries[key].line if key in self.entries else 0


def _int(name: str) -> Callable[[str], int]:
    key = keys.find(name, tuple(Scope))
    assert key is not None
    return lambda text: values.integer(key, text)


def _is_client_key(name: str) -> bool:
    key = keys.find(name, (Scope.CLIENT,))
    return key is not None and key is not keys.ISOLATION


def _normal(name: str, text: str) -> str:
    """As a client wants it: capitals in names of protocols, plain host:port, nothing else touched but blanks around."""
    key = keys.find(name, (Scope.CLIENT,))
    if key and key.kind is keys.Kind.SERVERS:
        return ",".join(values.servers(text))
    if key and key.allowed:
        return values.choice(key, text)
    return text.strip()


def _bad_alias(alias: str) -> str | None:
    if "." in alias:
        return f"the alias {alias!r} contains '.', which separates alias and topic in remote names: rename it"
    if ARROW in alias:
        return f"the alias {alias!r} contains {ARROW!r}, which separates the ends of a flow: rename it"
    taken = next((k for k in keys.KEYS if k.name.startswith(f"{alias}.") and not k.flow_only), None)
    if taken:
        return (
            f"the alias {alias!r} is the beginning of the key {taken.name}, so neither could be told apart: rename it"
        )
    return None


def _bad_flow(flow: tuple[str, str], aliases: list[str]) -> str | None:
    undeclared = [alias for alias in dict.fromkeys(flow) if alias not in aliases]
    if undeclared:
        names = " and ".join(repr(alias) for alias in undeclared)
        return f"the flow names {names}, which clusters does not declare ({', '.join(aliases)})"
    if flow[0] == flow[1]:
        return f"a flow from {flow[0]!r} to itself would copy for ever"
    return None


def _nearest_flow(where: Place, aliases: list[str]) -> str | None:
    assert where.flow
    near = [alias if alias in aliases else place.nearest_alias(alias, aliases) for alias in where.flow]
    if None in near or near[0] == near[1]:
        return None
    return f"{near[0]}{ARROW}{near[1]}.{where.name}"


def _shown(entry: Entry) -> str:
    value = "***" if is_secret(entry.key) else _printable(entry.value)
    return f"{_printable(entry.key)} = {value}"


def _printable(text: str) -> str:
    return _escaped(text if len(text) <= 120 else text[:117] + "…")


def _escaped(text: str) -> str:
    """A key may hold line ends and control characters; a message to a terminal may not."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")

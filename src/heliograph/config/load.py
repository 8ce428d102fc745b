"""An mm2.properties file read into clusters and flows.

Answers for the order in which a file is read (syntax, aliases, config providers, keys one by one, clusters, flows,
loops) and for ending in a Config or in one ConfigError with every problem. It opens no connection.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

from heliograph import policy
from heliograph.config import check, keys, loops, mux, place, properties, providers, values
from heliograph.config.flows import Maker, check_cluster, cluster_of
from heliograph.config.model import Config, Explained
from heliograph.config.place import ARROW
from heliograph.config.properties import Entry
from heliograph.config.reader import NEVER_S, Reader
from heliograph.config.report import Report, printable, shown
from heliograph.config.shape import Scope
from heliograph.config.views import Setting, Views
from heliograph.errors import ConfigError
from heliograph.types import Cluster, Flow

__all__ = ["NEVER_S", "load", "parse"]


def load(path: str | os.PathLike[str], lenient: bool = False) -> Config:
    """`lenient`: unknown keys and Java classes are warned about, not refused."""
    source = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise ConfigError(f"{source}: cannot be read: {problem.strerror or problem}") from problem
    except ValueError as problem:  # a NUL in the name
        raise ConfigError(f"{source!r}: not a file name: {problem}") from problem
    return parse(data, source, lenient=lenient)


def parse(
    data: bytes, source: str = "mm2.properties", *, lenient: bool = False, environment: Mapping[str, str] | None = None
) -> Config:
    reading = _Reading(properties.parse(data), source, lenient, os.environ if environment is None else environment)
    return reading.config()


class _Reading:
    """One file on its way to a Config."""

    def __init__(self, file: properties.Properties, source: str, lenient: bool, environment: Mapping[str, str]) -> None:
        self.entries = file.entries
        self.lines = {key: entry.line for key, entry in file.entries.items()}
        self.lenient = lenient
        self.environment = environment
        self.report = Report(source)
        self.settings: dict[str, Setting] = {}
        self.left: dict[str, str] = {}  # key -> the expressions in its value that nobody could look up
        for line, reason in file.malformed:
            self.report.problem(line, reason)
        for entry in file.repeated:
            self.report.warn(entry, f"stands again on line {self.lines[entry.key]}, which wins")

    def config(self) -> Config:
        self._read_values()
        aliases = self._aliases()
        self._check_expressions(aliases)
        explained: dict[str, tuple[Explained, ...]] = {}
        clusters: dict[str, Cluster] = {}
        if aliases:
            check.check_keys(self.settings, aliases, self.report, lenient=self.lenient)
        views = Views(self.settings)
        for alias in aliases:
            reader = Reader(self.report)
            clusters[alias] = cluster_of(alias, views.cluster(alias), reader)
            check_cluster(clusters[alias], self.lines, self.report)
            explained[alias] = tuple(reader.rows)
        flows, heartbeat_only = self._flows(aliases, views, explained)
        self._check_flows(aliases, flows, heartbeat_only)
        self.report.raise_problems()
        return Config(clusters, flows, self.report.warnings, heartbeat_only, explained, self._https())

    def _https(self) -> dict[str, str]:
        found = {key: one.value for key, one in self.settings.items() if key.startswith(keys.HTTPS)}
        return {key.removeprefix(keys.HTTPS): value for key, value in found.items()}

    # ---- aliases ----

    def _aliases(self) -> list[str]:
        entry = self.entries.get("clusters")
        aliases = list(dict.fromkeys(values.split(self.settings["clusters"].value))) if entry else []
        if not entry or not aliases:
            self._missing_clusters(entry)
            return []
        for alias in aliases:
            reason = _bad_alias(alias)
            if reason:
                self.report.problem(entry.line, f"{shown(entry)}: {reason}")
        return aliases

    def _missing_clusters(self, entry: Entry | None) -> None:
        named = [key.removesuffix(".bootstrap.servers") for key in self.entries if key.endswith(".bootstrap.servers")]
        example = f"clusters = {printable(', '.join(named) or 'us, eu')}"
        near = next((e for key, e in self.entries.items() if keys.nearest(key) == "clusters"), None)
        if entry:
            self.report.problem(entry.line, f"clusters names no alias: write {example}")
        elif near:
            self.report.refuse(near, "not a key, and clusters is missing", "clusters", known=False)
        else:
            self.report.problem(0, f"clusters is missing: add the line {example}")

    # ---- values ----

    def _read_values(self) -> None:
        """Every entry with the expressions of config providers replaced."""
        texts = {key: entry.value for key, entry in self.entries.items()}
        known, complaints = providers.declared(texts, self.environment)
        for complaint in complaints:
            say = self.report.refuse if complaint.fatal else self.report.warn
            say(self.entries[complaint.key], complaint.why)
        for key, entry in self.entries.items():
            self.settings[key] = self._setting(entry, known)

    def _setting(self, entry: Entry, known: providers.Providers) -> Setting:
        if "${" not in entry.value or entry.key.startswith("config.providers"):
            return Setting(entry.value, entry)
        try:
            replaced = known.replace(entry.value)
        except providers.ProviderProblem as problem:
            self.report.refuse(entry, str(problem))
            return Setting(entry.value, entry)
        if replaced.left:
            self.left[entry.key] = printable(", ".join(replaced.left))
        return Setting(replaced.text, entry, replaced.provided)

    def _check_expressions(self, aliases: list[str]) -> None:
        for key, what in self.left.items():
            why = f"{what} is not known to any of config.providers and stays as it is written"
            if check.needs_its_value(place.locate(key, aliases)):
                self.report.refuse(self.entries[key], f"{why}: it would be taken for the value itself")
            else:
                self.report.warn(self.entries[key], why)

    # ---- flows ----

    def _flows(
        self, aliases: list[str], views: Views, explained: dict[str, tuple[Explained, ...]]
    ) -> tuple[tuple[Flow, ...], tuple[Flow, ...]]:
        """Those that copy, and those that only emit heartbeats."""
        allowed = self.settings.get(policy.ALLOWED_CLASSES)
        classes = values.split(allowed.value) if allowed else ()
        maker = Maker(views, self.report, self.lines, lenient=self.lenient, classes=classes)
        copying: list[Flow] = []
        beating: list[Flow] = []
        for pair in permutations(aliases, 2):
            runs, copies = maker.is_wanted(pair)
            if not runs:
                continue
            flow, rows = maker.flow(pair, enabled=copies)
            if copies or flow.emit_heartbeats_s is not None:
                (copying if copies else beating).append(flow)
                explained[flow.name] = rows
        mux.check(maker.multiplexed, copying, self.report)
        for flow in mux.flows_of(maker.multiplexed):
            copying.append(flow)
            explained[flow.name] = mux.explained(flow)
        return tuple(copying), tuple(beating)

    def _check_flows(self, aliases: list[str], flows: tuple[Flow, ...], heartbeat_only: tuple[Flow, ...]) -> None:
        if not aliases or not self.report.is_sound:
            return
        example = f"{aliases[0]}{ARROW}{aliases[1] if len(aliases) > 1 else '<another alias>'}.enabled = true"
        if not flows and heartbeat_only:
            self.report.note(f"no flow is enabled, only heartbeats are emitted: add a line such as {example}")
        elif not flows:
            self.report.problem(0, f"no flow is enabled: add a line such as {example}")
        loop = loops.find_loop(flows)
        if loop:
            line = next((number for key, number in self.lines.items() if key.endswith("replication.policy.class")), 0)
            self.report.problem(line, f"{loop}; let one direction copy other topics, or take the default policy")


def _bad_alias(alias: str) -> str | None:
    if ARROW in alias:
        return f"the alias {alias!r} contains {ARROW!r}, which separates the ends of a flow: rename it"
    taken = next((key for key in keys.KEYS if key.name.startswith(f"{alias}.") and _stands_at_the_top(key)), None)
    if taken:
        return (
            f"the alias {alias!r} is the beginning of the key {taken.name}, so neither could be told apart: rename it"
        )
    return None


def _stands_at_the_top(key: keys.Key) -> bool:
    if key.name in keys.FLOW_NAMES:
        return False
    if key.scope is Scope.CLUSTER:
        return key.name.startswith(keys.WORKER_PREFIXES)
    return not key.flow_only

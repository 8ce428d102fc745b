"""The configuration of one connector, as Kafka Connect takes it in JSON, turned into the flow that does its work.

Answers for the three classes of MirrorMaker 2 and what each of them does of a flow: the source connector copies, the
checkpoint connector translates groups' offsets of what others copied, the heartbeat connector beats. The keys mean what
they mean in a file (`flows`); what stands under `A->B.` or an alias there stands bare here, and clusters are called
`source.cluster.` and `target.cluster.`. Nothing is opened but what config providers look up.

Invariants:
  a. No problem and no warning shows a text that a provider gave, under whatever key it stands: answers and statuses are
     for readers too.
  b. Where providers are withheld, keys that need them are neither judged nor missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from heliograph.config import connector_keys, credentials, keys, providers, token_urls, values
from heliograph.config.check import CONVERTERS
from heliograph.config.credentials import MASK
from heliograph.config.flows import Maker
from heliograph.config.properties import Entry
from heliograph.config.report import Report, printable
from heliograph.config.shape import Key, Scope
from heliograph.config.views import Pair, Setting, View, Views, is_shared, stripped
from heliograph.escaping import escape
from heliograph.types import Cluster, Flow

Kind = Literal["source", "checkpoint", "heartbeat"]

CLASSES: Mapping[str, Kind] = {
    f"{keys.MIRROR}MirrorSourceConnector": "source",
    f"{keys.MIRROR}MirrorCheckpointConnector": "checkpoint",
    f"{keys.MIRROR}MirrorHeartbeatConnector": "heartbeat",
}
SOURCE_ALIAS, TARGET_ALIAS = keys.FLOW_ALIASES
TARGET_DEFAULT = "target"  # MM2's, for a connector that does not call its target anything
WITHHELD_ALIAS = "source"  # stands for one that may not be looked up
SHORT = 4
OVERRIDE = "producer.override."
OVERRIDES = (OVERRIDE, "consumer.override.", "admin.override.")
MAX_KEYS = 1_000  # of a configuration; readers have them judged too, and each takes 0.2 ms
OVERRIDE_POLICY = "connector.client.config.override.policy"
SUGGESTIONS = 10  # nearest keys that are looked for, at 6 ms each


def class_of(text: str) -> str | None:
    """The class's full name, by its name, its last part, or that without `Connector`, as Connect looks it up."""
    name = text.strip()
    for known in CLASSES:
        last = known.rpartition(".")[2]
        if name in (known, last, last.removesuffix("Connector")):
            return known
    return None


@dataclass(frozen=True, slots=True)
class Worker:
    """What a connector takes from the worker that runs it."""

    cluster: Cluster  # where records go, unless the connector names its target
    settings: Mapping[str, Setting]  # of the worker's file: offset.storage.*, offset.flush.*
    providers: providers.Providers
    token_urls: tuple[str, ...] = ()  # where connectors' OAUTHBEARER tokens may come from
    overrides: frozenset[str] | None = None  # which keys of clients connectors may override; None: all

    def for_readers(self) -> Worker:
        """With providers that look nothing up."""
        return replace(self, providers=self.providers.withheld())


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a configuration: a flow, or why there is none."""

    kind: Kind | None = None
    flow: Flow | None = None
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by key; "" for the whole
    warnings: tuple[str, ...] = ()
    provided: frozenset[str] = frozenset()  # keys whose values are not what is written


class _ConnectorViews(Views):
    """MM2's order of resolution where there is no file around the connector."""

    def __init__(self, own: View, worker: Worker) -> None:
        super().__init__(own)
        self._own, self._worker = own, worker

    def connector(self, pair: Pair) -> View:
        return self._own

    def own(self, pair: Pair) -> View:
        return self._own

    def worker(self, target: str) -> View:
        return dict(self._worker.settings)

    def writer(self, pair: Pair) -> View:
        """MM2 writes records with the worker's producer; a connector that names its target means that one."""
        named = {k: s for k, s in stripped(self._own, "target.cluster.").items() if is_shared(k)}
        worker = {k: Setting(v, Entry(k, v, 0)) for k, v in self._worker.cluster.properties.items()}
        override = stripped(self._own, OVERRIDE)
        if "bootstrap.servers" in named:
            return named | override
        return {k: s for k, s in worker.items() if k not in self.withheld()} | override

    def withheld(self) -> tuple[str, ...]:
        """The worker's credentials that the connector's target does not get."""
        if "target.cluster.bootstrap.servers" in self._own:
            return ()
        override = {k: s.value for k, s in stripped(self._own, OVERRIDE).items()}
        return credentials.withheld(self._worker.cluster.properties, override)


def make(name: str, config: Mapping[str, str], worker: Worker, siblings: Sequence[str] = ()) -> Made:
    """`siblings`: of a checkpoint connector, the source connectors between its clusters. Of no kind: there is no such
    class."""
    full = class_of(config.get("connector.class", ""))
    if full is None:
        return Made()
    kind = CLASSES[full]
    if len(config) > MAX_KEYS:
        return Made(kind, problems={"": (f"has {len(config)} keys: a connector may have {MAX_KEYS}",)})
    reading = _Reading(name, kind, config, worker)
    flow = reading.flow()
    if flow is not None:
        flow = _part(kind, flow, name, siblings)
    flow = flow if not reading.problems else None
    return Made(kind, flow, reading.problems, reading.warnings, reading.provided)


def _part(kind: Kind, flow: Flow, name: str, siblings: Sequence[str]) -> Flow:
    """What this class does of a flow, and nothing else."""
    nothing = replace(flow, label=name, emit_heartbeats_s=None, emit_checkpoints_s=None, sync_group_offsets_s=None)
    if kind == "source":
        return replace(nothing, positions_under=(name,))
    nothing = replace(nothing, copies=False, sync_topic_configs_s=None, sync_topic_acls_s=None)
    if kind == "checkpoint":
        every_s, sync_s = flow.emit_checkpoints_s, flow.sync_group_offsets_s
        under = tuple(sorted(siblings)) or flow.positions_under
        return replace(nothing, emit_checkpoints_s=every_s, sync_group_offsets_s=sync_s, positions_under=under)
    return replace(nothing, enabled=False, emit_heartbeats_s=flow.emit_heartbeats_s)


class _Reading:
    """One configuration on its way to a flow."""

    def __init__(self, name: str, kind: Kind, config: Mapping[str, str], worker: Worker) -> None:
        self._kind, self._worker = kind, worker
        self._report = _Gathering(name)
        self._withheld: set[str] = set()
        self._suggested = 0
        found = {key: self._setting(Entry(key, value, 0)) for key, value in config.items()}
        self._settings = {key: setting for key, setting in found.items() if setting is not None}

    @property
    def provided(self) -> frozenset[str]:
        return frozenset({*self._withheld, *(key for key, one in self._settings.items() if one.provided)})

    @property
    def problems(self) -> dict[str, tuple[str, ...]]:
        return {key: tuple(dict.fromkeys(texts)) for key, texts in self._report.by_key.items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._report.warnings

    def flow(self) -> Flow | None:
        for setting in self._settings.values():
            self._check(setting)
        source = self._text(SOURCE_ALIAS)
        if source is None and SOURCE_ALIAS not in self._withheld:
            return None  # said by whoever checks what is required
        pair = (source or WITHHELD_ALIAS, self._text(TARGET_ALIAS) or TARGET_DEFAULT)
        if pair[0] == pair[1] and not self._withheld & {*keys.FLOW_ALIASES}:
            self._report.about(SOURCE_ALIAS, f"is {source!r}, and so is {TARGET_ALIAS}: a flow needs two clusters")
        self._check_address()
        views = _ConnectorViews(self._settings, self._worker)
        self._check_credentials(views)
        flow, _ = Maker(views, self._report, {}, lenient=False).flow(pair, enabled=True)
        enabled = self._text("enabled")
        if enabled is not None and enabled.lower() == "false" and self._kind != "heartbeat":
            flow = replace(flow, topics=(), groups=())
        return flow

    def _setting(self, entry: Entry) -> Setting | None:
        if "${" not in entry.value:
            return Setting(entry.value, entry)
        try:
            replaced = self._worker.providers.replace(entry.value)
        except providers.ProviderProblem as problem:
            self._report.refuse(entry, str(problem))
            return Setting(entry.value, entry)
        if replaced.withheld:  # invariant b
            self._withheld.add(entry.key)
            return None
        self._report.hide((replaced.text, *replaced.found) if replaced.provided else ())
        return Setting(replaced.text, entry, replaced.provided)

    def _text(self, name: str) -> str | None:
        setting = self._settings.get(name)
        return setting.value.strip() if setting is not None else None

    def _check_address(self) -> None:
        name = "source.cluster.bootstrap.servers"
        if self._kind != "heartbeat" and name not in self._settings and name not in self._withheld:
            self._report.about(name, "is missing: where the source cluster is reached, as host:port")

    def _check_credentials(self, views: _ConnectorViews) -> None:
        """The worker's own do not go where a connector says."""
        missing = [f"{OVERRIDE}{key}" for key in views.withheld() if f"{OVERRIDE}{key}" not in self._settings]
        if missing:
            override = {key: one.value for key, one in stripped(self._settings, OVERRIDE).items()}
            self._report.about(
                f"{OVERRIDE}{credentials.moved(self._worker.cluster.properties, override)[0]}",
                "changes where records are written, or how: the worker's credentials are for its own cluster alone; "
                f"give {', '.join(missing)} as well, or leave it out",
            )

    def _check(self, setting: Setting) -> None:
        key = setting.entry.key
        if token_urls.is_url_key(key) and (why := token_urls.why_refused(setting.value, self._worker.token_urls)):
            self._report.refuse(setting.entry, why)
            return
        if not self._may_override(key):
            why = f"the worker's file does not allow it ({OVERRIDE_POLICY})"
            self._report.refuse(setting.entry, why)
            return
        found = connector_keys.find(key)
        if found is None:
            if not connector_keys.is_known(key):
                self._suggested += 1
                near = keys.nearest(key, (Scope.FLOW,)) if self._suggested <= SUGGESTIONS else None
                self._report.warn(setting.entry, "no key of this connector: it has no effect", near)
            return
        if key.partition("=")[0] == "start" and "file:" in setting.value:
            self._report.refuse(setting.entry, "a connector reads no files of the worker's machine: write the starts")
        elif found.honoured:
            self._check_value(setting, found)
        elif found.decisive and found.name not in keys.FLOW_ALIASES and setting.value.strip() not in found.allowed:
            self._report.refuse(setting.entry, f"Class {printable(setting.entry.value)} could not be found")
        elif key in CONVERTERS and not setting.value.strip().endswith("ByteArrayConverter"):
            self._report.warn(setting.entry, "records are copied as they are: no converter decodes them here")

    def _may_override(self, key: str) -> bool:
        allowed = self._worker.overrides
        prefix = next((one for one in OVERRIDES if key.startswith(one)), None)
        return prefix is None or allowed is None or key.removeprefix(prefix) in allowed

    def _check_value(self, setting: Setting, key: Key) -> None:
        try:
            values.check(key, setting.value)
        except ValueError as problem:
            self._report.refuse(
                setting.entry, "what the provider gave is not right" if setting.provided else str(problem)
            )


class _Gathering(Report):
    """Problems by key, without a file's name and lines, of which there are none. Invariant a is kept here."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.by_key: dict[str, list[str]] = {}
        self._hidden: list[re.Pattern[str]] = []

    def hide(self, provided: Iterable[str]) -> None:
        """Values that no text may show, nor any line or item of them."""
        parts = {part for value in provided for part in (value.strip(), *map(str.strip, re.split(r"[,\n]", value)))}
        forms = {form for part in parts for form in (part, escape(part), printable(part), repr(part)[1:-1]) if form}
        for form in forms:
            # Those of a letter or two stand in any word: only where they stand alone.
            text = re.escape(form)
            self._hidden.append(re.compile(rf"(?<!\w){text}(?!\w)" if len(form) < SHORT else text))
        self._hidden.sort(key=lambda pattern: len(pattern.pattern), reverse=True)  # the whole before its parts

    def _clean(self, text: str) -> str:
        for pattern in self._hidden:
            text = pattern.sub(MASK, text)
        return text

    def problem(self, line: int, text: str) -> None:
        super().problem(line, self._clean(text))
        self.by_key.setdefault("", []).append(self._clean(text))

    def refuse(self, entry: Entry, reason: str, near: str | None = None, *, known: bool = True) -> None:
        self.refused.add(entry.key)
        shown = printable(entry.value) if known and connector_keys.is_shown(entry.key) else MASK
        self.about(entry.key, f"Invalid value {shown} for configuration {entry.key}: {self._clean(reason)}")

    def about(self, key: str, text: str) -> None:
        text = text if text.startswith("Invalid") else self._clean(text)
        self.by_key.setdefault(key, []).append(text if text.startswith("Invalid") else f"{key} {text}")

    def warn(self, entry: Entry, reason: str, near: str | None = None) -> None:
        text = f"{printable(entry.key)}: {self._clean(reason)}"
        self._warnings.append(text + (f"; did you mean {near}?" if near else ""))

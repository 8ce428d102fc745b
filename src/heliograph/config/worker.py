"""A worker's own file, `connect-distributed.properties`, as Kafka Connect reads it.

Answers for where the worker keeps its state, where it listens, and what it hands to its connectors; every problem of
the file at once. What Connect has and we have nothing to do with (plugin paths, converters) is said, not refused;
unknown keys are named with the nearest known one.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from heliograph.config import clients, keys, properties, providers, token_urls, values
from heliograph.config.connectors import OVERRIDE_POLICY, Worker
from heliograph.config.flows import cluster_of
from heliograph.config.properties import Entry
from heliograph.config.reader import Reader
from heliograph.config.report import Report, printable
from heliograph.config.shape import Kind, Scope
from heliograph.config.views import Setting, View, is_shared
from heliograph.errors import ConfigError
from heliograph.types import Cluster, Factor

REST_PORT = 8083
EVERYWHERE = ("", "0.0.0.0", "::")
REQUIRED = ("bootstrap.servers", "group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic")
MOOT = ("plugin.path", "plugin.discovery", "key.converter", "value.converter", "header.converter", "internal.")
# Keys by which a worker of Connect keeps strangers out, which do nothing here, and what to do instead.
NO_PROTECTION = {
    "rest.extension.classes": "no Java classes are loaded here, so it keeps nobody out: name --users FILE",
    "admin.listeners": "of no effect: `listeners` serve /admin/loggers; --users FILE says who may change it",
}
# Kafka's three policies: what connectors may override.
_OVERRIDABLE = {
    "all": None,
    "none": frozenset[str](),
    "principal": frozenset({"security.protocol", "sasl.jaas.config", "sasl.mechanism"}),
}
HONOURED = frozenset(
    {
        *REQUIRED,
        *(
            "config.storage.replication.factor",
            "offset.storage.replication.factor",
            "status.storage.replication.factor",
        ),
        *("offset.storage.partitions", "status.storage.partitions", "offset.flush.interval.ms"),
        *("listeners", "rest.port", "rest.host.name", "rest.advertised.host.name", "rest.advertised.port"),
        *("rest.advertised.listener", "session.timeout.ms", "heartbeat.interval.ms", "rebalance.timeout.ms"),
        *("topic.tracking.enable", "topic.tracking.allow.reset", "config.providers"),
        token_urls.ALLOWED_URLS,
        OVERRIDE_POLICY,
        *("ssl.keystore.location", "ssl.keystore.password", "ssl.key.password", "ssl.keystore.type"),
    }
)


@dataclass(frozen=True, slots=True)
class Listener:
    host: str  # "": every address
    port: int
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    factor: Factor


@dataclass(frozen=True, slots=True)
class WorkerFile:
    cluster: Cluster
    group_id: str
    configs: Topic
    offsets: Topic
    statuses: Topic
    listeners: tuple[Listener, ...]
    advertised: str  # host:port, which is also what the worker is called
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    topic_tracking: bool
    topic_reset: bool
    worker: Worker
    tls: Mapping[str, str]  # `listeners.https.` or, without any, the worker's own ssl.*
    warnings: tuple[str, ...] = ()


def load(path: str | os.PathLike[str], *, lenient: bool = False, host: str = "127.0.0.1") -> WorkerFile:
    """`host`: where to listen when the file does not say; Connect would listen everywhere."""
    source = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise ConfigError(f"{source}: cannot be read: {why}") from problem
    return parse(data, source, lenient=lenient, host=host)


def parse(
    data: bytes,
    source: str = "connect-distributed.properties",
    *,
    lenient: bool = False,
    host: str = "127.0.0.1",
    environment: Mapping[str, str] | None = None,
) -> WorkerFile:
    return _Reading(properties.parse(data), source, lenient, host, environment or os.environ).file()


class _Reading:
    def __init__(
        self,
        found: properties.Properties,
        source: str,
        lenient: bool,
        host: str,
        environment: Mapping[str, str],
    ) -> None:
        self._report, self._lenient, self._host = Report(source), lenient, host
        for line, reason in found.malformed:
            self._report.problem(line, reason)
        texts = {key: entry.value for key, entry in found.entries.items()}
        self._providers, complaints = providers.declared(texts, environment)
        for complaint in complaints:
            say = self._report.refuse if complaint.fatal else self._report.warn
            say(found.entries[complaint.key], complaint.why)
        self._view: View = {key: self._setting(entry) for key, entry in found.entries.items()}
        self._reader = Reader(self._report)

    def _setting(self, entry: Entry) -> Setting:
        if "${" not in entry.value or entry.key.startswith("config.providers"):
            return Setting(entry.value, entry)
        try:
            replaced = self._providers.replace(entry.value)
        except providers.ProviderProblem as problem:
            self._report.refuse(entry, str(problem))
            return Setting(entry.value, entry)
        return Setting(replaced.text, entry, replaced.provided)

    def file(self) -> WorkerFile:
        for name in REQUIRED:
            if name not in self._view or not self._view[name].value.strip():
                self._report.problem(0, f"{name} is missing: a distributed worker of Connect needs it")
        for setting in self._view.values():
            self._check(setting)
        cluster = cluster_of("connect", {k: s for k, s in self._view.items() if is_shared(k)}, self._reader)
        listeners = self._listeners()
        made = WorkerFile(
            cluster=cluster,
            group_id=self._text("group.id"),
            configs=self._topic("config", 1),
            offsets=self._topic("offset", self._integer("offset.storage.partitions", 25)),
            statuses=self._topic("status", self._integer("status.storage.partitions", 5)),
            listeners=listeners,
            advertised=self._advertised(listeners),
            session_timeout_ms=self._integer("session.timeout.ms", 6_000),
            heartbeat_interval_ms=self._integer("heartbeat.interval.ms", 1_000),
            rebalance_timeout_ms=self._integer("rebalance.timeout.ms", 10_000),
            topic_tracking=self._reader.boolean(self._view, "topic.tracking.enable", True),
            topic_reset=self._reader.boolean(self._view, "topic.tracking.allow.reset", True),
            worker=Worker(cluster, self._handed_on(), self._providers, self._token_urls(), self._overrides()),
            tls=self._tls(),
            warnings=(),
        )
        self._report.raise_problems()
        return _with_warnings(made, self._report.warnings)

    # ---------------------------------------------------------------- values

    def _text(self, name: str, default: str = "") -> str:
        return self._reader.read(self._view, name, str.strip, default)

    def _integer(self, name: str, default: int) -> int:
        return self._reader.read(self._view, name, _whole, default)

    def _topic(self, what: str, partitions: int) -> Topic:
        key = f"{what}.storage.replication.factor"
        factor = Factor(self._integer(key, 3), key, fixed=self._reader.setting(self._view, key) is not None)
        return Topic(self._text(f"{what}.storage.topic"), partitions, factor)

    def _handed_on(self) -> dict[str, Setting]:
        """What a connector's flow takes of the worker: the positions topic, and how often they are flushed."""
        return {k: s for k, s in self._view.items() if k.startswith("offset.") and k not in self._report.refused}

    def _token_urls(self) -> tuple[str, ...]:
        return self._reader.read(self._view, token_urls.ALLOWED_URLS, _urls, ())

    def _overrides(self) -> frozenset[str] | None:
        return self._reader.read(self._view, OVERRIDE_POLICY, _overridable, None)

    def _listeners(self) -> tuple[Listener, ...]:
        """`listeners`, or what it was called before 2.0: rest.host.name and rest.port."""
        told = values.split(self._text("listeners"))
        if not told:
            return (Listener(self._text("rest.host.name") or self._host, self._integer("rest.port", REST_PORT)),)
        return tuple(one for one in map(self._listener, told) if one is not None)

    def _listener(self, text: str) -> Listener | None:
        try:
            parts = urlsplit(text.lower())
            host, port = parts.hostname or "", parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        if parts.scheme not in ("http", "https") or port is None or parts.path not in ("", "/"):
            self._report.refuse(self._view["listeners"].entry, f"{printable(text)!r} is not http://HOST:PORT")
            return None
        return Listener(host, port, parts.scheme == "https")

    def _advertised(self, listeners: tuple[Listener, ...]) -> str:
        """Nodes are told apart by it, so it is this machine's name where the file has none."""
        first = listeners[0] if listeners else Listener("", REST_PORT)
        told = "listeners" in self._view or "rest.host.name" in self._view
        own = first.host if told and first.host not in EVERYWHERE else ""
        host = self._text("rest.advertised.host.name") or own or platform.node() or self._host
        port = self._integer("rest.advertised.port", first.port)
        return f"{f'[{host}]' if ':' in host else host}:{port}"

    def _tls(self) -> dict[str, str]:
        own = {k.removeprefix("listeners.https."): s for k, s in self._view.items() if k.startswith("listeners.https.")}
        chosen = own or {k: s for k, s in self._view.items() if k.startswith("ssl.")}
        return {k: s.value for k, s in chosen.items()}

    # ---------------------------------------------------------------- keys

    def _check(self, setting: Setting) -> None:
        key = setting.entry.key
        if key in HONOURED or key.startswith("config.providers."):
            return
        if key.startswith(MOOT):
            if key.startswith("plugin.path"):
                why = "no Java classes are loaded here: MirrorMaker 2's three connectors are built in"
                self._report.warn(setting.entry, why)
            return
        if key in NO_PROTECTION:
            self._report.warn(setting.entry, NO_PROTECTION[key])
            return
        if key.startswith(keys.HTTPS) and key.removeprefix(keys.HTTPS) not in keys.LISTENER_KEYS:
            why = "of no effect on the listener: the keys that it goes by are in docs/connect.md"
            self._report.warn(setting.entry, why, keys.near_listener_key(key))
            return
        if is_known(key):
            return
        near = keys.nearest(key, (Scope.CLUSTER, Scope.CLIENT, Scope.GLOBAL))
        self._report.warn(setting.entry, "no key of a worker: it has no effect", near)


def is_known(key: str) -> bool:
    found = keys.find(key, (Scope.CLUSTER, Scope.CLIENT, Scope.GLOBAL))
    if found is not None and found.kind is not Kind.CLASS:
        return key != "clusters"
    client, _, rest = key.partition(".")
    named = client in clients.CLIENTS and (clients.knows(client, rest) or keys.find(rest, (Scope.CLIENT,)) is not None)
    return found is not None or named or key.startswith(("listeners.", "admin.", "topic.creation.", "metrics.context."))


def _overridable(text: str) -> frozenset[str] | None:
    """By the policy's short name or its class."""
    name = text.strip().rpartition(".")[2].lower().removesuffix("connectorclientconfigoverridepolicy")
    if name not in _OVERRIDABLE:
        raise ValueError("must be All, None or Principal: no Java classes are loaded here")
    return _OVERRIDABLE[name]


def _urls(text: str) -> tuple[str, ...]:
    items = values.split(text)
    for item in items:
        token_urls.check_listed(item)
    return items


def _whole(text: str) -> int:
    word = text.strip()
    if not (word.removeprefix("-").isascii() and word.removeprefix("-").isdigit() and len(word) < 11):
        raise ValueError("must be a whole number")
    return int(word)


def _with_warnings(made: WorkerFile, warnings: tuple[str, ...]) -> WorkerFile:
    return replace(made, warnings=warnings)

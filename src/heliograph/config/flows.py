"""One flow, or one cluster, out of a file's views: every field filled, each with the line it came from.

Answers for what settings mean together (an `enabled` and its interval, a policy and its separator, an old name and its
new one). Order of resolution is `views`'s affair, single values are `values`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal

from heliograph import policy
from heliograph.config import caps, counts, keys, mux, starts, values
from heliograph.config.incidents import policies_of
from heliograph.config.model import Explained
from heliograph.config.naming import check_alias, check_overrides, naming_of, positions_topic
from heliograph.config.reader import NEVER_S, Reader, explained, text_of
from heliograph.config.report import Report
from heliograph.config.shape import Kind, Scope
from heliograph.config.views import Pair, View, Views, is_shared
from heliograph.types import (
    CHECKPOINTS_FACTOR,
    COPIES_FACTOR,
    HEARTBEATS_FACTOR,
    STORAGE_FACTOR,
    SYNCS_FACTOR,
    Cluster,
    Flow,
    Isolation,
    Naming,
)

# ---- clusters ----


def cluster_of(alias: str, view: View, reader: Reader, prefix: str = "") -> Cluster:
    """The address and the security out of a view, as a client wants them."""
    found: dict[str, str] = {}
    for name in view:
        if not is_shared(name) or reader.setting(view, name) is None:
            continue
        value = reader.read(view, name, _normal(name), None, label=f"{prefix}{name}")
        if value is not None:
            found[name] = value
    return Cluster(alias, found)


def _normal(name: str) -> Callable[[str], str | None]:
    """Capitals in names of protocols, plain host:port, nothing else touched but blanks around."""
    key = keys.find(name, (Scope.CLIENT,))
    if key and key.kind is Kind.SERVERS:
        return lambda text: ",".join(values.servers(text))
    if key and key.allowed:
        return lambda text: values.choice(key, text)
    return str.strip


def check_cluster(cluster: Cluster, lines: Mapping[str, int], report: Report) -> None:
    """`lines`: where each key stands."""
    alias, has = cluster.alias, cluster.properties
    line = next((number for key, number in lines.items() if key.startswith(f"{alias}.")), lines.get("clusters", 0))
    servers = f"{alias}.bootstrap.servers"
    if "bootstrap.servers" not in has and not report.refused & {servers, "bootstrap.servers"}:
        report.problem(lines.get("clusters", 0), f"{servers} is missing: add the line {servers} = <host>:<port>")
    if not has.get("security.protocol", "").startswith("SASL"):
        return
    mechanism = has.get("sasl.mechanism")
    if mechanism is None and not any(key.endswith("sasl.mechanism") for key in report.refused):
        report.problem(
            line,
            f"{alias}.sasl.mechanism is missing: security.protocol = {has['security.protocol']} needs it, and "
            f"Kafka's default, GSSAPI (Kerberos), is not supported; set it to {' or '.join(keys.MECHANISMS)}",
        )
    named = has.get("sasl.jaas.config") or has.get("sasl.username") or f"{alias}.sasl.jaas.config" in report.refused
    if mechanism and mechanism != "OAUTHBEARER" and not named:
        report.problem(
            line, f"{alias}.sasl.jaas.config is missing: {mechanism} needs the user name and the password in it"
        )


# ---- flows ----


class Maker:
    """Makes the flows of one file."""

    def __init__(
        self, views: Views, report: Report, lines: Mapping[str, int], *, lenient: bool, classes: Collection[str] = ()
    ) -> None:
        """`classes`: what `replication.policy.class` may name, beside MM2's and those of installed packages: only a
        file of the operator's allows any."""
        self._views = views
        self._report = report
        self._lines = lines
        self._lenient = lenient
        self._classes = frozenset(classes)
        self.multiplexed: dict[str, tuple[Flow, mux.Chosen, Cluster]] = {}  # by the pair's name

    def is_wanted(self, pair: Pair) -> tuple[bool, bool]:
        """Whether MM2 runs anything for the pair, and whether that copies. Only the flow's own `enabled` makes a pair
        run that emits no heartbeats; the one at the top level works on pairs that run anyway."""
        reader, view = Reader(self._report), self._views.connector(pair)
        own = self._views.own(pair)
        heartbeats = reader.boolean(view, "emit.heartbeats.enabled", True)
        runs = heartbeats or reader.boolean(own, "enabled", False)
        return runs, runs and reader.boolean(view, "enabled", False)

    def flow(self, pair: Pair, *, enabled: bool) -> tuple[Flow, tuple[Explained, ...]]:
        source, target = pair
        reader = Reader(self._report)
        base, worker = self._views.connector(pair), self._views.worker(target)
        consumer = self._views.client(pair, "source", "consumer")
        plain = Flow(Cluster(source), Cluster(target))
        reader.rows.append(Explained("enabled", text_of(enabled)) if "enabled" not in base else _row(base, "enabled"))
        naming = naming_of(base, reader, self._classes)
        if enabled:
            check_overrides(pair, base, self._report, lenient=self._lenient)
            check_alias(source, naming, self._lines.get("clusters", 0), self._report)
        syncs = reader.boolean(base, "emit.offset-syncs.enabled", True)
        refresh_s = reader.interval_s(base, "refresh.topics", 600)
        checkpoints_s = reader.interval_s(base, "emit.checkpoints", 60)
        groups_s = reader.interval_s(base, "sync.group.offsets", 60, enabled=False)
        # MM2's checkpoint connector, which syncs groups too, refuses to start without either.
        translates = syncs and checkpoints_s is not None
        if not translates:
            self._warn_without_translation(base, "emit.checkpoints.enabled" if syncs else "emit.offset-syncs.enabled")
        flow = Flow(
            source=cluster_of(source, consumer, reader, "source: "),
            target=cluster_of(target, self._views.writer(pair), reader, "target: "),
            enabled=enabled,
            topics=reader.read(base, "topics", values.regexes, plain.topics),
            topics_exclude=reader.patterns(
                base, "topics.exclude", "topics.blacklist", policy.DEFAULT_EXCLUDE[naming.rules]
            ),
            naming=naming,
            heartbeats_replication=self._heartbeats_replication(reader, base, naming),
            tasks_max=reader.read(base, "tasks.max", lambda text: int(text.strip()), plain.tasks_max),
            replication_factor=reader.integer(base, COPIES_FACTOR, 2),
            isolation=_isolation(reader, consumer),
            start_at=_start_at(reader, consumer),
            start=reader.read(base, "start", starts.rules, plain.start),
            target_partitions=reader.read(base, "target.partitions", counts.rules, plain.target_partitions),
            offset_storage_replication_factor=reader.integer(worker, STORAGE_FACTOR, 3),
            offset_storage_partitions=reader.integer(worker, "offset.storage.partitions", 25),
            positions_topic=reader.read(worker, "offset.storage.topic", positions_topic(source), None),
            refresh_topics_interval_seconds=NEVER_S if refresh_s is None else refresh_s,
            sync_topic_configs_s=reader.interval_s(base, "sync.topic.configs", 600),
            sync_topic_acls_s=reader.interval_s(base, "sync.topic.acls", 600),
            own_principal=reader.read(base, "sync.topic.acls.own.principal", _principal, plain.own_principal),
            config_properties_exclude=reader.patterns(
                base, "config.properties.exclude", "config.properties.blacklist", plain.config_properties_exclude
            ),
            use_defaults_from=_side(reader, base, "use.defaults.from", "target"),
            lower_durability=reader.boolean(base, "sync.topic.configs.lower.durability", False),
            shorten_retention=reader.boolean(base, "sync.topic.configs.shorten.retention", False),
            emit_offset_syncs=syncs,
            offset_syncs_location=_side(reader, base, "offset-syncs.topic.location", "source"),
            offset_syncs_replication_factor=reader.integer(base, SYNCS_FACTOR, 3),
            offset_lag_max=reader.integer(base, "offset.lag.max", 100),
            offset_flush_s=reader.integer(worker, "offset.flush.interval.ms", 60_000) / 1000,
            emit_checkpoints_s=checkpoints_s if translates else None,
            checkpoints_replication_factor=reader.integer(base, CHECKPOINTS_FACTOR, 3),
            groups=reader.read(base, "groups", values.regexes, plain.groups),
            groups_exclude=reader.patterns(base, "groups.exclude", "groups.blacklist", plain.groups_exclude),
            refresh_groups_s=reader.interval_s(base, "refresh.groups", 600),
            sync_group_offsets_s=groups_s if translates else None,
            emit_heartbeats_s=reader.interval_s(base, "emit.heartbeats", 1),
            heartbeats_replication_factor=reader.integer(base, HEARTBEATS_FACTOR, 3),
            factors_set=_factors_set(reader, base, worker),
            admin_timeout_s=reader.integer(base, "admin.timeout.ms", 60_000) / 1000,
            on=policies_of(base, reader),
            caps=reader.read(base, "max.bytes.per.second", caps.caps, plain.caps),
        )
        chosen = mux.read(source, target, base, reader) if enabled else None
        if chosen is not None:
            writable = cluster_of(source, self._views.writer((target, source)), Reader(self._report))
            self.multiplexed[flow.name] = (flow, chosen, writable)
            flow = mux.rest_of(flow, chosen, told="topics" in base)
        return flow, tuple(reader.rows)

    def _heartbeats_replication(self, reader: Reader, base: View, naming: Naming) -> bool:
        name = "heartbeats.replication.enabled"
        asked = reader.boolean(base, name, True)
        if naming.rules == 3 and not asked:
            self._report.warn(
                base[name].entry, "MM2 3.x does not know it (heliograph.mm2.rules = 3): heartbeats are copied"
            )
        return asked or naming.rules == 3

    def _warn_without_translation(self, base: View, culprit: str) -> None:
        for name in ("emit.checkpoints.enabled", "sync.group.offsets.enabled"):
            if name != culprit and name in base and base[name].value.strip().lower() == "true":
                self._report.warn(base[name].entry, f"has no effect: {culprit} is off, and MM2 translates nothing then")


def _factors_set(reader: Reader, base: View, worker: View) -> tuple[tuple[str, str], ...]:
    """Replication factors that the file sets, each with the key as it stands there."""
    views = dict.fromkeys((COPIES_FACTOR, SYNCS_FACTOR, CHECKPOINTS_FACTOR, HEARTBEATS_FACTOR), base)
    views[STORAGE_FACTOR] = worker
    found = {key: reader.setting(view, key) for key, view in views.items()}
    return tuple((key, setting.entry.key) for key, setting in found.items() if setting is not None)


def _row(view: View, name: str) -> Explained:
    return explained(name, view[name].value.strip().lower(), view[name])


# ---- choices, as the types that Flow wants ----


def _isolation(reader: Reader, consumer: View) -> Isolation:
    word = reader.read(
        consumer,
        "isolation.level",
        _one_of("consumer.isolation.level"),
        "read_committed",
        label="source: isolation.level",
    )
    return "read_uncommitted" if word == "read_uncommitted" else "read_committed"


def _start_at(reader: Reader, consumer: View) -> Literal["earliest", "latest"]:
    name = "auto.offset.reset"
    word = reader.read(consumer, name, _one_of(f"consumer.{name}"), "earliest", label=f"source: {name}")
    return "latest" if word == "latest" else "earliest"


def _one_of(name: str) -> Callable[[str], str]:
    key = keys.find(name, (Scope.CLIENT,))
    assert key is not None
    return lambda text: values.choice(key, text)


def _side(reader: Reader, view: View, name: str, default: Literal["source", "target"]) -> Literal["source", "target"]:
    return "source" if reader.choice(view, name, default) == "source" else "target"


def _principal(text: str) -> str:
    kind, colon, name = text.strip().partition(":")
    if not (kind and colon and name):
        raise ValueError("must be type:name, as ACLs have it: User:mirror")
    return f"{kind}:{name}"

"""The one table of configuration keys. It drives parsing, validation, warnings and the page docs/configuration.md.

Answers for which keys exist, where they may stand, what they may hold and whether Heliograph honours them. It holds
every key MirrorMaker 2 knows, because a file that MM2 accepts must be read here with nothing passed over in silence. A
name that ends in `*` stands for a family.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import lru_cache

from heliograph.config import clients
from heliograph.config.shape import Key, Kind, Scope

__all__ = ["KEYS", "MECHANISMS", "PROTOCOLS", "WORKER_PREFIXES", "Key", "Kind", "Scope", "find", "nearest"]

G, F, C, K = Scope.GLOBAL, Scope.FLOW, Scope.CLUSTER, Scope.CLIENT

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MIRROR = "org.apache.kafka.connect.mirror."

# Keys of connectors that look like keys of clusters called `source` and `target`, which many are; and some of ours.
FLOW_ALIASES = ("source.cluster.alias", "target.cluster.alias")
OURS = (
    *("target.partitions", "mux.partitions", "mux.headers", "mux.via"),
    *("demux.headers", "demux.weight", "demux.max.bytes.per.second"),
)
FLOW_NAMES = (*FLOW_ALIASES, *OURS)

ALLOWED: dict[str, tuple[str, ...]] = {
    "security.protocol": PROTOCOLS,
    "sasl.mechanism": MECHANISMS,
    "consumer.isolation.level": ("read_committed", "read_uncommitted"),
    "consumer.auto.offset.reset": ("earliest", "latest"),
    "use.defaults.from": ("source", "target"),
    "offset-syncs.topic.location": ("source", "target"),
    "heliograph.mm2.rules": ("3", "4"),
    "on.gap": ("skip", "stop"),
    "on.source.recreated": ("restart", "stop"),
    "on.source.truncated": ("restart", "stop"),
    "on.target.lost": ("restart", "skip", "stop"),
    "on.refused": ("quarantine", "skip", "stop"),
    "mux.via": ("straight", "intermediate"),
    "demux": ("original", "prefixed"),
    "demux.headers": ("keep", "strip"),
    # Java classes cannot be loaded here; these say what we do anyway.
    "topic.filter.class": ("DefaultTopicFilter", MIRROR + "DefaultTopicFilter"),
    "group.filter.class": ("DefaultGroupFilter", MIRROR + "DefaultGroupFilter"),
    "config.property.filter.class": ("DefaultConfigPropertyFilter", MIRROR + "DefaultConfigPropertyFilter"),
    "transforms": ("",),
}
MINIMUM = {"tasks.max": 1, "offset.lag.max": 0, "admin.timeout.ms": 1, "offset.flush.interval.ms": 1}
MINIMUM |= {"offset.storage.partitions": 1, "sasl.login.read.timeout.ms": 1, "mux.partitions": 1}
MINIMUM |= {"demux.weight": 1, "demux.max.bytes.per.second": 1}
# What these decide cannot be left undone with a warning: records would be changed, chosen or counted otherwise.
DECISIVE = {"topic.filter.class", "group.filter.class", "config.property.filter.class", "transforms"}
DECISIVE |= {*FLOW_ALIASES}


def _rows(scope: Scope, text: str, *, honoured: bool = False, flow_only: bool = False) -> Iterator[Key]:
    """One key a line: `name | kind | default | what it is`."""
    for line in text.strip().splitlines():
        name, kind, default, doc = (cell.strip() for cell in line.split("|", 3))
        yield Key(
            *(name, scope, Kind[kind], None if default == "-" else default, doc, honoured),
            allowed=ALLOWED.get(name, ()),
            minimum=MINIMUM.get(name),
            flow_only=flow_only,
            decisive=name in DECISIVE,
        )


# ---- honoured ----------------------------------------------------------------------------------------------------

_FILE = _rows(
    G,
    """
    clusters | LIST | - | Aliases of the clusters.
    config.providers | LIST | - | Names of the providers that `${provider:path:key}` in values is looked up in.
    config.providers.* | STRING | - | `<name>.class`: EnvVar-, File- or DirectoryConfigProvider; `<name>.param.*`.
    heliograph.policy.classes | LIST | - | `package.module:Class`: what `replication.policy.class` may import.
    listeners.https.* | STRING | - | TLS of `run --http https://…`: `ssl.keystore.*`, `ssl.client.auth`, as of a worker.
    """,
    honoured=True,
)

_CLIENT = _rows(
    K,
    """
    bootstrap.servers | SERVERS | - | Where the cluster is reached first. Each alias needs one.
    security.protocol | STRING | PLAINTEXT | How to talk to the brokers.
    sasl.mechanism | STRING | GSSAPI | How to log in; must be set with SASL.
    sasl.jaas.config | PASSWORD | - | The login module with its user name and password.
    sasl.username | STRING | - | The user name without JAAS, as librdkafka has it.
    sasl.password | PASSWORD | - | The password without JAAS, as librdkafka has it.
    sasl.oauthbearer.token.endpoint.url | STRING | - | Where OAUTHBEARER tokens are fetched.
    sasl.oauthbearer.client.credentials.client.id | STRING | - | Who fetches them.
    sasl.oauthbearer.client.credentials.client.secret | PASSWORD | - | With which secret.
    sasl.oauthbearer.scope | STRING | - | For which scope.
    sasl.login.read.timeout.ms | LONG | - | How long the token endpoint may take.
    ssl.enabled.protocols | LIST | TLSv1.2,TLSv1.3 | TLS versions.
    ssl.truststore.location | STRING | - | File of the certificates to trust.
    ssl.truststore.password | PASSWORD | - | Its password.
    ssl.truststore.type | STRING | JKS | Its format: PEM, PKCS12 or JKS; the last two are told apart by themselves.
    ssl.truststore.certificates | STRING | - | Trusted certificates themselves, as PEM.
    ssl.keystore.location | STRING | - | File of our key and certificate, for mutual TLS.
    ssl.keystore.password | PASSWORD | - | Its password.
    ssl.keystore.type | STRING | JKS | Its format: PEM, PKCS12 or JKS; the last two are told apart by themselves.
    ssl.keystore.key | PASSWORD | - | Our private key itself, as PEM.
    ssl.keystore.certificate.chain | STRING | - | Our certificates themselves, as PEM.
    ssl.key.password | PASSWORD | - | Password of the private key.
    ssl.endpoint.identification.algorithm | STRING | https | `https` checks the broker's host name, empty does not.
    consumer.isolation.level | STRING | read_committed | Under the source's alias. MM2's default: `read_uncommitted`.
    consumer.auto.offset.reset | STRING | earliest | Under the source's alias: where a new partition is begun.
    """,
    honoured=True,
)

_FLOW = _rows(
    F,
    r"""
    enabled | BOOL | false | Whether the flow runs. One that does not still emits heartbeats, as MM2's.
    topics | REGEXES | .* | Topics to copy; each must match in full. Empty: none.
    topics.exclude | REGEXES | mm2.*\.internal, .*\.replica, __.* | Topics not to copy, whatever `topics` says.
    topics.blacklist | REGEXES | - | Old name of `topics.exclude`, which wins if both are set.
    heartbeats.replication.enabled | BOOL | true | Whether heartbeat topics are copied whatever `topics` says.
    tasks.max | INT | - | Most Spark tasks for the flow. Unset: as many as the work can use (MM2: 1).
    replication.factor | FACTOR | 2 | Of new remote topics; -1: the target's default.
    target.partitions | COUNTS | - | Of remote topics; see above. Unset: as many as the source has. Heliograph's own.
    start | START | - | Where partitions begin that have no position yet; see above. Heliograph's own.
    max.bytes.per.second | CAPS | - | Most bytes copied in a second, by flow and by topic; see above. Heliograph's own.
    refresh.topics.interval.seconds | INTERVAL | 600 | How often new topics and partitions are looked for.
    refresh.topics.enabled | BOOL | true | `false`: look for topics only at start.
    replication.policy.class | CLASS | DefaultReplicationPolicy | How topics are named; see above for your own.
    replication.policy.separator | STRING | . | Between the alias and the topic in a remote topic's name.
    replication.policy.internal.topic.separator.enabled | BOOL | true | Whether MM2's own topics take the separator too.
    replication.policy.* | STRING | - | Settings of a naming policy of your own.
    heliograph.mm2.rules | INT | 4 | Whose rules for internal topics, exclusions and heartbeats: MM2 4.x's or 3.x's.
    sync.topic.configs.enabled | BOOL | true | Whether topic configs are synced.
    sync.topic.configs.interval.seconds | INTERVAL | 600 | How often.
    sync.topic.configs.lower.durability | BOOL | false | May `min.insync.replicas` sink? Heliograph's own.
    sync.topic.configs.shorten.retention | BOOL | false | May syncs delete target records? See above. Heliograph's own.
    sync.topic.acls.enabled | BOOL | true | Whether ACLs are synced.
    sync.topic.acls.interval.seconds | INTERVAL | 600 | How often.
    sync.topic.acls.own.principal | STRING | - | Ours on the target, where the login does not tell. Heliograph's own.
    config.properties.exclude | REGEXES | MM2's list | Topic configs that are not synced; replaces the list.
    config.properties.blacklist | REGEXES | - | Old name of `config.properties.exclude`.
    emit.offset-syncs.enabled | BOOL | true | Whether offset syncs are written; without them no checkpoints either.
    offset-syncs.topic.location | STRING | source | On which cluster offset syncs lie.
    offset-syncs.topic.replication.factor | FACTOR | 3 | Of the offset syncs topic.
    offset.lag.max | LONG | 100 | How far offset syncs may lag, in records.
    emit.checkpoints.enabled | BOOL | true | Whether checkpoints are written.
    emit.checkpoints.interval.seconds | INTERVAL | 60 | How often.
    checkpoints.topic.replication.factor | FACTOR | 3 | Of the checkpoints topic.
    groups | REGEXES | .* | Consumer groups whose offsets are translated.
    groups.exclude | REGEXES | console-consumer-.*, connect-.*, __.* | Groups that are not.
    groups.blacklist | REGEXES | - | Old name of `groups.exclude`.
    refresh.groups.enabled | BOOL | true | Whether new groups are looked for.
    refresh.groups.interval.seconds | INTERVAL | 600 | How often.
    sync.group.offsets.enabled | BOOL | false | Whether group offsets are written on the target.
    sync.group.offsets.interval.seconds | INTERVAL | 60 | How often.
    emit.heartbeats.enabled | BOOL | true | Whether heartbeats are written.
    emit.heartbeats.interval.seconds | INTERVAL | 1 | How often.
    heartbeats.topic.replication.factor | FACTOR | 3 | Of the heartbeats topic.
    admin.timeout.ms | LONG | 60000 | How long calls to the clusters' admin APIs may take.
    on.gap | STRING | skip | Retention took records before they were read: `skip` goes on behind them, `stop` parks.
    on.source.recreated | STRING | restart | The topic was made anew: `restart` copies it from its start, `stop` parks.
    on.source.truncated | STRING | stop | The source ends before what was copied: `stop` parks, `restart` copies anew.
    on.target.lost | STRING | stop | The copy was deleted or cut: `stop`, `restart` (copy anew), `skip` (go on behind).
    on.refused | STRING | quarantine | The target takes a record in no batch: `quarantine`, `skip` (not kept), `stop`.
    mux.partitions | INT | 4 | Of a shared topic, when it is made. Heliograph's own.
    mux.headers | LIST | all eight | Headers that say where a record came from. Heliograph's own.
    mux.via | STRING | straight | To the target at once, or by an `intermediate` topic on the source. Heliograph's own.
    demux | STRING | - | Put the records back on the target: `original` names, or `prefixed`. Heliograph's own.
    demux.headers | STRING | keep | Whether records put back `keep` those headers, or `strip` them. Heliograph's own.
    demux.weight | INT | 1 | The source's share of the target, beside others', if that is the limit. Heliograph's own.
    demux.max.bytes.per.second | LONG | - | At most so much of the source is put back in a second. Heliograph's own.
    """,
    honoured=True,
)

_FLOW_ONLY = _rows(
    F,
    """
    mux.topics | REGEXES | - | Topics that travel together in one shared topic; see above. Heliograph's own.
    demux.topics | REGEXES | those of mux.topics | What labels may name; all else is not put back. Heliograph's own.
    mux.identifier | STRING | <source> | What the source is called in the records' headers. Heliograph's own.
    mux.topic | STRING | mux-replication_<identifier> | The shared topic. Heliograph's own.
    use.defaults.from | STRING | target | Whose defaults a synced topic config takes. Only as `A->B.use.defaults.from`.
    """,
    honoured=True,
    flow_only=True,
)

_CLUSTER = _rows(
    C,
    """
    offset.storage.replication.factor | FACTOR | 3 | Of the positions topic. At the top level it wins.
    offset.storage.partitions | INT | 25 | Its partitions. At the top level it wins.
    offset.storage.topic | STRING | mm2-offsets.<source>.internal | Its name. At the top level it wins.
    offset.flush.interval.ms | LONG | 60000 | Within this, offset syncs follow an idle partition's end.
    """,
    honoured=True,
)

# ---- known, nothing to act on here -------------------------------------------------------------------------------

_FILE_MOOT = _rows(
    G,
    """
    dedicated.mode.enable.internal.rest | BOOL | false | MM2's REST between its processes.
    listeners | LIST | http://:8083 | Of the REST API.
    rest.advertised.* | STRING | - | Of the REST API.
    access.control.allow.* | STRING | - | Of the REST API.
    response.http.headers.config | STRING | - | Of the REST API.
    ssl.client.auth | STRING | none | TLS of the REST API.
    """,
)

_FLOW_MOOT = _rows(
    F,
    """
    forwarding.admin.class | CLASS | ForwardingAdmin | A Java class that creates and alters topics.
    metric.reporters | LIST | JmxReporter | Java classes that metrics go to.
    metric.names.formats | LIST | legacy | Of Java's metrics.
    topic.filter.class | CLASS | DefaultTopicFilter | A Java class that decides which topics are copied; refused.
    group.filter.class | CLASS | DefaultGroupFilter | A Java class that decides which groups; refused.
    config.property.filter.class | CLASS | DefaultConfigPropertyFilter | A Java class that picks configs; refused.
    consumer.poll.timeout.ms | LONG | 1000 | How long a poll of the source waits.
    tasks.max.enforce | BOOL | true | Whether Connect fails connectors with more tasks than `tasks.max`.
    key.converter | CLASS | ByteArrayConverter | What Connect reads keys by; records are never decoded here.
    key.converter.* | STRING | - | Its settings.
    value.converter | CLASS | ByteArrayConverter | What Connect reads values by; records are never decoded here.
    value.converter.* | STRING | - | Its settings.
    header.converter | CLASS | ByteArrayConverter | What Connect reads headers by; records are never decoded here.
    header.converter.* | STRING | - | Its settings.
    key.converter.plugin.version | STRING | - | Which version of the keys' converter Connect loads.
    value.converter.plugin.version | STRING | - | Which version of the values' converter Connect loads.
    header.converter.plugin.version | STRING | - | Which version of the headers' converter Connect loads.
    transforms | LIST | - | Java classes that change each record on its way; refused.
    predicates | LIST | - | Conditions of transforms.
    config.action.reload | STRING | restart | What a changed secret does.
    errors.retry.timeout | LONG | 0 | How long Connect tries again what failed; here `on.*` decide.
    errors.retry.delay.max.ms | LONG | 60000 | The longest pause between two of these tries.
    errors.tolerance | STRING | none | Whether Connect passes over bad records; here `on.refused` decides.
    errors.log.enable | BOOL | false | Whether Connect logs them; here incidents are always written down.
    errors.log.include.messages | BOOL | false | Whether with the record; here it is in the quarantine.
    source.cluster.alias | STRING | <source> | Follows from the flow's name; another is refused, but for the empty one.
    target.cluster.alias | STRING | <target> | Follows from the flow's name; another is refused, but for the empty one.
    name | STRING | - | What the connector is called, on all nodes of its worker; in a file the flow's name counts.
    connector.class | CLASS | - | MirrorSourceConnector, MirrorCheckpointConnector or MirrorHeartbeatConnector.
    connector.plugin.version | STRING | - | Which version of its class Connect loads; here is one.
    use.incremental.alter.configs | STRING | requested | Gone in 4.0.
    add.source.alias.to.metrics | BOOL | false | Gone in 4.0.
    auto.include.jmx.reporter | BOOL | true | Gone in 4.0.
    """,
)

_FLOW_ONLY_MOOT = _rows(
    F,
    """
    transforms.* | STRING | - | Settings of transforms.
    predicates.* | STRING | - | Settings of predicates.
    exactly.once.support | STRING | requested | Heliograph is exactly once always.
    transaction.boundary | STRING | poll | When MM2 commits its transactions.
    transaction.boundary.interval.ms | LONG | - | How often MM2 commits them.
    topic.creation.* | STRING | - | How Connect creates topics.
    offsets.storage.topic | STRING | - | A positions topic of the connector's own.
    source.cluster.* | STRING | - | What clusterwide settings of the source come to; `<alias>.` beats it.
    target.cluster.* | STRING | - | What clusterwide settings of the target come to; `<alias>.` beats it.
    """,
    flow_only=True,
)

_CLUSTER_MOOT = _rows(
    C,
    """
    offset.storage.* | STRING | - | Its other settings.
    config.storage.topic | STRING | mm2-configs.<source>.internal | Connect's configuration topic.
    config.storage.replication.factor | INT | 3 | Of that topic.
    config.storage.* | STRING | - | Its other settings.
    status.storage.topic | STRING | mm2-status.<source>.internal | Connect's status topic.
    status.storage.partitions | INT | 5 | Of that topic.
    status.storage.replication.factor | INT | 3 | Of that topic.
    status.storage.* | STRING | - | Its other settings.
    offset.flush.timeout.ms | LONG | 5000 | How long writing positions may take.
    task.shutdown.graceful.timeout.ms | LONG | 5000 | How long a task may take to end.
    exactly.once.source.support | STRING | disabled | MM2's exactly-once mode; Heliograph is exactly once always.
    group.id | STRING | <source>-mm2 | Of the group of MM2's processes.
    client.id | STRING | <source>-><target> | What brokers log of us.
    session.timeout.ms | LONG | 10000 | Of the group of MM2's processes.
    heartbeat.interval.ms | LONG | 3000 | Of that group.
    rebalance.timeout.ms | LONG | 60000 | Of that group.
    scheduled.rebalance.max.delay.ms | LONG | 300000 | Of that group.
    connect.protocol | STRING | sessioned | Of that group.
    worker.sync.timeout.ms | LONG | 3000 | Of that group.
    worker.unsync.backoff.ms | LONG | 300000 | Of that group.
    topic.creation.enable | BOOL | true | Whether Connect creates topics by `topic.creation.*`.
    topic.tracking.enable | BOOL | true | Whether a worker keeps track of connectors' topics: see `heliograph connect`.
    topic.tracking.allow.reset | BOOL | true | Whether that may be forgotten by a request.
    connector.client.config.override.policy | STRING | All | Which settings of clients connectors may have of their own.
    plugin.path | LIST | - | Where Connect finds Java classes.
    plugin.discovery | STRING | hybrid_warn | How it finds them.
    inter.worker.key.* | STRING | - | Between MM2's processes.
    inter.worker.signature.algorithm | STRING | HmacSHA256 | Between MM2's processes.
    inter.worker.verification.algorithms | LIST | HmacSHA256 | Between MM2's processes.
    admin.listeners.https.* | STRING | - | Of the REST API.
    internal.key.converter.* | STRING | - | Of old Connect.
    internal.value.converter.* | STRING | - | Of old Connect.
    """,
)

_CLIENT_MOOT = _rows(
    K,
    """
    sasl.client.callback.handler.class | CLASS | - | A Java class for logging in.
    sasl.login.callback.handler.class | CLASS | - | A Java class for logging in.
    sasl.login.class | CLASS | - | A Java class for logging in.
    sasl.login.connect.timeout.ms | LONG | - | Of the token endpoint.
    sasl.login.refresh.* | STRING | - | When tokens are renewed.
    sasl.login.retry.* | STRING | - | Of the token endpoint.
    sasl.kerberos.* | STRING | - | Kerberos.
    sasl.oauthbearer.* | STRING | - | How tokens are fetched and checked.
    ssl.protocol | STRING | TLSv1.3 | Java's choice of TLS version.
    ssl.cipher.suites | LIST | - | TLS ciphers.
    ssl.provider | STRING | - | Java's TLS provider.
    ssl.keymanager.algorithm | STRING | SunX509 | Of Java.
    ssl.trustmanager.algorithm | STRING | PKIX | Of Java.
    ssl.secure.random.implementation | STRING | - | Of Java.
    ssl.engine.factory.class | CLASS | - | A Java class for TLS.
    """,
)

KEYS: tuple[Key, ...] = (
    *(*_FILE, *_CLIENT, *_FLOW, *_FLOW_ONLY, *_CLUSTER),
    *(*_FILE_MOOT, *_FLOW_MOOT, *_FLOW_ONLY_MOOT, *_CLUSTER_MOOT, *_CLIENT_MOOT),
    *(Key(name, C, Kind.STRING, None, "Of Connect's worker.") for name in sorted(clients.WORKER)),
)

# MM2 hands worker settings at the top level through only if they begin so; it drops the others in silence.
WORKER_PREFIXES = ("offset.storage", "config.storage", "status.storage", "task", "worker")


@lru_cache(maxsize=4096)
def find(name: str, scopes: tuple[Scope, ...]) -> Key | None:
    """The key of that name in those scopes: an exact one before a family, a long family before a short one."""
    found = [key for key in KEYS if key.scope in scopes and key.covers(name)]
    return max(found, key=lambda key: (not key.is_family, len(key.name)), default=None)


def nearest_of(name: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.6)), None)


HTTPS = "listeners.https."
# What stands behind HTTPS and is honoured: `wire.stores.server_tls_of` reads them.
LISTENER_KEYS = (
    *("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type", "ssl.key.password"),
    *("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.client.auth", "ssl.enabled.protocols"),
    *("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "ssl.truststore.certificates"),
)


def near_listener_key(key: str) -> str | None:
    near = nearest_of(key.removeprefix(HTTPS)[:LONGEST_NAME], LISTENER_KEYS)
    return near and f"{HTTPS}{near}"


LONGEST_NAME = 100  # what could be a known key with a letter or two wrong


def nearest(name: str, scopes: tuple[Scope, ...] = tuple(Scope)) -> str | None:
    if len(name) > LONGEST_NAME:
        return None
    names = {key.name for key in KEYS if key.scope in scopes and not key.is_family}
    words = sorted(name.split("."))
    if turned := next((other for other in sorted(names) if sorted(other.split(".")) == words), None):
        return turned  # max.tasks
    return next(iter(difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.7)), None)

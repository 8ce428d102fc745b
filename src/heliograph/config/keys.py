"""The one table of configuration keys. It drives parsing, validation, warnings and the page docs/configuration.md.

Answers for which keys exist, where they may stand, what they may hold and whether Heliograph honours them. It holds
every key MirrorMaker 2 knows, because a file that MM2 accepts must be read here with nothing passed over in silence. A
name that ends in `*` stands for a family.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum


class Scope(Enum):
    """Where a key may stand."""

    GLOBAL = "once in the file"
    FLOW = "for every flow, or `A->B.` for one"
    CLUSTER = "`<alias>.` of the target cluster"
    CLIENT = "for every cluster, `<alias>.` for one, `<alias>.consumer.` / `.producer.` for one use of it"


class Kind(Enum):
    STRING = "string"
    LIST = "list"
    REGEXES = "list of names or regular expressions"
    SERVERS = "list of host:port"
    INT = "int"
    LONG = "long"
    BOOL = "boolean"
    PASSWORD = "password"
    CLASS = "class"


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    scope: Scope
    kind: Kind
    default: str | None  # None: there is none
    doc: str
    honoured: bool = False
    allowed: tuple[str, ...] = ()
    minimum: int | None = None
    flow_only: bool = False  # MM2 drops it at the top level: it must carry `A->B.`
    decisive: bool = False  # ignoring it would write to the wrong place: refused, not warned about, unless the default

    @property
    def is_family(self) -> bool:
        return self.name.endswith("*")

    def covers(self, name: str) -> bool:
        return name.startswith(self.name[:-1]) if self.is_family else name == self.name


def _rows(scope: Scope, text: str) -> list[Key]:
    """Keys that are known and wait to be honoured, one a line: `name | kind | default | what it is`."""
    rows = []
    for line in text.strip().splitlines():
        name, kind, default, doc = (cell.strip() for cell in line.split("|", 3))
        rows.append(Key(name, scope, Kind[kind], None if default == "-" else default, doc))
    return rows


G, F, C, K = Scope.GLOBAL, Scope.FLOW, Scope.CLUSTER, Scope.CLIENT

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
POLICY_PACKAGE = "org.apache.kafka.connect.mirror."

ISOLATION = Key(
    "consumer.isolation.level",
    *(K, Kind.STRING, "read_committed", "Under the source's alias. MM2's default is `read_uncommitted`."),
    honoured=True,
    allowed=("read_committed", "read_uncommitted"),
)

HONOURED = [
    Key("clusters", G, Kind.LIST, None, "Aliases of the clusters.", True),
    Key("bootstrap.servers", K, Kind.SERVERS, None, "Where the cluster is reached first. Each alias needs one.", True),
    Key("security.protocol", K, Kind.STRING, "PLAINTEXT", "How to talk to the brokers.", True, PROTOCOLS),
    Key("sasl.mechanism", K, Kind.STRING, "GSSAPI", "How to log in; must be set with SASL.", True, MECHANISMS),
    Key("sasl.jaas.config", K, Kind.PASSWORD, None, "The login module with its user name and password.", True),
    Key("sasl.username", K, Kind.STRING, None, "The user name without JAAS, as librdkafka has it.", True),
    Key("sasl.password", K, Kind.PASSWORD, None, "The password without JAAS, as librdkafka has it.", True),
    Key("sasl.oauthbearer.token.endpoint.url", K, Kind.STRING, None, "Where OAUTHBEARER tokens are fetched.", True),
    Key("sasl.oauthbearer.client.credentials.client.id", K, Kind.STRING, None, "Who fetches them.", True),
    Key("sasl.oauthbearer.client.credentials.client.secret", K, Kind.PASSWORD, None, "With which secret.", True),
    Key("sasl.oauthbearer.scope", K, Kind.STRING, None, "For which scope.", True),
    Key("sasl.login.read.timeout.ms", K, Kind.LONG, None, "How long the token endpoint may take.", True, minimum=1),
    Key("ssl.enabled.protocols", K, Kind.LIST, "TLSv1.2,TLSv1.3", "TLS versions.", True),
    Key("ssl.truststore.location", K, Kind.STRING, None, "File of the certificates to trust.", True),
    Key("ssl.truststore.password", K, Kind.PASSWORD, None, "Its password.", True),
    Key("ssl.truststore.type", K, Kind.STRING, "JKS", "Its format: PEM, PKCS12 or JKS.", True),
    Key("ssl.truststore.certificates", K, Kind.STRING, None, "Trusted certificates themselves, as PEM.", True),
    Key("ssl.keystore.location", K, Kind.STRING, None, "File of our key and certificate, for mutual TLS.", True),
    Key("ssl.keystore.password", K, Kind.PASSWORD, None, "Its password.", True),
    Key("ssl.keystore.type", K, Kind.STRING, "JKS", "Its format: PEM, PKCS12 or JKS.", True),
    Key("ssl.keystore.key", K, Kind.PASSWORD, None, "Our private key itself, as PEM.", True),
    Key("ssl.keystore.certificate.chain", K, Kind.STRING, None, "Our certificates themselves, as PEM.", True),
    Key("ssl.key.password", K, Kind.PASSWORD, None, "Password of the private key.", True),
    Key(
        "ssl.endpoint.identification.algorithm",
        *(K, Kind.STRING, "https", "`https` checks the broker's host name against its certificate, empty does not."),
        honoured=True,
    ),
    Key("enabled", F, Kind.BOOL, "false", "Whether the flow runs.", True),
    Key("topics", F, Kind.REGEXES, ".*", "Topics to copy; each must match in full. Empty: none.", True),
    Key(
        "topics.exclude",
        *(F, Kind.REGEXES, r"mm2.*\.internal, .*\.replica, __.*", "Topics not to copy, whatever `topics` says."),
        honoured=True,
    ),
    Key("topics.blacklist", F, Kind.REGEXES, None, "Old name of `topics.exclude`, which wins if both are set.", True),
    Key(
        "heartbeats.replication.enabled",
        *(F, Kind.BOOL, "true", "Whether heartbeat topics are copied whatever `topics` says."),
        honoured=True,
    ),
    Key(
        "tasks.max",
        *(F, Kind.INT, None, "Most Spark tasks for the flow. Unset: as many as the work can use (MM2: 1)."),
        honoured=True,
        minimum=1,
    ),
    Key("replication.factor", F, Kind.INT, "2", "Of new remote topics; -1: the target's default.", True, minimum=-1),
    Key(
        "refresh.topics.interval.seconds",
        *(F, Kind.LONG, "600", "How often new topics and partitions are looked for; negative: never."),
        honoured=True,
    ),
    Key("refresh.topics.enabled", F, Kind.BOOL, "true", "`false`: look for topics only at start.", True),
    Key(
        "offset.storage.replication.factor",
        *(
            C,
            Kind.INT,
            "3",
            "Of the positions topic on the target; -1: the target's default. At the top level it wins.",
        ),
        honoured=True,
        minimum=-1,
    ),
    ISOLATION,
]

NAMING = [
    Key(
        "replication.policy.class",
        *(F, Kind.CLASS, POLICY_PACKAGE + "DefaultReplicationPolicy", "How remote topics are named."),
        allowed=("DefaultReplicationPolicy", POLICY_PACKAGE + "DefaultReplicationPolicy"),
        decisive=True,
    ),
    Key(
        "replication.policy.separator",
        *(F, Kind.STRING, ".", "Between the alias and the topic in a remote topic's name."),
        allowed=(".",),
        decisive=True,
    ),
]

FLOW_ONLY = [
    Key(name, F, kind, default, doc, flow_only=True)
    for name, kind, default, doc in (
        ("use.defaults.from", Kind.STRING, "target", "Whose defaults a synced topic config takes."),
        ("exactly.once.support", Kind.STRING, "requested", "Heliograph is exactly once always."),
        ("transaction.boundary", Kind.STRING, "poll", "When MM2 commits its transactions."),
        ("transaction.boundary.interval.ms", Kind.LONG, None, "How often MM2 commits them."),
        ("topic.creation.*", Kind.STRING, None, "How Connect creates topics."),
        ("offsets.storage.topic", Kind.STRING, None, "A positions topic of the connector's own."),
        ("source.cluster.alias", Kind.STRING, None, "Follows from the flow's name."),
        ("target.cluster.alias", Kind.STRING, "target", "Follows from the flow's name."),
        ("source.*", Kind.STRING, None, "Client settings of the source for one flow."),
        ("target.*", Kind.STRING, None, "Client settings of the target for one flow."),
        ("consumer.*", Kind.STRING, None, "Any setting of Kafka's consumer."),
        ("producer.*", Kind.STRING, None, "Any setting of Kafka's producer."),
        ("admin.*", Kind.STRING, None, "Any setting of Kafka's admin client."),
        ("name", Kind.STRING, None, "Of the connector."),
        ("connector.class", Kind.CLASS, None, "Of the connector."),
    )
]

OTHERS = (
    _rows(
        G,
        """
        dedicated.mode.enable.internal.rest | BOOL | false | MM2's REST between its processes.
        config.providers | LIST | - | Where `${provider:path:key}` in values is looked up.
        config.providers.* | STRING | - | Settings of the providers.
        listeners | LIST | http://:8083 | Of the REST API.
        listeners.https.* | STRING | - | TLS of the REST API.
        rest.advertised.* | STRING | - | Of the REST API.
        access.control.allow.* | STRING | - | Of the REST API.
        response.http.headers.config | STRING | - | Of the REST API.
        ssl.client.auth | STRING | none | TLS of the REST API.
        """,
    )
    + _rows(
        F,
        r"""
        admin.timeout.ms | LONG | 60000 | How long calls to the clusters' admin APIs may take.
        replication.policy.internal.topic.separator.enabled | BOOL | true | Whether internal topics take it too.
        replication.policy.* | STRING | - | Settings of a naming policy.
        forwarding.admin.class | CLASS | ForwardingAdmin | Who creates and alters topics.
        metric.reporters | LIST | JmxReporter | Where metrics go.
        topic.filter.class | CLASS | DefaultTopicFilter | Who decides which topics are copied.
        config.properties.exclude | REGEXES | follower\.replication\.…, … | Topic configs that are not synced.
        config.properties.blacklist | REGEXES | - | Old name of `config.properties.exclude`.
        config.property.filter.class | CLASS | DefaultConfigPropertyFilter | Who decides which configs are synced.
        consumer.poll.timeout.ms | LONG | 1000 | How long a poll of the source waits.
        sync.topic.configs.enabled | BOOL | true | Whether topic configs are synced.
        sync.topic.configs.interval.seconds | LONG | 600 | How often.
        sync.topic.acls.enabled | BOOL | true | Whether ACLs are synced.
        sync.topic.acls.interval.seconds | LONG | 600 | How often.
        offset-syncs.topic.replication.factor | INT | 3 | Of the offset syncs topic.
        offset-syncs.topic.location | STRING | source | On which cluster it lies.
        offset.lag.max | LONG | 100 | How far MM2's offset syncs may lag.
        emit.offset-syncs.enabled | BOOL | true | Whether offset syncs are written.
        groups | REGEXES | .* | Consumer groups whose offsets are translated.
        groups.exclude | REGEXES | console-consumer-.*, connect-.*, __.* | Groups that are not.
        groups.blacklist | REGEXES | - | Old name of `groups.exclude`.
        group.filter.class | CLASS | DefaultGroupFilter | Who decides which groups.
        refresh.groups.enabled | BOOL | true | Whether new groups are looked for.
        refresh.groups.interval.seconds | LONG | 600 | How often.
        emit.checkpoints.enabled | BOOL | true | Whether checkpoints are written.
        emit.checkpoints.interval.seconds | LONG | 60 | How often.
        sync.group.offsets.enabled | BOOL | false | Whether group offsets are written on the target.
        sync.group.offsets.interval.seconds | LONG | 60 | How often.
        checkpoints.topic.replication.factor | INT | 3 | Of the checkpoints topic.
        emit.heartbeats.enabled | BOOL | true | Whether heartbeats are written.
        emit.heartbeats.interval.seconds | LONG | 1 | How often.
        heartbeats.topic.replication.factor | INT | 3 | Of the heartbeats topic.
        tasks.max.enforce | BOOL | true | Of Connect.
        key.converter | CLASS | ByteArrayConverter | Of Connect; Heliograph never decodes records.
        key.converter.* | STRING | - | Of Connect.
        value.converter | CLASS | ByteArrayConverter | Of Connect.
        value.converter.* | STRING | - | Of Connect.
        header.converter | CLASS | ByteArrayConverter | Of Connect.
        header.converter.* | STRING | - | Of Connect.
        transforms | LIST | - | Changes to each record on its way.
        transforms.* | STRING | - | Their settings.
        predicates | LIST | - | Conditions of transforms.
        predicates.* | STRING | - | Their settings.
        config.action.reload | STRING | restart | What a changed secret does.
        errors.retry.timeout | LONG | 0 | Of Connect.
        errors.retry.delay.max.ms | LONG | 60000 | Of Connect.
        errors.tolerance | STRING | none | Of Connect.
        errors.log.enable | BOOL | false | Of Connect.
        errors.log.include.messages | BOOL | false | Of Connect.
        use.incremental.alter.configs | STRING | requested | Gone in 4.0.
        add.source.alias.to.metrics | BOOL | false | Gone in 4.0.
        auto.include.jmx.reporter | BOOL | true | Gone in 4.0.
        """,
    )
    + _rows(
        C,
        """
        offset.storage.topic | STRING | mm2-offsets.<source>.internal | The positions topic.
        offset.storage.partitions | INT | 25 | Its partitions.
        offset.storage.* | STRING | - | Its other settings.
        config.storage.topic | STRING | mm2-configs.<source>.internal | Connect's configuration topic.
        config.storage.replication.factor | INT | 3 | Of that topic.
        config.storage.* | STRING | - | Its other settings.
        status.storage.topic | STRING | mm2-status.<source>.internal | Connect's status topic.
        status.storage.partitions | INT | 5 | Of that topic.
        status.storage.replication.factor | INT | 3 | Of that topic.
        status.storage.* | STRING | - | Its other settings.
        offset.flush.interval.ms | LONG | 60000 | How often MM2 writes positions.
        offset.flush.timeout.ms | LONG | 5000 | How long that may take.
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
        topic.creation.enable | BOOL | true | Of Connect.
        topic.tracking.enable | BOOL | true | Of Connect.
        topic.tracking.allow.reset | BOOL | true | Of Connect.
        connector.client.config.override.policy | STRING | All | Of Connect.
        plugin.path | LIST | - | Where Connect finds Java classes.
        plugin.discovery | STRING | hybrid_warn | How it finds them.
        inter.worker.key.* | STRING | - | Between MM2's processes.
        inter.worker.signature.algorithm | STRING | HmacSHA256 | Between MM2's processes.
        inter.worker.verification.algorithms | LIST | HmacSHA256 | Between MM2's processes.
        consumer.* | STRING | - | Any setting of Kafka's consumer.
        producer.* | STRING | - | Any setting of Kafka's producer.
        admin.* | STRING | - | Any setting of Kafka's admin client.
        """,
    )
    + _rows(
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
        security.providers | STRING | - | Java classes for security.
        """,
    )
)

KEYS: tuple[Key, ...] = (*HONOURED, *NAMING, *FLOW_ONLY, *OTHERS)

# MM2 hands worker settings at the top level through only if they begin so; it drops the others in silence.
WORKER_PREFIXES = ("offset.storage", "config.storage", "status.storage", "task", "worker")


def find(name: str, scopes: tuple[Scope, ...]) -> Key | None:
    """The key of that name in those scopes: an exact one before a family, a long family before a short one."""
    found = [key for key in KEYS if key.scope in scopes and key.covers(name)]
    return max(found, key=lambda key: (not key.is_family, len(key.name)), default=None)


def nearest(name: str, scopes: tuple[Scope, ...] = tuple(Scope)) -> str | None:
    names = {key.name for key in KEYS if key.scope in scopes and not key.is_family}
    return next(iter(difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.7)), None)

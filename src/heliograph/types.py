"""Names and small values that several rooms share. Nothing here does anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple

Isolation = Literal["read_committed", "read_uncommitted"]

POSITIONS_UNDER = "MirrorSourceConnector"  # the connector's name in MM2's positions, unless Connect gave it another
SECRET_WORDS = (
    *("password", "secret", "jaas", "token", "ssl.keystore.key", "credential"),
    *("passwd", "passphrase", "private.key", "apikey", "api.key"),  # of policies' own settings
)


def is_secret(key: str) -> bool:
    """Whether the value of this client property must never be printed."""
    return any(word in key.lower() for word in SECRET_WORDS)


# The headers that say where a record in a shared topic came from, in the order in which they stand (`batch.labels`).
MUX_HEADERS = (
    "MUX_SOURCE_TOPIC",
    "MUX_SOURCE_TOPIC_PARTITION",
    "MUX_SOURCE_TIMESTAMP",
    "MUX_SOURCE_BOOTSTRAP_SERVERS",
    "MUX_INTERMEDIATE_TOPIC",
    "MUX_SOURCE_IDENTIFIER",
    "MUX_SOURCE_CLUSTER_ID",
    "MUX_SOURCE_OFFSET",
)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach one cluster: its alias and Kafka's own client properties, already resolved.

    `properties` holds `bootstrap.servers`, `security.protocol`, `ssl.*`, `sasl.*` under the names Kafka's Java clients
    use. It may hold secrets, so printing it masks them.
    """

    alias: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return self.properties.get("bootstrap.servers", "")

    def __repr__(self) -> str:
        shown = {k: "***" if is_secret(k) else v for k, v in self.properties.items()}
        return f"Cluster({self.alias!r}, {shown})"


@dataclass(frozen=True, slots=True)
class Naming:
    """How topics are called on the target; `policy.make` turns it into the object that answers."""

    policy: str = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
    separator: str = "."
    internal_separator: bool = True  # whether the names of internal topics take the separator too
    rules: int = 4  # whose rules for internal topics: MM2 3.x's or 4.x's
    settings: tuple[tuple[str, str], ...] = ()  # further replication.policy.* keys, for a policy of the user's own
    allowed: bool = False  # `heliograph.policy.classes` of the operator's file names `policy`: it may be imported


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where in a source partition copying begins."""

    at: Literal["earliest", "latest", "timestamp", "offset"] = "earliest"
    value: int = 0  # of a timestamp: ms since 1970; of an offset: itself

    def __str__(self) -> str:
        if self.at == "offset":
            return f"offset {self.value}"
        if self.at == "timestamp":
            when = datetime.fromtimestamp(self.value / 1000, tz=UTC)
            return f"timestamp {when.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"
        return self.at


@dataclass(frozen=True, slots=True)
class StartRule:
    """Where partitions that nobody has copied yet begin. `topics` is a name or a regular expression, matched in full;
    `partition` None: all of them."""

    point: StartPoint
    topics: str = ".*"
    partition: int | None = None

    def __str__(self) -> str:
        whose = self.topics if self.partition is None else f"{self.topics}:{self.partition}"
        return f"{whose}={self.point}"


@dataclass(frozen=True, slots=True)
class CountRule:
    """How many partitions remote topics have. `topics` is a name or a regular expression, matched in full."""

    partitions: int
    topics: str = ".*"

    def __str__(self) -> str:
        return f"{self.topics}:{self.partitions}"


@dataclass(frozen=True, slots=True)
class Cap:
    """What may be copied in a second: of all topics of a flow together, or of those that `topics` (a name or a regular
    expression, matched in full) fits and no pattern before it, together."""

    bytes_per_s: int
    topics: str | None = None  # None: of the flow

    def __str__(self) -> str:
        return f"{self.bytes_per_s}" if self.topics is None else f"{self.topics}={self.bytes_per_s}"


# The keys of replication factors, as the file calls them.
COPIES_FACTOR = "replication.factor"
STORAGE_FACTOR = "offset.storage.replication.factor"
SYNCS_FACTOR = "offset-syncs.topic.replication.factor"
CHECKPOINTS_FACTOR = "checkpoints.topic.replication.factor"
HEARTBEATS_FACTOR = "heartbeats.topic.replication.factor"


@dataclass(frozen=True, slots=True)
class Factor:
    """A replication factor: how many replicas a new topic is to have, and which key says so."""

    replicas: int  # -1: the cluster's own default.replication.factor
    key: str = COPIES_FACTOR  # as the file has it, or would have it
    fixed: bool = False  # the file sets it: a cluster with fewer brokers is an error

    @property
    def lowerable(self) -> bool:
        """A default of ours: where the cluster has fewer brokers, topics get as many replicas as it has brokers."""
        return not self.fixed and self.replicas > 0


@dataclass(frozen=True, slots=True)
class Mux:
    """Topics of a cluster that go into one shared topic, each record with headers that say where it came from."""

    topics: tuple[str, ...]  # names or regular expressions, matched in full
    topic: str  # the shared one
    identifier: str  # how the source is called in the headers
    partitions: int  # of the shared topic, when it is made
    headers: tuple[str, ...]  # which of them are written, beside those without which there is no way back
    hub: str = ""  # the alias of the cluster that it is for: what came from there does not go back


@dataclass(frozen=True, slots=True)
class Demux:
    """A shared topic whose records are put back: into topics called as at their source, or with a prefix."""

    topic: str  # the shared one, as it is called here
    prefix: str  # of the topics: empty, or the source's alias and a separator
    keep_headers: bool
    spoke: Cluster  # where its records came from: asked how the topics are that are to be made
    factor: Factor = Factor(2)  # of the topics that are made
    weight: int = 1  # its share of the hub, beside the other spokes'
    topics: tuple[str, ...] = (".*",)  # what labels may name, as `Mux.topics`; all else is nobody's
    shared: tuple[str, ...] = ()  # all shared topics here, also those that are not put back: nobody's targets
    sync_configs_s: float | None = None  # how often its topics' settings follow the spoke's; None: never
    lower_durability: bool = False  # these two as in Flow, for the spoke's topics alone
    shorten_retention: bool = False


@dataclass(frozen=True, slots=True)
class Policies:
    """What a flow does about what should not have happened. `stop` parks the partition; the others always go on."""

    gap: Literal["skip", "stop"] = "skip"  # retention took source records before they could be read
    recreated: Literal["restart", "stop"] = "restart"  # the source topic was deleted and made anew
    truncated: Literal["restart", "stop"] = "stop"  # the source topic ends before what was copied of it
    target_lost: Literal["restart", "skip", "stop"] = "stop"  # the target no longer has what it had acknowledged
    refused: Literal["quarantine", "skip", "stop"] = "quarantine"  # the target will not take a record


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction between two clusters, and what it copies. An interval of None: not at all."""

    source: Cluster
    target: Cluster
    enabled: bool = True  # False: only heartbeats are written, as MM2 does for pairs that do not copy
    topics: tuple[str, ...] = (".*",)
    topics_exclude: tuple[str, ...] = (r"mm2.*\.internal", r".*\.replica", "__.*")
    naming: Naming = Naming()
    heartbeats_replication: bool = True  # heartbeat topics are copied whatever the filter says
    tasks_max: int | None = None  # None: as many as the work can use
    replication_factor: int = 2  # MM2's default for new remote topics
    isolation: Isolation = "read_committed"
    start_at: Literal["earliest", "latest"] = "earliest"  # a partition nobody has copied yet, and no rule of `start`
    start: tuple[StartRule, ...] = ()  # the first that fits decides
    target_partitions: tuple[CountRule, ...] = ()  # likewise; none fits: as many as the source has
    offset_storage_replication_factor: int = 3
    offset_storage_partitions: int = 25
    positions_topic: str | None = None  # `offset.storage.topic`; None: policy.positions_topic(source.alias)
    refresh_topics_interval_seconds: float = 600  # MM2's default
    # topics' settings and permissions
    sync_topic_configs_s: float | None = 600
    sync_topic_acls_s: float | None = 600
    own_principal: str = ""  # ours on the target, as its ACLs name it; "": as the login tells, if it does
    config_properties_exclude: tuple[str, ...] = (  # MM2's own list, dots and all; two of them no topic has
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    )
    use_defaults_from: Literal["source", "target"] = "target"
    lower_durability: bool = False  # told to: min.insync.replicas and its like may sink below the target's own
    shorten_retention: bool = False  # told to: retention and cleanup may delete records that the target keeps now
    # offsets
    emit_offset_syncs: bool = True
    offset_syncs_location: Literal["source", "target"] = "source"
    offset_syncs_replication_factor: int = 3
    offset_lag_max: int = 100
    offset_flush_s: float = 60.0  # the idle tail of a partition is synced within this
    emit_checkpoints_s: float | None = 60
    checkpoints_replication_factor: int = 3
    groups: tuple[str, ...] = (".*",)
    groups_exclude: tuple[str, ...] = ("console-consumer-.*", "connect-.*", "__.*")
    refresh_groups_s: float | None = 600
    sync_group_offsets_s: float | None = None
    emit_heartbeats_s: float | None = 1
    heartbeats_replication_factor: int = 3
    # Of the replication factors those that the file sets: (the key, the key as it stands there). Others are defaults.
    factors_set: tuple[tuple[str, str], ...] = ()
    admin_timeout_s: float = 60.0
    on: Policies = Policies()
    caps: tuple[Cap, ...] = ()
    # stages: a flow that has one copies nothing else, and may begin and end in one cluster
    mux: Mux | None = None
    demux: tuple[Demux, ...] = ()
    awaits: tuple[str, ...] = ()  # topics on the source that such a flow is about to make, and this one copies
    # Of a connector (`connect/`), of which several may stand between two clusters
    label: str = ""  # the connector's name; "": the flow is of a file
    copies: bool = True  # False: only what stands beside the copying, of records that other flows copy
    positions_under: tuple[str, ...] = (POSITIONS_UNDER,)  # whose positions are read; the first's are written

    @property
    def name(self) -> str:
        stage = ".mux" if self.mux else ".demux" if self.demux else ""
        return self.label or f"{self.source.alias}->{self.target.alias}{stage}"

    @property
    def staged(self) -> bool:
        return self.mux is not None or bool(self.demux)

    def factor(self, key: str) -> Factor:
        """Of the topics that go by this key (COPIES_FACTOR …)."""
        replicas = {
            COPIES_FACTOR: self.replication_factor,
            STORAGE_FACTOR: self.offset_storage_replication_factor,
            SYNCS_FACTOR: self.offset_syncs_replication_factor,
            CHECKPOINTS_FACTOR: self.checkpoints_replication_factor,
            HEARTBEATS_FACTOR: self.heartbeats_replication_factor,
        }[key]
        written = dict(self.factors_set).get(key)
        prefix = f"{self.target.alias}." if key == STORAGE_FACTOR and not self.label else ""
        return Factor(replicas, written or f"{prefix}{key}", fixed=written is not None)

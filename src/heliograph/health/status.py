"""What a running flow says about itself: the values between the coordinator, which fills them, and whoever shows them.

Answers for the shape only. The coordinator (`flow.runner`) counts and decides; `cli.show` draws, `http` serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol

from heliograph.health.verdict import Health
from heliograph.mirror.incidents import Incident
from heliograph.mirror.timing import Histogram, Spread

# `running`, `idle`, `paused` and `standby` (another process copies the flow) are sound, and so is `stopped` where an
# operator said so; `stalled` and `parked` say that some partition is; the others are of the whole flow.
STATES = ("starting", "running", "idle", "standby", "stalled", "parked", "paused", "restarting", "failed", "stopped")
SOUND = frozenset({"running", "idle", "paused", "standby"})


Word = Literal["paused", "stopped", "running"]
Scope = tuple[str | None, int | None]  # topic, partition; without a topic: the whole flow


@dataclass(frozen=True, slots=True)
class Order:
    """What an operator said of a flow, a topic or a partition (`flow.orders` keeps it)."""

    topic: str | None
    partition: int | None
    word: Word
    by: str
    at_ms: int

    @property
    def scope(self) -> Scope:
        return self.topic, self.partition

    @property
    def words(self) -> str:
        when = datetime.fromtimestamp(self.at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        return f"{self.word} by {self.by} since {when}"

    @property
    def where(self) -> str:
        if self.topic is None:
            return "the whole flow"
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"

    def covers(self, scope: Scope) -> bool:
        """Whether everything in that scope is in this one's."""
        topic, partition = scope
        return self.topic in (None, topic) and self.partition in (None, partition)


@dataclass(frozen=True, slots=True)
class Generation:
    """Which file the flows go by: counted from 1, one more each time an edited one is taken up."""

    count: int = 1
    at_ms: int = 0
    digest: str = ""  # of the file's bytes
    file: str = ""
    refused: int = 0  # edited files that were not taken up, since the process began
    problem: str = ""  # why the last one was not; "": it was


@dataclass(frozen=True, slots=True)
class ParkedPartition:
    """One partition (or, with `partition` None, a whole topic) that cannot go on while the rest of the flow does."""

    topic: str
    partition: int | None
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class CapStatus:
    """A cap and what is copied under it; `topics` None: of the whole flow."""

    topics: str | None
    limit_bytes_per_s: int
    bytes_per_s: float  # of the last seconds

    @property
    def words(self) -> str:
        whose = "" if self.topics is None else f"{self.topics} "
        return f"{whose}capped at {_megabytes(self.limit_bytes_per_s)} MB/s, using {_megabytes(self.bytes_per_s)}"


def _megabytes(size: float) -> str:
    """To three figures: 10, 9.91, 0.002."""
    return f"{size / 1e6:.3g}" if size < 1e9 else f"{size / 1e6:.0f}"


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """One flow at one moment. Counters count from the start of this process, rates are of the last seconds."""

    name: str
    state: str  # one of STATES
    reason: str = ""  # why it is not sound, in words; or what troubles it although it is
    topics: int = 0
    partitions: int = 0
    tasks: int = 0
    records: int = 0
    bytes: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag_records: int | None = None  # None: not known yet, which is not the same as 0
    duplicates_refused: int = 0
    retries: int = 0
    epoch: int = 0
    parked: tuple[ParkedPartition, ...] = ()
    lag_seconds: float | None = None  # of the partition that is farthest behind
    # From a record's timestamp to its acknowledgement by the target, of the last seconds; None: nothing was copied.
    latency_p99_ms: float | None = None
    stalled: int = 0  # partitions whose source moved while they did not
    # Of all that the incidents topic holds, so that a restart forgets nothing:
    incidents: Mapping[str, int] = field(default_factory=dict)  # by kind
    gap_offsets: int = 0  # source offsets that were never copied and never will be
    refused_records: int = 0  # passed over because the target refused them
    last_incident: str = ""  # in words, if it is not old
    orders: tuple[Order, ...] = ()  # what operators paused or stopped, the whole flow first
    generation: int = 1  # of the file, when this flow was last touched by it
    caps: tuple[CapStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition at one moment. Counters count from the start of this process; None: not known yet."""

    topic: str
    partition: int
    remote_topic: str
    state: str  # verdict.Health
    reason: str  # in words, with seconds
    because: str  # the same without, for whoever groups by it
    stalled_s: float
    task: int | None
    position: int | None
    source_end: int | None
    lag_records: int | None
    lag_bytes: int | None  # an estimate: records × the bytes that records of this partition had so far
    lag_seconds: float | None
    counters: Mapping[str, int]
    records_per_s: float
    bytes_per_s: float
    latency: Spread  # both of the last half minute or minute
    age: Spread
    history: bool = False  # far behind: it gives way to partitions that are not

    @property
    def healthy(self) -> bool:
        return Health(self.state).healthy


@dataclass(frozen=True, slots=True)
class FlowReport:
    """Everything about one flow: what /status and /metrics are made of."""

    source: str
    target: str
    status: FlowStatus
    because: str = ""  # the reason without seconds
    partitions: tuple[PartitionStatus, ...] = ()
    latency: Mapping[str, Histogram] = field(default_factory=dict)  # by topic
    latencies_p99_ms: Mapping[str, float] = field(default_factory=dict)  # of the last seconds, by topic
    checkpoint_latency: Histogram | None = None
    checkpoint_latencies: Mapping[tuple[str, str, int], Spread] = field(default_factory=dict)  # group, remote partition
    heartbeat_age_s: float | None = None  # None: none was written yet, or none is to be
    epochs: int = 0
    restarts: int = 0
    incidents: tuple[Incident, ...] = ()  # the last ones
    sizes: Mapping[str, object] = field(default_factory=dict)  # what was decided by itself (flow.sizing)
    fewer_replicas: tuple[str, ...] = ()  # topics that have fewer than wanted, by cluster, and what to do about it

    @property
    def healthy(self) -> bool:
        ordered = any(order.topic is None for order in self.status.orders)
        return self.status.state in SOUND or (self.status.state == "stopped" and ordered)


class Runner(Protocol):
    """What the verbs need of `heliograph.flow.runner.Runner`: all flows of one process, on one Spark session."""

    def start(self) -> None:
        """Checks the clusters (raises what is wrong with them) and starts every flow; does not wait for data."""

    def status(self) -> tuple[FlowStatus, ...]: ...

    def report(self) -> tuple[FlowReport, ...]:
        """The same with every partition and every figure."""

    def stop(self, timeout_s: float = 4.0) -> None: ...

    def wait(self, timeout_s: float) -> bool:
        """Waits until every flow has ended, at most so long. True when they have."""

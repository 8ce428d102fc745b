"""What a task is told to do: the partitions it owns for one epoch, and how to reach everything it needs.

Made by the coordinator, carried to the executor inside a Spark input partition (Spark's own channel, since it holds the
clusters' credentials), never written anywhere. Plain data, picklable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from heliograph.batch.labels import Stamp
from heliograph.mirror.following import FREELY, Following
from heliograph.mirror.offsetmap import Span
from heliograph.mirror.positions import Position
from heliograph.types import POSITIONS_UNDER, Cap, Cluster, Factor, Isolation, Policies, TopicPartition


@dataclass(frozen=True, slots=True)
class PutBack:
    """A lane of a shared topic: the records that came from `origin` go to its remote partition. Without one it is the
    anchor: no records are its own, and it passes those that are nobody's (`mirror.strands`)."""

    origin: TopicPartition | None
    keep_labels: bool = False
    refused: frozenset[TopicPartition] = frozenset()  # of an anchor: origins that cannot be, whatever records say
    weight: int = 1  # of its spoke, beside the others' (`mirror.turns`)
    following: Following = FREELY  # of an anchor: which labels lead anywhere


Stage = Stamp | PutBack  # what is done to records on their way: labelled, or put back by their labels


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """One source partition and where its records go, or those of them that go to this remote partition."""

    tp: TopicPartition
    topic_id: UUID | None
    remote: TopicPartition
    position: Position
    max_batch_bytes: int  # the remote topic's max.message.bytes
    last_run: Span | None = None  # what the offset map ends with
    told: frozenset[tuple[str, int, str]] = frozenset()  # incidents that are written down: kind, first offset, policy
    strands: int = 0  # the remote topic's partitions, if the topic is divided over them: this is one of so many lanes
    history: bool = False  # whether it was far behind when it was last heard of
    stage: Stage | None = None
    strand: int = -1  # which of the strands, where it is not told by the remote partition's number
    absent: str = ""  # why nothing can be sent there in this epoch: the lane stands, and the position goes on naming it

    @property
    def index(self) -> int:
        return self.remote.partition if self.strand < 0 else self.strand


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where the coordinator listens, and the key both sides prove they know."""

    host: str
    port: int
    key: bytes

    def __repr__(self) -> str:
        return f"Coordinates({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class Assignment:
    flow: str
    source: Cluster
    target: Cluster
    isolation: Isolation
    positions_topic: str
    positions_partitions: int
    map_topic: str
    map_partitions: int
    epoch: int
    task: int
    seconds: float  # how long the epoch lasts unless the coordinator ends it sooner
    lanes: tuple[LaneSpec, ...]
    coordinator: Coordinates
    incidents_topic: str = ""
    quarantine_topic: str = ""
    storage_factor: Factor = field(default_factory=lambda: Factor(1))  # of these two
    on: Policies = field(default_factory=Policies)
    halted: frozenset[TopicPartition] = frozenset()  # by an operator, when the plan was made
    caps: tuple[Cap, ...] = ()
    shares: tuple[float, ...] = ()  # of each cap, for this task, to begin with: bytes/s
    positions_under: str = POSITIONS_UNDER  # the connector's name in positions
    relay: bool = False  # tasks of the last epoch still copy: make ready, say so, and go on when they have handed over

"""A partition and its copy over clusters in memory: what tasks write down goes through a real lane and its journal, and
claims, the offset map, checkpoints and group offsets are the real classes. The records themselves are numbers."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from heliograph import policy
from heliograph.mirror.append import Note
from heliograph.mirror.assignment import Assignment, Coordinates, LaneSpec
from heliograph.mirror.journal import Journal
from heliograph.mirror.lane import Lane
from heliograph.mirror.ledger import advance
from heliograph.mirror.positions import Position, join
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.survey.claims import Claims
from heliograph.survey.topics import Route
from heliograph.sync.checkpoints import Checkpoints
from heliograph.sync.groups import GroupSync
from heliograph.types import Cluster, Flow, TopicPartition
from heliograph.wire import Committed
from tests.memory_cluster import MemoryCluster

TP, REMOTE = TopicPartition("orders", 0), TopicPartition("a.orders", 0)
KEY = ("g", REMOTE)
FLOW = Flow(
    *(Cluster("a"), Cluster("b")), topics=(".*",), groups=(".*",), offset_storage_partitions=1, refresh_groups_s=0.0
)  # fmt: skip
MAP = policy.offset_map_topic("a")


class MappedCopy:
    def __init__(self, strands: int = 0) -> None:
        """`strands`: divided over so many target partitions."""
        self.source, self.target = MemoryCluster("a"), MemoryCluster("b")
        self.topic_id: UUID = self.source.make(TP.topic)
        self.target.make(REMOTE.topic, max(strands, 1))
        self.remotes = tuple(TopicPartition(REMOTE.topic, q) for q in range(strands))
        self.open()
        self.offsets.ensure()
        self.positions.ensure()

    def open(self) -> None:
        """A process begins."""
        source, target = cast(Any, self.source), cast(Any, self.target)
        self.offsets, self.positions = OffsetMap(target, FLOW), PositionsLog(target, FLOW)
        self.offsets.find()
        self.positions.find()
        self.checkpoints = Checkpoints(FLOW, source, target, self.offsets, self.positions)
        self.group_sync = GroupSync(FLOW, target, self.checkpoints)
        self.claims = Claims(FLOW, source, target, self.positions, self.offsets)

    def claim(self, tp: TopicPartition = TP) -> None:
        """What a plan does before tasks begin."""
        self.positions.catch_up()
        self.offsets.catch_up()
        self.claims.claim([Route(tp, self.topic_id, REMOTE, 1 << 20, self.remotes)])
        self.offsets.catch_up()

    def task(self, *, mapped: bool = True, tp: TopicPartition = TP) -> Task:
        self.positions.catch_up()
        self.offsets.catch_up()
        return Task(self, tp, mapped=mapped)

    def new_era(self, *starts: int, tp: TopicPartition = TP) -> None:
        """A position without a producer id, as MM2's, an operator's or that of a copy that begins again."""
        era = join([Position(start) for start in starts]) if self.remotes else Position(starts[0])
        self.positions.write({tp: era})

    def translate(self, offset: int) -> int | None:
        known = dict(self.positions.catch_up())
        self.offsets.catch_up()
        return self.offsets.translate(TP, offset, known)

    def commit(self, offset: int, tp: TopicPartition = TP) -> None:
        """The group on the source."""
        self.source.groups.setdefault("g", {})[tp] = Committed(offset)

    def round(self) -> None:
        self.checkpoints.emit()
        self.group_sync.sync()

    def place(self, remote: TopicPartition = REMOTE) -> int:
        """Of the group, by the last checkpoint in the topic."""
        return self.checkpoints.known["g", remote].downstream


class Task:
    """A lane, or one for each strand, with the journal; whatever it notes is written at once."""

    notes_waiting = 0

    def __init__(self, copy: MappedCopy, tp: TopicPartition, *, mapped: bool) -> None:
        self._copy, self.refused = copy, False
        self.batches: list[int] = []  # sizes of what was written to the map
        position = copy.positions.known[tp]
        parts = position.strands or (position,)
        self.lanes = [
            Lane.of(
                LaneSpec(
                    *(tp, copy.topic_id, remote, part, 1 << 20),
                    copy.offsets.last_run(tp, position) if not copy.remotes else None,
                    strands=len(copy.remotes),
                )
            )
            for remote, part in zip(copy.remotes or (REMOTE,), parts, strict=True)
        ]
        assignment = Assignment(
            *("a->b", FLOW.source, FLOW.target, "read_uncommitted", copy.positions.topic, 1),
            *(MAP if mapped else "", 1, 1, 0, 1.0, (), Coordinates("", 0, b"")),
        )
        self._journal = Journal(assignment, self.lanes, cast(Any, self))

    def note(self, note: Note) -> None:
        if note.tp.topic == MAP:
            self.batches.append(len(note.data))
        if self.refused and note.tp.topic == MAP:
            note.done(False)
            return
        self._copy.target.produce(note.tp, note.data)
        note.done(True)

    def copied(self, source: int, target: int, length: int, *, strand: int = 0) -> None:
        """Acknowledged: a stretch without holes."""
        lane, copy = self.lanes[strand], self._copy
        if copy.remotes:
            lane._note_point(source, target, length)
        else:
            lane._note_run(source, target, length, 0)
        lane.next_target = target + length
        lane._advance(source + length, advance(lane.acked.sequence, length))
        ends = copy.target.ends
        ends[lane.spec.remote] = max(ends.get(lane.spec.remote, 0), target + length)
        copy.source.ends[lane.spec.tp] = max(copy.source.ends.get(lane.spec.tp, 0), source + length)

    def transactions(self, source: int, target: int, count: int) -> None:
        """Of one record each: every second source offset is a marker."""
        for i in range(count):
            self.copied(source + 2 * i, target + i, 1)

    def write(self) -> None:
        self._journal.write()

    def end(self) -> None:
        """Long enough after the last record for everything to be written down."""
        self._journal._growth_at = 0.0
        self._journal.write()

"""A partition and its copy, with an oracle that knows where each record lies on the target, whoever put it there.

The map, the positions and the claims are the real classes over a cluster in memory; the lane is its `Writer` and the
arithmetic around it."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from heliograph import policy
from heliograph.batch import Record, encode
from heliograph.mirror import offsetmap
from heliograph.mirror.offsetmap import Subject, Writer
from heliograph.mirror.positions import Position
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.survey.claims import Claims
from heliograph.survey.topics import Route
from heliograph.types import Cluster, Flow, TopicPartition
from tests.memory_cluster import MemoryCluster

TP, REMOTE = TopicPartition("orders", 0), TopicPartition("a.orders", 0)
FLOW = Flow(Cluster("a"), Cluster("b"), topics=(".*",), groups=(".*",), offset_storage_partitions=1)
MAP = policy.offset_map_topic("a")


class Copied:
    """`log`: by target offset, the source offset of the record that lies there; None: another producer's."""

    def __init__(self) -> None:
        self.source, self.target = MemoryCluster("a"), MemoryCluster("b")
        self.topic_id: UUID = self.source.make(TP.topic)
        self.target.make(REMOTE.topic)
        self.records: list[int] = []  # source offsets
        self.source_end = 0
        self.log: list[int | None] = []
        self.open()
        self.offsets.ensure()
        self.positions.ensure()
        self.claim()

    def open(self) -> None:
        """A process that has read nothing yet."""
        target: Any = self.target
        self.offsets, self.positions = OffsetMap(target, FLOW), PositionsLog(target, FLOW)
        self.offsets.find()
        self.positions.find()

    def settle_ends(self) -> None:
        self.source.ends[TP], self.target.ends[REMOTE] = self.source_end, len(self.log)

    # ---------------------------------------------------------------- the source

    def produce(self, count: int) -> None:
        self.records += range(self.source_end, self.source_end + count)
        self.source_end += count

    def hole(self, count: int) -> None:
        """A marker, aborted records, what compaction took."""
        self.source_end += count

    # ---------------------------------------------------------------- a lane

    def claim(self) -> None:
        self.settle_ends()
        source, target = cast(Any, self.source), cast(Any, self.target)
        self.positions.catch_up()
        claims = Claims(FLOW, source, target, self.positions, self.offsets)
        claims.claim([Route(TP, self.topic_id, REMOTE, 1 << 20)])
        self.begin(places_known=True)

    def begin(self, *, places_known: bool, kept: bool = True) -> None:
        """A task begins: where the position stands, then rule D over what is there behind it. `exact`: what the map is
        told of, with the producer id that is claimed."""
        self.settle_ends()
        self.position = self.positions.catch_up()[TP]
        self.offsets.catch_up()
        assert self.position.claimed
        if not hasattr(self, "producer") or self.producer != self.position.producer_id:
            self.producer, self.appended = self.position.producer_id, dict[int, int]()
            self.exact: dict[int, int] = {}
        self.exact = {s: t for s, t in self.exact.items() if s < self.position.next_offset}
        self.writer = Writer(kept=kept)
        self.writer.begin(self.offsets.last_run(TP, self.position))
        self.next, self.end = self.position.next_offset, self.position.target
        self.sequence = self.position.sequence
        there = {s: t for s, t in self.appended.items() if s >= self.next}
        for source, target in sorted(there.items()):
            if places_known:
                self.note(source, target)
            self.next, self.end, self.sequence = source + 1, target + 1, self.sequence + 1

    def note(self, source: int, target: int) -> None:
        self.writer.note(source, target, 1)
        if self.writer.kept:
            self.exact[source] = target

    def copy(self, count: int) -> None:
        for source in [one for one in self.records if one >= self.next][:count]:
            self.appended[source] = len(self.log)
            self.note(source, len(self.log))
            self.log.append(source)
            self.next, self.end, self.sequence = source + 1, len(self.log), self.sequence + 1

    def flush(self, *, map_fails: bool = False, position_fails: bool = False) -> None:
        self.settle_ends()
        segments = self.writer.take()
        complete = self.writer.all_taken
        if segments and self.writer.kept and not map_fails:
            subject = Subject(TP, self.topic_id, producer=self.producer)
            pairs = [(offsetmap.key_of("a", subject, one[0].source), offsetmap.encode(one)) for one in segments]
            records = [Record(i, 0, *pair) for i, pair in enumerate(pairs)]
            self.target.produce(TopicPartition(MAP, 0), encode(records))
        if segments:
            self.writer.written(not map_fails, segments)
        if position_fails or not complete or (segments and map_fails and self.writer.kept):
            return
        run, run_end = self.writer.named
        own = (self.producer, 0, self.sequence, self.topic_id, self.end)
        self.position = Position(self.next, *own, run=run, run_end=run_end)
        self.positions.write({TP: self.position})

    # ---------------------------------------------------------------- breaks

    def foreign(self, count: int) -> None:
        self.log += [None] * count

    def mm2(self, count: int, every: int) -> None:
        """MM2 takes over from the durable position, records come once more, and some of its stretch are holes."""
        for i in range(count):
            self.hole(1) if i % every == 0 else self.produce(1)
        again = self.positions.catch_up()[TP].next_offset
        self.log += [one for one in self.records if one >= again]
        self.positions.write({TP: Position(self.source_end)})
        self.claim()

    def recreate(self, *, start: int) -> None:
        """The copy is deleted; by `on.target.lost` it begins again at `start`."""
        self.target.make(REMOTE.topic)
        self.log = []
        self.new_generation(start)

    def cut(self, left: int, *, start: int) -> None:
        del self.log[left:]
        self.new_generation(start)

    def new_generation(self, start: int) -> None:
        self.positions.catch_up()
        self.positions.write({TP: Position(start)})
        self.claim()

    # ---------------------------------------------------------------- the oracle

    def check(self) -> None:
        """For every offset that a group may have committed."""
        self.settle_ends()
        known = dict(self.positions.catch_up())
        self.offsets.catch_up()
        places: dict[int, list[int]] = {}
        for target, source in enumerate(self.log):
            if source is not None:
                places.setdefault(source, []).append(target)
        for offset in range(self.source_end + 3):
            place = self.offsets.translate(TP, offset, known)
            limit = self.offsets.limit(TP, offset, known)
            if place is None:
                continue
            assert place <= len(self.log)
            for source in (one for one in places if one >= offset):
                to_come = source >= self.next and source not in self.appended
                assert to_come or max(places[source]) >= place, f"{source} is passed over by a group at {offset}"
            assert limit is None or limit >= place
        self._check_exact(known[TP])

    def _check_exact(self, position: Position) -> None:
        """What was written down since runs were last dropped leads to the very record."""
        stored = self.offsets._partitions[Subject(TP, self.topic_id)].stored.get(self.producer)
        first = stored.runs.exact_from if stored is not None else 0
        for source, target in self.exact.items():
            if first <= source < position.next_offset:
                assert self.offsets.translate(TP, source, {TP: position}) == target

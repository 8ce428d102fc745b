"""A shared topic that is put back, in the small: strands by what labels say, an anchor before what is nobody's, and
positions that name their targets."""

from __future__ import annotations

import json
import random
import selectors
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from heliograph.batch import Chunk, Limits, Record, decode, encode, warm
from heliograph.batch.demux import Strange
from heliograph.batch.labels import NAMES, Stamp, write
from heliograph.mirror import fetch
from heliograph.mirror.assignment import LaneSpec, PutBack
from heliograph.mirror.events import Events, StrangeRecords
from heliograph.mirror.fetch import Source
from heliograph.mirror.following import Following
from heliograph.mirror.hindrance import NONE
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.positions import Position, fold, join, new_era
from heliograph.mirror.positions import decode as read_position
from heliograph.mirror.positions import encode as write_position
from heliograph.mirror.strands import position_of, share_of, together
from heliograph.mirror.telling import _of_lane
from heliograph.types import Cluster, TopicPartition
from heliograph.wire.fetched import FetchAnswer, Fetched
from tests.unit.test_mirror_fetch import NODE, SESSION, Brokers

ID = UUID(int=7)
SHARED = TopicPartition("back.mux", 0)  # as a link with the default policy calls it: the prefix is the targets' too
FOLLOWING = Following("back.", frozenset({SHARED.topic}))
ORIGINS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)]
TARGETS = [TopicPartition(f"back.{topic}", partition) for topic, partition in ORIGINS]

warm()  # before a clock runs


# ---------------------------------------------------------------- positions


def part(producer: int, next_offset: int = 0, sequence: int = 0) -> Position:
    return Position(next_offset, producer, 0, sequence, ID, 0)


def test_a_position_names_its_targets_and_stays_flat() -> None:
    position = join([part(1, 5), part(2, 9, 4)], [SHARED, TARGETS[0]])
    value = write_position(position)
    assert read_position(value) == position
    assert json.loads(value)["targets"] == "back.mux/0 back.orders/0"
    assert all(isinstance(field, int | str) for field in json.loads(value).values())
    assert position.parts(SHARED) == [(SHARED, part(1, 5)), (TARGETS[0], part(2, 9, 4))]


def test_targets_that_do_not_fit_their_strands_are_no_position() -> None:
    value = write_position(join([part(1), part(2)], [SHARED, TARGETS[0]])).decode()
    for text in ("back.mux/0", "back.mux/0 back.mux/0", "back.mux/0 a b/1", "back.mux/0 back.orders/-1", ""):
        assert read_position(value.replace("back.mux/0 back.orders/0", text).encode()) is None


def test_strands_are_added_and_a_record_that_knows_fewer_takes_none_away() -> None:
    begun = join([part(1, 5), part(2, 9, 4)], [SHARED, TARGETS[0]])
    more = join([part(1, 5), part(2, 7, 3), part(3, 5)], [SHARED, *TARGETS[:2]])
    late = join([part(1, 8), part(2, 12, 6)], [SHARED, TARGETS[0]])
    rival = join([part(1, 5), part(2, 9, 4), part(9, 5)], [SHARED, *TARGETS[:2]])
    known = None
    for one in (begun, more, late, rival):
        known = fold(known, write_position(one))
    assert known == join([part(1, 8), part(2, 12, 6), part(3, 5)], [SHARED, *TARGETS[:2]])
    assert known.next_offset == 5, "where the strand that is least far stands"


def test_a_lane_takes_its_own_of_a_position_that_has_more() -> None:
    spec = LaneSpec(SHARED, ID, TARGETS[0], part(2), 1, strands=2, stage=PutBack(ORIGINS[0]), strand=1)
    more = join([part(1, 5), part(2, 7, 3), part(3, 5)], [SHARED, *TARGETS[:2]])
    assert share_of(more, spec) == part(2, 7, 3)
    assert share_of(join([part(1), part(2)], [SHARED, TARGETS[1]]), spec) is None
    assert share_of(join([part(1), part(2)]), spec) is None
    assert share_of(more, replace(spec, stage=None, strands=3)) is None, "a divided one's is another's"


# ---------------------------------------------------------------- lanes


class Keeper:
    """In the incident handler's place: what is strange is kept, and the anchor goes on when the test says so."""

    def __init__(self) -> None:
        self.kept: dict[int, Strange] = {}
        self.incidents: list[int] = []  # offsets, as often as the log has them
        self.waiting: list[tuple[list[int], Source, Lane]] = []

    def take(self, events: Events, source: Source) -> None:
        """What the reading side reported, as the task's loop hands it on."""
        while events:
            match events.popleft():
                case StrangeRecords(anchor, _, strange) if not self.waiting:
                    self.kept |= {one.record.offset: one for one in strange}
                    self.waiting.append(([one.record.offset for one in strange], source, anchor))

    def written(self, *, heard: bool = True) -> None:
        waiting, self.waiting = self.waiting, []
        for offsets, source, anchor in waiting:
            self.incidents += offsets
            if heard:
                source.set_aside(anchor, frozenset(offsets))

    def held(self, position: Position) -> frozenset[int]:
        """Rule H's answer."""
        return frozenset(offset for offset in self.incidents if offset >= position.next_offset)


class Stage:
    """A shared partition, and lanes for the anchor and the first targets."""

    def __init__(self, selector: selectors.BaseSelector, targets: int) -> None:
        self._selector = selector
        self.keeper = Keeper()
        self.events: Events = deque()
        self.records: list[Record] = []
        self.strange: set[int] = set()
        self._batches: list[tuple[int, bytes]] = []
        self.copied: dict[TopicPartition, list[Record]] = {target: [] for target in TARGETS}
        self.start(join([part(n) for n in range(targets + 1)], [SHARED, *TARGETS[:targets]]))

    def start(self, position: Position, absent: TopicPartition | None = None) -> None:
        """A task, by this position."""
        self.lanes = []
        for index, (target, own) in enumerate(position.parts(SHARED)):
            origin = ORIGINS[TARGETS.index(target)] if index else None
            spec = LaneSpec(
                *(SHARED, ID, target, own, 1 << 20),
                strands=len(position.strands),
                stage=PutBack(origin) if origin else PutBack(None, following=FOLLOWING),
                strand=index,
                absent="it is not there" if target == absent else "",
            )
            lane = Lane.of(spec)
            self.lanes.append(lane)
            if target != absent:
                self.found(lane)
        self.source = Source(
            Cluster("a"), self.lanes, self._selector, isolation="read_committed",
            limits=lambda most: Limits(max_batch_bytes=most), events=self.events,
        )  # fmt: skip
        self.source.opened(NODE, cast(Any, self.source.brokers.connection(NODE)))

    def found(self, lane: Lane) -> None:
        """Rules D and H."""
        if lane is self.anchor:
            lane.found(0, held=self.keeper.held(lane.acked))
        else:
            lane.found(len(self.copied[lane.spec.remote]) - lane.acked.sequence)

    @property
    def anchor(self) -> Lane:
        return self.lanes[0]

    @property
    def position(self) -> Position:
        return position_of(self.lanes)

    def add(self, *origins: TopicPartition | None) -> None:
        """A batch of records that came from there; None: a stranger's."""
        base = len(self.records)
        for n, origin in enumerate(origins, base):
            if origin is None or FOLLOWING.refuses(origin):
                self.strange.add(n)
            labels = write(Stamp(origin), 1_000 + n, n) if origin else ((NAMES[0], b"a/b"),)
            self.records.append(Record(n, 2_000, None, b"%d" % n, (("own", b"1"), *labels)))
        self._batches.append((len(self.records), encode(self.records[base:])))

    def turn(self, batches: int = 3) -> None:
        """One fetch, if one is under way, and everything appended that came."""
        wanted = self.source._pullers[NODE].session.wanted(SHARED)
        if wanted is not None and self.source._pullers[NODE].outstanding:
            data = b"".join([batch for end, batch in self._batches if end > wanted][:batches])
            end = len(self.records)
            fetched = Fetched("", 0, 0, end, end, 0, (), data)
            self.source.received(NODE, None, FetchAnswer(0, 0, SESSION, [(ID, fetched)]))
            self.keeper.take(self.events, self.source)
            self.source.pull(NODE)
        for lane in self.lanes[1:]:
            self.append(lane)

    def append(self, lane: Lane) -> None:
        there = self.copied[lane.spec.remote]
        while lane.state is State.FLOWING and (sent := lane.next_batch(lambda *_: True)) is not None:
            assert len(there) == sent.sequence  # rule B
            lane.acknowledged(sent, len(there))
            there += decode(bytes(sent.piece.data))
        self.source.drained(lane)

    def due(self, target: TopicPartition) -> list[bytes]:
        mine = write(Stamp(ORIGINS[TARGETS.index(target)]), 0, 0)[:2]
        return [r.value or b"" for r in self.records if r.headers[1:3] == mine]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(fetch, "Brokers", Brokers)
    with selectors.DefaultSelector() as selector:
        yield Stage(selector, 2)


def values(records: Sequence[Record]) -> list[bytes]:
    return [record.value or b"" for record in records]


def test_records_go_to_their_strands_without_labels_and_at_their_own_time(stage: Stage) -> None:
    stage.add(ORIGINS[0], ORIGINS[1], ORIGINS[0])
    stage.turn()
    assert [values(stage.copied[target]) for target in TARGETS] == [[b"0", b"2"], [b"1"], []]
    assert [(r.timestamp, r.headers) for r in stage.copied[TARGETS[0]]] == [
        (1_000, (("own", b"1"),)),
        (1_002, (("own", b"1"),)),
    ]
    assert stage.position.next_offset == 3
    assert stage.position.targets == (SHARED, *TARGETS[:2])


def test_the_anchor_waits_before_a_strange_record_until_it_is_kept_and_nobody_else_does(stage: Stage) -> None:
    stage.add(ORIGINS[0], None, ORIGINS[0])
    stage.add(ORIGINS[1], None)
    stage.turn(1)
    stage.turn()
    assert [len(stage.copied[target]) for target in TARGETS] == [2, 1, 0]
    assert stage.position.next_offset == 1, "what a restart goes on from is not past it"
    assert sorted(stage.keeper.kept) == [1]
    assert stage.keeper.kept[1].record == stage.records[1]
    _kept(stage)
    assert sorted(stage.keeper.kept) == [1, 4]
    assert stage.position.next_offset == 4
    _kept(stage)
    assert stage.position.next_offset == 5
    assert [len(stage.copied[target]) for target in TARGETS] == [2, 1, 0], "nothing came twice"


def _kept(stage: Stage) -> None:
    stage.keeper.written()
    for _ in range(2):  # the fetch that is under way is not for the anchor yet
        stage.turn()


def test_a_new_target_begins_where_the_anchor_stands_and_the_others_go_on(stage: Stage) -> None:
    stage.add(ORIGINS[0], ORIGINS[2], ORIGINS[0], ORIGINS[2])
    for _ in range(3):
        stage.turn()
    assert stage.anchor.unknown == {ORIGINS[2]: 1}
    assert "payments-0" in stage.anchor.read_trouble
    assert values(stage.copied[TARGETS[0]]) == [b"0", b"2"]
    assert stage.position.next_offset == 1
    stage.start(_claimed(stage.position))
    stage.add(ORIGINS[2])
    for _ in range(3):
        stage.turn()
    assert [values(stage.copied[target]) for target in TARGETS] == [stage.due(target) for target in TARGETS]
    assert values(stage.copied[TARGETS[2]]) == [b"1", b"3", b"4"]
    assert stage.position.next_offset == 5


def _claimed(position: Position) -> Position:
    """As the coordinator adds a target."""
    fresh = replace(position.strands[0], producer_id=77, sequence=0)
    return join([*position.strands, fresh], [*position.targets, TARGETS[2]])


def test_internal_topics_and_the_shared_one_are_nobodys_targets(stage: Stage) -> None:
    """The shared topic is meant by the label that leads to it with the prefix, not by the one that has its name."""
    stage.add(TopicPartition("__consumer_offsets", 0), TopicPartition("mux", 0), TopicPartition("mm2-x.internal", 0))
    stage.add(TopicPartition("x.checkpoints.internal", 0), SHARED)
    stage.turn()
    assert sorted(stage.keeper.kept) == [0, 1, 2, 3]
    assert list(stage.anchor.unknown) == [SHARED], "back.back.mux is a topic as any"


def test_lanes_whose_first_is_not_the_anchor_divide_nothing(stage: Stage) -> None:
    stage.add(ORIGINS[0])
    bundle = stage.source._bundles[SHARED]
    bundle.lanes = bundle.lanes[1:]
    with pytest.raises(AssertionError, match="is not the anchor"):
        stage.turn()


def test_what_holds_nothing_and_was_stalled_for_the_sake_of_all_comes_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "TASK_BYTES", 0)  # every lane that got something holds too much, together
    for n in range(6):
        stage.add(ORIGINS[0])
        stage.turn()
        stage.source.tick(float(n))
        stage.turn()
    assert values(stage.copied[TARGETS[0]]) == stage.due(TARGETS[0])
    assert {lane.acked.next_offset for lane in stage.lanes} == {6}


@pytest.mark.parametrize("room", [True, False])
def test_a_strand_that_does_not_move_holds_up_none_that_holds_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    stuck, empty, source = stage.lanes[1], stage.lanes[2], stage.source
    if not room:
        monkeypatch.setattr(fetch, "TASK_BYTES", fetch.LANE_BYTES)
        monkeypatch.setattr(source, "_room", dict.fromkeys(source._room, fetch.LANE_BYTES))
    held = encode([Record(stuck.fetch_offset, 1, None, bytes(fetch.LANE_BYTES))])
    stuck.push(Chunk(held, wanted=stuck.fetch_offset, limits=Limits()))
    for lane in (stuck, empty):
        source.leave(lane)
        source._stalled.add(lane)
        source.drained(lane)
    for now in (1.0, 2.0):
        stuck.acked = replace(stuck.acked, next_offset=stuck.acked.next_offset + 1)
        source.tick(now)
        assert source.is_stalled(empty) != room, "while it moves it will drain, and nobody need hold more meanwhile"
    source.tick(3.0)
    assert not source.is_stalled(empty)
    assert source.is_stalled(stuck)


@pytest.mark.parametrize("seed", range(15))
def test_whatever_happens_each_record_comes_once_and_nothing_is_passed_unseen(stage: Stage, seed: int) -> None:
    """Lanes lose track, tasks crash after what they wrote down a while ago, targets are found, strangers write. What is
    strange is written down once, whoever heard of it."""
    dice = random.Random(seed)
    written = stage.position
    for _ in range(150):
        match dice.choice(["add", "add", "turn", "turn", "turn", "kept", "write", "crash", "lose", "claim"]):
            case "add":
                origins = [*ORIGINS, None, TopicPartition("mux", 0), TopicPartition("__consumer_offsets", 0)]
                stage.add(*dice.choices(origins, [8, 8, 4, 1, 1, 1], k=dice.randrange(1, 5)))
            case "turn":
                stage.turn(dice.randrange(1, 4))
            case "kept":
                stage.keeper.written()
            case "write":
                written = stage.position
            case "crash":
                if dice.random() < 0.5:
                    stage.keeper.written(heard=False)
                stage.keeper.waiting.clear()
                stage.start(written)
            case "lose":
                lane = dice.choice(stage.lanes)
                lane.lose_track()
                stage.source.leave(lane)
                stage.found(lane)
                stage.source.reopen(lane)
            case "claim" if stage.anchor.unknown and TARGETS[2] not in written.targets:
                written = _claimed(stage.position)
                stage.keeper.waiting.clear()
                stage.start(written)
        passed = {r.offset for r in stage.records if r.offset < stage.position.next_offset}
        assert stage.strange & passed <= set(stage.keeper.incidents)
    if TARGETS[2] not in stage.position.targets:
        now = stage.position
        stage.start(
            join([*now.strands, replace(now.strands[0], producer_id=77, sequence=0)], [*now.targets, TARGETS[2]])
        )
    for _ in range(len(stage.records) + 5):
        stage.turn(5)
        stage.keeper.written()
    assert {target: values(stage.copied[target]) for target in TARGETS} == {
        target: stage.due(target) for target in TARGETS
    }
    assert stage.position.next_offset == len(stage.records)
    assert sorted(stage.keeper.incidents) == sorted(stage.strange), "each once"


def test_a_strand_without_a_place_stands_and_the_others_go_on(stage: Stage) -> None:
    stage.add(ORIGINS[0], ORIGINS[1], ORIGINS[0])
    stage.start(stage.position, absent=TARGETS[1])
    stage.turn()
    absent = stage.lanes[2]
    assert (absent.state, absent.reason) == (State.PARKED, "it is not there")
    assert values(stage.copied[TARGETS[0]]) == [b"0", b"2"]
    assert (stage.anchor.acked.next_offset, stage.position.next_offset) == (3, 0), "where the one that stands goes on"
    assert stage.position.targets == (SHARED, *TARGETS[:2])
    absent.halt()
    absent.go_on()
    assert absent.state is State.PARKED
    stage.start(stage.position)
    stage.turn()
    assert values(stage.copied[TARGETS[1]]) == [b"1"]
    assert stage.position.next_offset == 3


@pytest.mark.parametrize("seed", range(6))
def test_a_target_that_begins_anew_repeats_nothing_elsewhere(stage: Stage, seed: int) -> None:
    """Its topic was deleted. The position that all began anew from is a while old, and strangers were written down."""
    dice = random.Random(seed)
    written = stage.position
    for step in range(30):
        stage.add(*dice.choices([*ORIGINS[:2], None], [4, 4, 1], k=dice.randrange(1, 5)))
        stage.turn(dice.randrange(1, 4))
        if dice.random() < 0.7:
            stage.keeper.written()
        if step == 10:
            written = stage.position
    stage.keeper.written(heard=False)
    lost = TARGETS[dice.randrange(2)]
    stage.copied[lost].clear()
    parts = written.parts(SHARED)
    era = read_position(
        write_position(new_era([Position(0) if at == lost else one for at, one in parts], written.targets))
    )
    assert era is not None
    assert not era.claimed
    claim = [one if one.claimed else part(88, one.next_offset) for one in era.strands]
    stage.start(join(claim, era.targets))
    for _ in range(len(stage.records) + 5):
        stage.turn(5)
        stage.keeper.written()
    assert {at: values(stage.copied[at]) for at in TARGETS[:2]} == {at: stage.due(at) for at in TARGETS[:2]}
    assert stage.position.next_offset == len(stage.records)
    assert sorted(stage.keeper.incidents) == sorted(stage.strange), "each once"


def test_a_wish_says_whose_it_is(stage: Stage) -> None:
    lost = stage.lanes[2]
    lost.park("it lost what it had", wish="restart")
    rows = [_of_lane(lane, NONE) for lane in stage.lanes]
    assert together(stage.lanes, rows)["wish"] == "", "what is acknowledged is not all written yet"
    for lane in stage.lanes:
        lane.written = lane.acked
    row = together(stage.lanes, [_of_lane(lane, NONE) for lane in stage.lanes])
    assert (row["wish"], row["wished"], row["producer"]) == ("restart", [(*TARGETS[1], 2)], 0)


def test_strangers_behind_a_record_that_waits_are_written_down_when_it_has_its_place(stage: Stage) -> None:
    stage.add(ORIGINS[0], ORIGINS[2], None)
    stage.turn()
    assert not stage.keeper.waiting
    stage.start(_claimed(stage.position))
    for _ in range(2):
        stage.turn()
        _kept(stage)
    stage.start(
        join([replace(one, next_offset=0, sequence=0) for one in stage.position.strands], stage.position.targets)
    )
    for _ in range(2):
        stage.turn()
        _kept(stage)
    assert stage.keeper.incidents == [2], "read again, and it was written down"
    assert stage.position.next_offset == 3


# ---------------------------------------------------------------- into the shared topic


def test_labelled_records_have_the_time_of_the_moment_and_are_as_old_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "Brokers", Brokers)
    tp, newest_ms = ORIGINS[0], 1_700_000_000_500
    spec = LaneSpec(tp, ID, SHARED, part(1), 1 << 20, strands=1, stage=Stamp(tp, identifier="oslo"), strand=0)
    lane = Lane.of(spec)
    lane.found(0)
    began_ms = time.time_ns() // 1_000_000
    with selectors.DefaultSelector() as selector:
        source = Source(
            Cluster("a"),
            [lane],
            selector,
            isolation="read_committed",
            limits=lambda most: Limits(max_batch_bytes=most),
            events=deque(),
        )
        source.opened(NODE, cast(Any, source.brokers.connection(NODE)))
        batch = encode([Record(n, newest_ms - 500 + 100 * n, b"k", b"v") for n in range(6)], codec=3)
        fetched = Fetched("", 0, 0, 6, 6, 0, (), batch)
        source.received(NODE, None, FetchAnswer(0, 0, SESSION, [(ID, fetched)]))
    assert lane.oldest_timestamp == newest_ms, "a record that waits is as old as the newest it came with, at least"
    sent = lane.next_batch(lambda *_: False)
    assert sent is not None
    records = decode(bytes(sent.piece.data))
    assert [dict(one.headers)[NAMES[2]] for one in records][-1] == b"2023-11-14T22:13:20.500Z"
    assert {one.timestamp >= began_ms for one in records} == {True}, "in the shared topic: of the moment"
    lane.acknowledged(sent, 0)
    assert lane.last_timestamp == newest_ms
    assert position_of([lane]) == join([replace(part(1, 6, 6), target=6)], [SHARED])

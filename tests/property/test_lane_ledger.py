"""Rules A–G in the small: any number of writers, crashes, lost connections and late answers leave one copy, in order.

A model broker applies Kafka's rules for sequence numbers (mm2-compat §10.2, rule 12) to real batches that real lanes
make; the network may deliver a prefix of what is on the wire and lose the rest and all answers. Hypothesis drives it.
"""

from __future__ import annotations

from collections import deque
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from heliograph.batch import Chunk, Header, Limits, Record, decode, encode
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.lane import Lane, Sent, State
from heliograph.mirror.ledger import already_there
from heliograph.mirror.positions import SEQUENCES, Position
from heliograph.types import TopicPartition
from heliograph.wire import Produced

TOPIC_ID = UUID(int=7)
PRODUCER = 4711
NOT_ENOUGH_REPLICAS = 19


class Broker:
    """One target partition, by Kafka's rules for idempotent producers."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.remembered: deque[tuple[int, int, int]] = deque(maxlen=5)  # first sequence, last sequence, base offset

    @property
    def last_sequence(self) -> int | None:
        return self.remembered[-1][1] if self.remembered else None

    def append(self, batch: bytes) -> tuple[int, int]:
        header = Header.parse(batch)
        assert header.producer_id == PRODUCER
        first, last = header.base_sequence, (header.base_sequence + header.last_offset_delta) % SEQUENCES
        for known_first, known_last, base in self.remembered:
            if (first, last) == (known_first, known_last):
                return 0, base
        if self.remembered and first != (self.remembered[-1][1] + 1) % SEQUENCES:
            return 45, -1
        base = len(self.log)
        self.log += decode(batch)
        self.remembered.append((first, last, base))
        return 0, base


class Source:
    """A source partition as batches, with holes where compaction or markers left them."""

    def __init__(self, layout: list[tuple[int, int]]) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.records: list[Record] = []
        offset = 0
        for hole, count in layout:
            offset += hole
            records = [Record(offset + i, 1000 + offset + i, None, b"%d" % (offset + i), ()) for i in range(count)]
            self.records += records
            offset += count
            self.batches.append((offset, encode(records)))

    def fetch(self, offset: int, batches: int) -> bytes:
        return b"".join([data for end, data in self.batches if end > offset][:batches])


class Writer:
    """A task's handling of one lane, with a wire that can be cut."""

    def __init__(self, source: Source, broker: Broker, position: Position) -> None:
        self.source, self.broker = source, broker
        tp = TopicPartition("t", 0)
        self.lane = Lane.of(LaneSpec(tp, TOPIC_ID, tp, position, 1_000_000))
        self.wire: deque[tuple[Sent, bytes]] = deque()
        self.answers: deque[tuple[Sent, int, int]] = deque()
        self.halted = False
        self.ask()

    def ask(self) -> None:
        """The probe, when no answer to a batch of the lane is due (invariant e)."""
        if self.lane.state is not State.LOST or self.lane.unheard:
            return
        there = already_there(self.lane.acked, self.broker.last_sequence)
        assert there >= 0
        self.found(there)
        if self.halted:
            self.lane.halt()

    def found(self, there: int) -> None:
        self.lane.found(there)

    def fetch(self, batches: int) -> None:
        if self.lane.state is State.FLOWING and len(self.lane.chunks) < 3:
            data = self.source.fetch(self.lane.fetch_offset, batches)
            if data:
                self.lane.push(Chunk(data, wanted=self.lane.fetch_offset, limits=Limits()))

    def send(self, merge: bool) -> None:
        if self.lane.sendable():
            sent = self.lane.next_batch(lambda *_: merge)
            if sent is not None:
                assert len(self.lane.in_flight) <= 5
                self.wire.append((sent, bytes(sent.piece.data)))

    def deliver(self) -> None:
        if self.wire:
            sent, data = self.wire.popleft()
            self.answers.append((sent, *self.broker.append(data)))

    def refuse(self) -> None:
        """Too few replicas in sync, or not the leader at this moment: not stored, and the next batch may be."""
        if self.wire:
            sent, _ = self.wire.popleft()
            self.answers.append((sent, NOT_ENOUGH_REPLICAS, -1))

    def answer(self) -> None:
        if self.answers:
            sent, error, base = self.answers.popleft()
            if sent in self.lane.in_flight:
                self.judge(sent, error, base)
            else:
                self.lane.heard(sent)
            self.ask()

    def judge(self, sent: Sent, error: int, base: int) -> None:
        self.lane.answered(sent, Produced("t", 0, error, base, -1, -1, "", ()))
        assert self.lane.refusal is None

    def cut(self, delivered: int) -> None:
        """The connection ends: a prefix arrived at the broker, no answer ever comes."""
        for _ in range(delivered):
            self.deliver()
        for sent, *_ in [*self.answers, *self.wire]:
            self.lane.cut_off(sent)
        self.wire.clear()
        self.answers.clear()
        self.ask()

    def halt(self) -> None:
        """An operator's word: what is fetched is dropped, what is on the wire goes on."""
        self.halted = True
        self.lane.halt()

    def free(self) -> None:
        self.halted = False
        if self.lane.state is State.HALTED:
            self.lane.go_on()
            self.ask()

    def done(self) -> bool:
        lane = self.lane
        copied = lane.state is State.FLOWING and not lane.in_flight and not lane.waiting
        return copied and not self.source.fetch(lane.fetch_offset, 1)


ACTIONS = st.tuples(
    st.integers(0, 1),
    st.sampled_from(
        [
            *("fetch", "send", "send", "merge", "deliver", "deliver", "refuse", "answer", "answer"),
            *("cut", "flush", "crash", "halt", "free"),
        ]
    ),
    st.integers(1, 4),
)
LAYOUT = st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 5]), st.integers(1, 6)), min_size=1, max_size=25)


# The first batch of an id is refused, the one behind it arrives: a broker that holds nothing takes any sequence.
FIRST_REFUSED = [(0, action, 2) for action in ("fetch", "send", "send", "refuse", "deliver", "answer", "answer")]


@settings(max_examples=300, deadline=None)
@given(layout=LAYOUT, actions=st.lists(ACTIONS, max_size=200), start=st.sampled_from([0, SEQUENCES - 20]))
@example(layout=[(0, 2), (0, 3)], actions=FIRST_REFUSED, start=0)
def test_two_writers_under_any_fault_leave_one_copy_in_order(layout, actions, start):
    source, broker = Source(layout), Broker()
    stored = Position(0, PRODUCER, 0, start, TOPIC_ID)  # the claim
    writers = [Writer(source, broker, stored), Writer(source, broker, stored)]
    for who, action, n in actions:
        writer = writers[who]
        if action == "fetch":
            writer.fetch(n)
        elif action in ("send", "merge"):
            writer.send(merge=action == "merge")
        elif action == "deliver":
            writer.deliver()
        elif action == "refuse":
            writer.refuse()
        elif action == "answer":
            writer.answer()
        elif action == "cut":
            writer.cut(n - 1)
        elif action in ("halt", "free"):
            getattr(writer, action)()
        elif action == "flush" and writer.lane.acked.next_offset >= stored.next_offset:
            stored = writer.lane.acked  # invariant c of positions: the furthest is taken
        elif action == "crash":
            writers[who] = Writer(source, broker, stored)
    for writer in writers:
        writer.free()
        for _ in range(2000):
            if writer.done():
                break
            for step in (lambda w=writer: w.fetch(2), lambda w=writer: w.send(False), writer.deliver, writer.answer):
                step()
    assert all(writer.done() for writer in writers)
    assert [r.value for r in broker.log] == [r.value for r in source.records]
    assert all(w.lane.acked.sequence == (start + len(source.records)) % SEQUENCES for w in writers)


@settings(max_examples=100, deadline=None)
@given(layout=LAYOUT, merge=st.booleans())
def test_runs_map_every_source_offset_to_its_record(layout, merge):
    source, broker = Source(layout), Broker()
    writer = Writer(source, broker, Position(0, PRODUCER, 0, 0, TOPIC_ID))
    while not writer.done():
        writer.fetch(3)
        writer.send(merge)
        writer.deliver()
        writer.answer()
    mapped = {run.source_offset + i: run.target_offset + i for run in writer.lane.runs for i in range(run.length)}
    assert mapped == {record.offset: i for i, record in enumerate(source.records)}

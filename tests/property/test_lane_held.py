"""Rule H in the small: a target that refuses records never gets them, and everything else once and in order, whatever
number of writers, crashes and lost connections there is. With and without a broker that says which record it is about.

The model of `test_lane_ledger`, with a broker that refuses batches and a log of incidents that all writers read.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.batch import decode
from heliograph.mirror.lane import Sent
from heliograph.mirror.ledger import advance, distance
from heliograph.mirror.positions import SEQUENCES, Position
from heliograph.mirror.quarantine import records_of
from heliograph.wire import Produced
from tests.property.test_lane_ledger import (
    ACTIONS,
    LAYOUT,
    PRODUCER,
    TOPIC_ID,
    Broker,
    Source,
    Writer,
)

INVALID_RECORD = 87


class Picky(Broker):
    """Refuses every batch with a bad record, before it looks at the sequence, as Kafka's does."""

    def __init__(self, bad: set[int]) -> None:
        super().__init__()
        self.bad = bad

    def append(self, batch: bytes) -> tuple[int, int]:
        if any(int(record.value or b"") in self.bad for record in decode(batch)):
            return INVALID_RECORD, -1
        return super().append(batch)


class Careful(Writer):
    """Writes an incident, asks again, goes on."""

    def __init__(self, source: Source, broker: Picky, position: Position, log: set[int], tells: bool) -> None:
        self.log, self.tells, self.picky = log, tells, broker
        super().__init__(source, broker, position)

    def found(self, there: int) -> None:
        refusal = self.lane.take_refusal()
        if refusal is not None and distance(refusal.sent.sequence, advance(self.lane.acked.sequence, there)) <= 0:
            self.write_down(refusal.sent)
        self.lane.found(there, held=frozenset(o for o in self.log if o >= self.lane.acked.next_offset))

    def judge(self, sent: Sent, error: int, base: int) -> None:
        self.lane.answered(sent, Produced("t", 0, error, base, -1, -1, "", ()))

    def write_down(self, sent: Sent) -> None:
        offsets = [record.offset for record in records_of(sent.piece)]
        if self.tells:
            self.log.update(self.picky.bad.intersection(offsets))
        elif len(offsets) == 1:
            self.log.update(offsets)
        else:
            self.lane.narrow_to(len(offsets) // 2, sent.piece.next_offset)


@settings(max_examples=300, deadline=None)
@given(
    layout=LAYOUT,
    actions=st.lists(ACTIONS, max_size=200),
    start=st.sampled_from([0, SEQUENCES - 20]),
    bad=st.sets(st.integers(0, 120), max_size=12),
    tells=st.booleans(),
)
def test_what_is_refused_is_left_out_and_the_rest_is_there_once(layout, actions, start, bad, tells):
    source, broker, log = Source(layout), Picky(bad), set()
    stored = Position(0, PRODUCER, 0, start, TOPIC_ID)
    writers = [Careful(source, broker, stored, log, tells) for _ in range(2)]
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
        elif action == "flush" and writer.lane.acked.next_offset >= stored.next_offset:
            stored = writer.lane.acked
        elif action == "crash":
            writers[who] = Careful(source, broker, stored, log, tells)
    for writer in writers:
        for _ in range(5000):
            if writer.done():
                break
            for step in (lambda w=writer: w.fetch(2), lambda w=writer: w.send(False), writer.deliver, writer.answer):
                step()
    assert all(writer.done() for writer in writers)
    taken = [record for record in source.records if record.offset not in bad]
    assert [record.value for record in broker.log] == [record.value for record in taken]
    assert log == {record.offset for record in source.records} & bad
    assert all(w.lane.acked.sequence == (start + len(taken)) % SEQUENCES for w in writers)


@settings(max_examples=100, deadline=None)
@given(layout=LAYOUT, bad=st.sets(st.integers(0, 120), max_size=12), tells=st.booleans())
def test_the_offset_map_has_a_hole_where_a_record_was_refused(layout, bad, tells):
    source, broker = Source(layout), Picky(bad)
    writer = Careful(source, broker, Position(0, PRODUCER, 0, 0, TOPIC_ID), set(), tells)
    while not writer.done():
        writer.fetch(3)
        writer.send(False)
        writer.deliver()
        writer.answer()
    mapped = {run.source_offset + i: run.target_offset + i for run in writer.lane.runs for i in range(run.length)}
    taken = [record.offset for record in source.records if record.offset not in bad]
    assert mapped == {offset: i for i, offset in enumerate(taken)}

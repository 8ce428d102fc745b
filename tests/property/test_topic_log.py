"""What a reader of a state topic folds is what the topic says, whatever happens to the topic between and during reads:
never a part of it that is taken for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from heliograph.batch import Record
from heliograph.errors import BrokerError
from heliograph.topiclog import TopicReader, TopicWriter, reader
from heliograph.types import TopicPartition
from heliograph.wire.codes import OFFSET_NOT_AVAILABLE
from tests.unit.brokers import Brokers

TOPIC, PARTITIONS = "t", 2
KEYS = [b"a", b"b", b"c"]
partitions = st.integers(0, PARTITIONS - 1)
values = st.one_of(st.none(), st.binary(min_size=1, max_size=2))
State = dict[tuple[int, bytes | None], bytes]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(reader, "WAIT_S", 0.0)
        yield


class Follower:
    """A fold as callers keep one: the old one stays until a refold is complete."""

    def __init__(self, brokers: Any) -> None:
        self.reader = TopicReader(brokers, TOPIC)
        self.reader.on_refold = self._begin
        self.state: State = {}
        self._fresh: State | None = None

    def _begin(self) -> None:
        self._fresh = {}

    def catch_up(self) -> None:
        for partition, record in self.reader.read():
            into = self.state if self._fresh is None else self._fresh
            put(into, partition, record)
        if self._fresh is not None:
            self.state, self._fresh = self._fresh, None

    def try_to_catch_up(self) -> BrokerError | None:
        try:
            self.catch_up()
        except BrokerError as error:
            return error
        return None


def put(state: State, partition: int, record: Record) -> None:
    if record.value is None:
        state.pop((partition, record.key), None)
    else:
        state[partition, record.key] = record.value


class Entry(NamedTuple):
    """Of the history that the topic has had since it was made, whatever compaction took of it since."""

    offset: int
    producer_id: int  # of a transaction, or -1
    about: Record | bool  # a marker: whether it commits


class TopicMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.brokers: Any = Brokers(t=PARTITIONS)
        self.followers = [Follower(self.brokers), Follower(self.brokers)]
        self.writer = TopicWriter(self.brokers, TOPIC)
        self.next_producer = 1
        self.history: dict[int, list[Entry]] = {p: [] for p in range(PARTITIONS)}
        self.repeated: set[int] = set()  # partitions in which a record was stored twice

    # -- what the topic says

    def _note(self, partition: int, *about: Record | bool, producer_id: int = -1) -> None:
        base = int(self.brokers.logs[TopicPartition(TOPIC, partition)].end)
        self.history[partition] += [Entry(base + n, producer_id, one) for n, one in enumerate(about)]

    def _is_committed(self, partition: int, one: Entry) -> bool | None:
        """None: its transaction is open."""
        if one.producer_id < 0:
            return True
        ends = (
            later.about
            for later in self.history[partition]
            if later.offset > one.offset and later.producer_id == one.producer_id and isinstance(later.about, bool)
        )
        return next(ends, None)

    def _records(self, partition: int, committed: bool | None) -> list[Entry]:
        found = [one for one in self.history[partition] if isinstance(one.about, Record)]
        return [one for one in found if self._is_committed(partition, one) is committed]

    def _open(self, partition: int) -> int | None:
        return next((one.producer_id for one in self._records(partition, None)), None)

    def state(self) -> State:
        state: State = {}
        for partition in self.history:
            for one in self._records(partition, True):
                assert isinstance(one.about, Record)
                put(state, partition, one.about)
        return state

    # -- what happens to it

    @rule(partition=partitions, pairs=st.lists(st.tuples(st.sampled_from(KEYS), values), min_size=1, max_size=3))
    def write(self, partition: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        records = [Record(0, 0, key, value) for key, value in pairs]
        self._note(partition, *records)
        self.writer.append(partition, records)

    @rule(
        partition=partitions,
        key=st.sampled_from(KEYS),
        value=values,
        other=values,
        times=st.integers(1, 3),
        remembers=st.booleans(),
    )
    def write_with_lost_answers(
        self, partition: int, key: bytes, value: bytes | None, other: bytes | None, times: int, remembers: bool
    ) -> None:
        """Another writer's record comes between the first and the repeats. A broker that does not remember the producer
        id stores the repeats as well; they say nothing."""

        def between() -> None:
            self._note(partition, Record(0, 0, key, other))
            self.brokers.append(TopicPartition(TOPIC, partition), Record(0, 0, key, other))

        self._note(partition, Record(0, 0, key, value))
        self.brokers.lost_answers = [between] * times
        self.brokers.remembers_producers = remembers
        self.writer.append(partition, [Record(0, 0, key, value)])
        self.brokers.remembers_producers = True
        if not remembers:
            self.repeated.add(partition)

    @rule(partition=partitions, pairs=st.lists(st.tuples(st.sampled_from(KEYS), values), min_size=1, max_size=2))
    def write_in_a_transaction(self, partition: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        producer_id = self._open(partition)
        if producer_id is None:
            producer_id, self.next_producer = self.next_producer, self.next_producer + 1
        records = [Record(0, 0, key, value) for key, value in pairs]
        self._note(partition, *records, producer_id=producer_id)
        self.brokers.append_in_transaction(TopicPartition(TOPIC, partition), producer_id, *records)

    @rule(partition=partitions, commit=st.booleans())
    def end_transaction(self, partition: int, commit: bool) -> None:
        producer_id = self._open(partition)
        if producer_id is not None:
            self._note(partition, commit, producer_id=producer_id)
            self.brokers.end_transaction(TopicPartition(TOPIC, partition), producer_id, commit=commit)

    @rule(partition=partitions, share=st.floats(0, 1), tombstones=st.booleans())
    def compact(self, partition: int, share: float, tombstones: bool) -> None:
        """Never beyond the first record that is not committed; tombstones go only once every reader has passed them.
        Not where a repeat may be all that it would leave: what is done about that is up to the writers (`connect`'s
        board repairs it, and has a test of its own)."""
        if partition in self.repeated:
            return
        bound = int(self.brokers.logs[TopicPartition(TOPIC, partition)].end)
        if self._records(partition, None) or self._records(partition, False):
            return  # the cleaner removes aborted records first, so that they hide no others
        if any(one.reader._progress.get(partition, reader._Progress()).next_offset < bound for one in self.followers):
            tombstones = False
        self.brokers.compact(TopicPartition(TOPIC, partition), below=int(share * bound), tombstones=tombstones)

    @rule(partition=partitions, share=st.floats(0, 1))
    def lose_the_tail(self, partition: int, share: float) -> None:
        log = self.brokers.logs[TopicPartition(TOPIC, partition)]
        before = {one.offset for one in self.brokers.records(TopicPartition(TOPIC, partition))}
        if before != {one.offset for one in self.history[partition] if isinstance(one.about, Record)}:
            return  # what compaction took for a record that is lost now is gone: the topic says something new
        self.brokers.truncate(TopicPartition(TOPIC, partition), int(share * log.end))
        self.history[partition] = [one for one in self.history[partition] if one.offset < log.end]

    @rule(partition=partitions)
    def elect(self, partition: int) -> None:
        self.brokers.elect(TopicPartition(TOPIC, partition))

    @rule(partition=partitions, watermarks=st.lists(st.floats(0, 1), max_size=3))
    def lag(self, partition: int, watermarks: list[float]) -> None:
        """The next fetches meet a new leader whose high watermark is behind."""
        log = self.brokers.logs[TopicPartition(TOPIC, partition)]
        log.lag += [int(share * log.end) for share in watermarks]

    @rule()
    def recreate(self) -> None:
        self.brokers.make(TOPIC, PARTITIONS)
        self.history = {p: [] for p in range(PARTITIONS)}
        self.repeated.clear()

    @rule(which=st.integers(0, 1))
    def read(self, which: int) -> None:
        self._assert_complete_or_named(self.followers[which])

    @rule()
    def a_new_reader_reads(self) -> None:
        self._assert_complete_or_named(Follower(self.brokers))

    def _assert_complete_or_named(self, follower: Follower) -> None:
        error = follower.try_to_catch_up()
        if error is None:
            assert follower.state == self.state()
        else:
            assert (error.code, error.retriable) == (OFFSET_NOT_AVAILABLE, True)
            assert {"topic", "partition", "offset"} <= error.context.keys()

    def teardown(self) -> None:
        """Leaders catch up; then every read is complete."""
        if not hasattr(self, "brokers"):
            return
        for log in self.brokers.logs.values():
            log.lag.clear()
        for follower in self.followers:
            follower.catch_up()
            assert follower.state == self.state()


TestTopic = TopicMachine.TestCase
TestTopic.settings = settings(max_examples=100, stateful_step_count=30, report_multiple_bugs=False)

"""Where groups go on in a copy with another number of partitions, and which copies may be divided at all."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from heliograph.batch.split import target_of
from heliograph.mirror import offsetmap
from heliograph.mirror.offsetmap import Span, Subject
from heliograph.mirror.positions import Position, join
from heliograph.mirror.runs import Runs
from heliograph.state.generations import Partition
from heliograph.state.offsets import OffsetMap
from heliograph.survey.division import Misfit, Shape, begun, shape
from heliograph.sync.divided import Divided, Topic
from heliograph.types import Cluster, CountRule, Flow, TopicPartition
from heliograph.wire import Committed

ID = UUID(int=3)


def flow(*rules: CountRule) -> Flow:
    return Flow(Cluster("us"), Cluster("eu"), target_partitions=rules)


# ---------------------------------------------------------------- which copies may be divided


def test_the_shape_of_a_copy() -> None:
    assert shape(flow(), "orders", 4, 0) == Shape(4)
    assert shape(flow(), "orders", 4, 9, {0}) == Shape(4)  # more partitions than it needs are nobody's business
    assert shape(flow(CountRule(6)), "orders", 4, 0) == Shape(6, divided=True, fixed=True)
    assert shape(flow(CountRule(6)), "orders", 4, 6, {6}) == Shape(6, divided=True, fixed=True)
    assert shape(flow(CountRule(1)), "orders", 12, 0) == Shape(1, divided=True, fixed=True)
    assert shape(flow(CountRule(6)), "heartbeats", 1, 0) == Shape(1)


def test_of_the_same_number_it_is_copied_partition_by_partition() -> None:
    assert shape(flow(CountRule(4)), "orders", 4, 0) == Shape(4, fixed=True)
    assert shape(flow(CountRule(4)), "orders", 4, 4, {0}) == Shape(4, fixed=True)


def test_a_source_that_grew_to_the_number_of_its_divided_copy_stays_divided() -> None:
    assert shape(flow(CountRule(6)), "orders", 6, 6, {6}) == Shape(6, divided=True, fixed=True)


@pytest.mark.parametrize(
    ("rules", "count", "there", "said", "words"),
    [
        ((CountRule(6),), 4, 5, set(), "us.orders has 5 partitions, and target.partitions chooses 6"),
        ((CountRule(4),), 4, 5, {0}, "us.orders has 5 partitions, and target.partitions chooses 4"),
        ((CountRule(5),), 4, 6, {6}, "begun divided over 6 partitions and is now to be divided over 5"),
        ((), 4, 6, {6}, "begun divided over 6 partitions and is now to be copied partition by partition"),
        ((CountRule(6),), 4, 4, {0}, "begun copied partition by partition and is now to be divided over 6"),
        ((CountRule(4),), 5, 4, {0}, "begun copied partition by partition and is now to be divided over 4"),
    ],
)
def test_what_would_break_the_order_of_keys_is_refused_with_the_fix(
    rules: tuple[CountRule, ...], count: int, there: int, said: set[int], words: str
) -> None:
    found = shape(flow(*rules), "orders", count, there, said)
    assert isinstance(found, Misfit)
    assert words in found.reason
    assert "us->eu.target.partitions" in found.fix


def test_only_claimed_positions_of_the_topic_as_it_is_say_how_it_was_begun() -> None:
    divided = join([Position(0, 1, 0, 0, ID), Position(0, 2, 0, 0, ID)])
    known = {
        TopicPartition("a", 0): divided,
        TopicPartition("b", 0): Position(5, 9, 0, 5, ID),
        TopicPartition("c", 0): Position(5),  # MM2's
        TopicPartition("d", 0): join([Position(0, 1, 0, 0, UUID(int=8))]),  # of a topic that was deleted since
        TopicPartition("e", 0): divided,
    }
    assert begun(known, dict.fromkeys("abcd", ID)) == {"a": {2}, "b": {0}}


# ---------------------------------------------------------------- the map of a strand


def test_a_strands_points_have_a_key_of_their_own() -> None:
    plain, strand = Subject(TopicPartition("t", 1), ID), Subject(TopicPartition("t", 1), ID, 4)
    for subject in (plain, strand):
        key = offsetmap.key_of("us", subject, 7)
        assert offsetmap.read(key, offsetmap.encode([Span(7, 3, 1)]), "us") == (subject, [Span(7, 3, 1)], 7, None)
    assert b"strand" not in offsetmap.key_of("us", plain, 7)


# ---------------------------------------------------------------- where a group goes on


class World:
    """Source partitions whose records were dealt to target partitions, interleaved anyhow, and what is known of it."""

    def __init__(self, seed: int, sources: int, targets: int) -> None:
        dice = random.Random(seed)
        self.targets = targets
        self.logs: list[list[tuple[int, int]]] = [[] for _ in range(targets)]  # (source partition, offset)
        self.ends = {p: dice.randrange(400) for p in range(sources)}
        self.copied = dict.fromkeys(range(sources), 0)  # offsets that were read and dealt
        parts = {(p, q): [0, 0] for p in range(sources) for q in range(targets)}  # records, target end
        runs = {pair: Runs() for pair in parts}
        at: dict[int, dict[int, tuple[int, int, int]]] = {p: {} for p in range(sources)}
        while any(self.copied[p] < end for p, end in self.ends.items()):
            p = dice.choice([p for p, end in self.ends.items() if self.copied[p] < end])
            for _ in range(dice.randrange(1, 30)):
                if self.copied[p] == self.ends[p]:
                    break
                offset = self.copied[p]
                q = target_of(dice.choice([None, b"%d" % dice.randrange(50)]), offset, targets)
                if dice.random() < 0.1:
                    runs[p, q].add([Span(offset, len(self.logs[q]), 1)])
                self.logs[q].append((p, offset))
                self.copied[p] += 1
                parts[p, q] = [parts[p, q][0] + 1, len(self.logs[q])]
            if dice.random() < 0.5:  # a position is written
                at[p] = {q: (self.copied[p], *parts[p, q]) for q in range(targets)}

        def strands(p: int) -> list[Position]:
            return [Position(*_strand(at[p].get(q, (0, 0, 0)), p * 100 + q)) for q in range(targets)]

        self.positions = {p: join(strands(p)) for p in range(sources)}
        self.map = OffsetMap(None, flow())  # type: ignore[arg-type]
        for (p, q), found in runs.items():
            partition = self.map._partitions.setdefault(Subject(TopicPartition("t", p), ID, q), Partition())
            partition.of(p * 100 + q).runs = found
        self.dice = dice

    @property
    def topic(self) -> Topic:
        return Topic(self.positions, {q: len(log) for q, log in enumerate(self.logs)}, self.ends)


def _strand(where: tuple[int, int, int], producer: int) -> tuple[Any, ...]:
    next_offset, records, target = where
    return next_offset, producer, 0, records, ID, target


@pytest.mark.parametrize("seed", range(60))
def test_no_unread_record_is_passed_over_and_at_the_end_nothing_comes_again(seed: int) -> None:
    world = World(seed, sources=1 + seed % 5, targets=1 + seed % 4)
    divided = Divided(flow(CountRule(world.targets)), None, None, world.map)  # type: ignore[arg-type]
    group = {p: Committed(world.dice.randrange(end + 1)) for p, end in world.ends.items()}
    for place in divided.places("t", world.topic, group):
        log = world.logs[place.remote.partition]
        missed = [(p, offset) for p, offset in log[: place.downstream] if offset >= group[p].offset]
        assert not missed
        assert place.upstream == sum(at.offset for at in group.values())
    at_the_end = {p: Committed(end) for p, end in world.ends.items()}
    places = divided.places("t", world.topic, at_the_end)
    assert [place.downstream for place in places] == [len(log) for log in world.logs]


def test_a_group_without_an_offset_for_a_partition_that_holds_records_gets_none() -> None:
    world = World(3, sources=3, targets=2)
    divided = Divided(flow(CountRule(2)), None, None, world.map)  # type: ignore[arg-type]
    all_but_one = {p: Committed(end) for p, end in world.ends.items() if p != 1}
    assert divided.places("t", world.topic, all_but_one) == []
    empty = Topic(world.positions, world.topic.copies, world.ends | {1: 0})
    assert len(divided.places("t", empty, all_but_one)) == 2

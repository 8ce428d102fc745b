"""The judge of a storm: it is silent about a right copy, and names every planted fault to the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from storm.identity import Identity, columns_of, identity_of, value_of
from storm.logs import Checkpoint, decode_checkpoint
from storm.verify import CopyLog, Finding, Placement, Read, SourceLog, Topic, check, count_exact, repeated

from heliograph.formats import Checkpoint as EngineCheckpoint
from heliograph.types import TopicPartition

COUNT = 50


def source(numbers: Sequence[int], first: int = 0) -> SourceLog:
    return SourceLog(np.arange(first, first + len(numbers)), np.array(numbers, np.int64))


def copy(records: Sequence[Identity], first: int = 0) -> CopyLog:
    columns = columns_of([value_of(one) for one in records])
    return CopyLog(np.arange(first, first + len(records)), *columns, first + len(records))


def run(partition: int, numbers: Sequence[int], generation: int = 0) -> list[Identity]:
    return [Identity(generation, partition, number) for number in numbers]


def plain(records: Sequence[Identity], **more: object) -> Topic:
    """A topic of one partition with COUNT records, and this copy of it."""
    return replace(Topic("t", "west.t", {0: {0: source(range(COUNT))}}, {0: copy(records)}), **more)  # type: ignore[arg-type]


def kinds(found: Sequence[Finding]) -> list[str]:
    return [one.kind for one in found]


def test_a_right_copy_has_no_findings() -> None:
    assert check(plain(run(0, range(COUNT)))) == []


def test_a_duplicate_is_named_with_both_places() -> None:
    found = check(plain([*run(0, range(COUNT)), Identity(0, 0, 17)]))
    assert kinds(found) == ["duplicated", "reordered"]
    assert found[0].count == 1
    assert found[0].named == ("record 17 of source partition 0: west.t-0 offset 17 and west.t-0 offset 50",)


def test_a_duplicate_beside_its_original_is_found_though_the_order_holds() -> None:
    assert kinds(check(plain(run(0, [*range(18), 17, *range(18, COUNT)])))) == ["duplicated"]


class TestASourceThatHoldsRecordsTwice:
    """A request of the load that its library sent twice: records 10 to 19, then those again."""

    NUMBERS = (*range(20), *range(10, COUNT))

    def topic(self, numbers: Sequence[int], **more: object) -> Topic:
        return plain(run(0, numbers), sources={0: {0: source(self.NUMBERS)}}, **{"may_repeat": True, **more})

    def test_the_copy_holds_them_twice_too(self) -> None:
        topic = self.topic(self.NUMBERS)
        assert check(topic) == []
        assert repeated(topic) == 10

    def test_an_idempotent_load_repeats_nothing(self) -> None:
        [found] = check(self.topic(self.NUMBERS, may_repeat=False))
        assert (found.kind, found.named) == ("source", ("the source itself is out of order at offset 20",))

    def test_a_third_time_is_a_duplicate(self) -> None:
        found = check(self.topic([*self.NUMBERS, 15]))
        assert [(one.kind, one.count) for one in found] == [("duplicated", 1)]

    def test_once_is_a_loss(self) -> None:
        [found] = check(self.topic([*range(20), *range(11, COUNT)]))
        assert (found.kind, found.count) == ("lost", 2)
        assert "record 10 of source partition 0" in found.named[0]

    def test_another_that_goes_back_is_reordered(self) -> None:
        assert kinds(check(self.topic([1, 0, *self.NUMBERS[2:]]))) == ["reordered"]

    def test_a_group_that_has_read_them_once_is_judged_by_the_first(self) -> None:
        read = {0: Read(0, 12)}
        assert check(self.topic(self.NUMBERS, placements=[Placement("g", 0, 12, read)])) == []
        [found] = check(self.topic(self.NUMBERS, placements=[Placement("g", 0, 13, read)]))
        assert found.kind == "misplaced"


def test_a_loss_is_named_with_its_source_offset() -> None:
    topic = plain(run(0, [n for n in range(COUNT) if n not in (0, 20)]))
    [found] = check(replace(topic, sources={0: {0: source(range(COUNT), first=1000)}}))
    assert (found.kind, found.count) == ("lost", 2)
    assert found.named[1] == "record 20 of source partition 0, source offset 1020"


def test_a_lost_tail_of_the_last_generation_is_a_loss() -> None:
    [found] = check(plain(run(0, range(COUNT - 3))))
    assert (found.kind, found.count) == ("lost", 3)


def test_a_partition_without_any_copy_is_a_loss() -> None:
    [found] = check(plain([]))
    assert (found.kind, found.count) == ("lost", COUNT)


def test_two_records_that_changed_places() -> None:
    [found] = check(plain(run(0, [*range(10), 11, 10, *range(12, COUNT)])))
    assert found.kind == "reordered"
    assert found.named == ("offset 11: record 10 of source partition 0 lies behind a later one",)


def test_a_record_that_the_source_does_not_hold() -> None:
    topic = plain(run(0, range(COUNT)))
    [found] = check(replace(topic, sources={0: {0: source([n for n in range(COUNT) if n != 30])}}))
    assert found.kind == "foreign"
    assert "record 30 of source partition 0" in found.named[0]


def test_a_record_in_another_partition() -> None:
    sources = {0: {0: source(range(5)), 1: source(range(5))}}
    copies = {0: copy([*run(0, range(5)), Identity(0, 1, 4)]), 1: copy(run(1, range(4)))}
    [found] = check(Topic("t", "west.t", sources, copies))
    assert found.kind == "misrouted"
    assert check(Topic("t", "west.t", sources, copies, divided=True)) == []


def test_a_record_copied_to_two_partitions_of_a_divided_topic() -> None:
    copies = {0: copy(run(0, [0, 2, 4])), 1: copy(run(0, [1, 2, 3]))}
    [found] = check(Topic("t", "west.t", {0: {0: source(range(5))}}, copies, divided=True))
    assert found.kind == "duplicated"
    assert "west.t-0 offset 1 and west.t-1 offset 1" in found.named[0]


def test_an_acknowledged_record_that_the_source_lost() -> None:
    topic = plain(run(0, range(COUNT)), acknowledged={(0, 0): np.array([3, COUNT])})
    [found] = check(topic)
    assert found.kind == "source"
    assert f"record {COUNT}" in found.named[0]


class TestDeletedGenerations:
    SOURCES = {0: {0: source(range(20))}, 1: {0: source(range(10))}}  # noqa: RUF012

    def topic(self, *records: Identity) -> Topic:
        return Topic("t", "west.t", self.SOURCES, {0: copy(records)})

    def test_the_copy_may_lack_their_tail(self) -> None:
        assert check(self.topic(*run(0, range(15)), *run(0, range(10), 1))) == []
        assert check(self.topic(*run(0, range(10), 1))) == []

    def test_but_nothing_before_the_tail(self) -> None:
        [found] = check(self.topic(*run(0, [*range(7), *range(8, 15)]), *run(0, range(10), 1)))
        assert found.kind == "lost"
        assert found.named[0].startswith("record 7 of source partition 0,")

    def test_and_the_new_generation_has_to_be_whole(self) -> None:
        [found] = check(self.topic(*run(0, range(15)), *run(0, range(9), 1)))
        assert "record 9 of source partition 0 of generation 1" in found.named[0]

    def test_a_record_of_the_old_one_behind_the_new_one(self) -> None:
        found = check(self.topic(*run(0, range(14)), *run(0, range(10), 1), Identity(0, 0, 14)))
        assert kinds(found) == ["reordered"]


class TestGroups:
    @pytest.mark.parametrize("offset", [0, 24, 25])
    def test_at_or_before_the_first_unread_record(self, offset: int) -> None:
        assert check(plain(run(0, range(COUNT)), placements=[Placement("g", 0, offset, {0: Read(0, 25)})])) == []

    def test_past_an_unread_record(self) -> None:
        [found] = check(plain(run(0, range(COUNT)), placements=[Placement("g", 0, 26, {0: Read(0, 25)})]))
        assert (found.kind, found.where) == ("misplaced", "g in west.t-0")
        assert "record 25 of source partition 0 lies at offset 25" in found.named[0]

    def test_source_offsets_need_not_be_those_of_the_copy(self) -> None:
        """Twenty records of the source were deleted by retention before the flow began."""
        topic = plain(run(0, range(COUNT)), sources={0: {0: source(range(COUNT), first=20)}})
        right = replace(topic, placements=[Placement("g", 0, 10, {0: Read(0, 30)})])
        assert check(right) == []
        assert count_exact(right) == (1, 1)
        assert count_exact(replace(topic, placements=[Placement("g", 0, 9, {0: Read(0, 30)})])) == (0, 1)
        assert kinds(check(replace(topic, placements=[Placement("g", 0, 11, {0: Read(0, 30)})]))) == ["misplaced"]

    def test_past_the_end_of_the_copy(self) -> None:
        [found] = check(plain(run(0, range(COUNT)), placements=[Placement("g", 0, 51, {0: Read(0, 60)})]))
        assert "the copy ends at 50" in found.named[0]

    def test_a_divided_copy_is_judged_by_every_source_partition(self) -> None:
        mixed = [one for pair in zip(run(0, range(5)), run(1, range(5)), strict=True) for one in pair]
        topic = Topic("t", "w.t", {0: {0: source(range(5)), 1: source(range(5))}}, {0: copy(mixed)}, divided=True)
        read = {0: Read(0, 4), 1: Read(0, 2)}  # the first unread: record 2 of partition 1, at offset 5
        assert check(replace(topic, placements=[Placement("g", 0, 5, read)])) == []
        [found] = check(replace(topic, placements=[Placement("g", 0, 6, read)]))
        assert "record 2 of source partition 1 lies at offset 5" in found.named[0]

    def test_what_was_deleted_at_the_source_is_unread_until_the_group_commits_in_the_new_generation(self) -> None:
        sources = {0: {0: source(range(20))}, 1: {0: source(range(10))}}
        topic = Topic("t", "west.t", sources, {0: copy([*run(0, range(20)), *run(0, range(10), 1)])})
        assert check(replace(topic, placements=[Placement("g", 0, 23, {0: Read(1, 3)})])) == []
        for offset in (6, 20, 23):
            assert kinds(check(replace(topic, placements=[Placement("g", 0, offset, {0: Read(0, 5)})]))) == [
                "misplaced"
            ]


def test_identities_survive_and_damage_is_noticed() -> None:
    records = [Identity(1, 2, number) for number in (0, 7, 1 << 40)]
    values = [value_of(one) for one in records]
    assert [identity_of(value) for value in values] == records
    assert columns_of(values).numbers.tolist() == [0, 7, 1 << 40]
    with pytest.raises(ValueError, match="record 7 of source partition 2"):
        columns_of([values[0], values[1][:-1]])


def test_checkpoints_are_read_as_mm2_writes_them() -> None:
    one = EngineCheckpoint("readers", TopicPartition("west.t", 3), 10, 12)
    assert decode_checkpoint(one.key(), one.value()) == Checkpoint("readers", "west.t", 3, 10, 12)

"""Offsets translated over breaks of the copy: nothing over a stretch that Heliograph did not copy, nothing by the map
of a copy that is gone."""

from __future__ import annotations

import json

from heliograph.batch import Record, encode
from heliograph.mirror import offsetmap, positions
from heliograph.mirror.positions import Position
from heliograph.types import TopicPartition
from tests.mapped_copy import MAP, REMOTE, TP, MappedCopy


def copied_before_mm2() -> MappedCopy:
    """Source 0 to 999 became 0 to 999; then MM2 copied 500 transactions of one record, to 1000 to 1499."""
    copy = MappedCopy()
    copy.claim()
    task = copy.task()
    task.copied(0, 0, 10)
    task.write()
    task.copied(10, 10, 990)
    task.write()
    task.end()
    copy.source.ends[TP], copy.target.ends[REMOTE] = 2000, 1500
    copy.new_era(2000)
    return copy


def test_the_last_run_is_not_stretched_over_what_mm2_copied_in_between() -> None:
    copy = copied_before_mm2()
    copy.claim()
    assert copy.translate(500) == 500  # what we copied is still there
    assert copy.translate(2000) == 1500
    for offset in (1001, 1200, 1500, 1999):  # at 1000 + (offset - 1000) / 2, rounded up
        place = copy.translate(offset)
        assert place is not None
        assert place <= 1000 + (offset - 999) // 2
    task = copy.task()
    task.copied(2000, 1500, 10)
    task.write()
    assert [copy.translate(offset) for offset in (500, 2000, 2005, 2010)] == [500, 1500, 1505, 1510]
    assert copy.translate(1500) == 1000


def test_a_copy_that_was_recreated_while_mm2_had_it_takes_its_map_with_it() -> None:
    copy = copied_before_mm2()
    copy.target.make(REMOTE.topic)  # deleted; MM2 copied it anew from 600 on, which became 0
    copy.target.ends[REMOTE] = 5000
    copy.source.ends[TP] = 5600
    copy.new_era(5600)
    copy.claim()
    task = copy.task()
    task.copied(5600, 5000, 10)
    task.write()
    place = copy.translate(800)
    assert place is None or place <= 200
    assert copy.translate(5605) == 5005


def test_a_while_without_the_map_leaves_a_stretch_that_is_not_known() -> None:
    copy = MappedCopy()
    copy.claim()
    task = copy.task()
    task.copied(0, 0, 10)
    task.write()
    task.copied(10, 10, 990)
    task.write()
    without = copy.task(mapped=False)  # the principal lost its rights on the map's topic
    without.transactions(1000, 1000, 500)
    without.write()
    assert copy.translate(500) == 500
    assert copy.translate(1500) == 1000  # it lies at 1250
    assert copy.translate(1999) == 1500
    copy.open()
    copy.claim()
    again = copy.task()
    again.copied(2000, 1500, 100)
    again.write()
    assert [copy.translate(offset) for offset in (500, 1500, 2050)] == [500, 1000, 1550]


def test_a_position_of_0_1_stretches_the_last_run_only_where_its_counts_leave_no_hole() -> None:
    """0.1 wrote no generation into the map and no run into the position."""
    for next_offset, target, sequence, exact in (
        (60_000, 60_000, 60_000, True),  # one run for life
        (70_000, 60_000, 60_000, False),  # holes: the map could not be written for a while
        (60_000, 60_000, 500, False),  # most of it is not of this producer id
    ):
        copy = MappedCopy()
        copy.target.ends[REMOTE], copy.source.ends[TP] = 60_000, 70_000
        old_map(copy, 0, 0, 3)
        said = {"offset": next_offset - 1, "producerId": 7, "producerEpoch": 0, "sequence": sequence}
        said |= {"topicId": str(copy.topic_id), "targetOffset": target}
        write(copy, copy.positions.topic, positions.key_of("a", TP), json.dumps(said).encode())
        assert copy.translate(30_000) == (30_000 if exact else 3)
        copy.claim()  # nothing is claimed: 0.1's claim stands, and gets its place in the map
        task = copy.task()
        task.copied(next_offset, target, 100)
        task.write()
        copy.open()
        assert copy.translate(next_offset + 50) == target + 50
        assert copy.translate(30_000) == (30_000 if exact else 3)


def test_a_tombstone_removes_in_every_reader() -> None:
    """A copy that was adopted from MM2 at 50,000 was deleted and copied anew from 20,000 on."""
    copy = MappedCopy()
    copy.target.ends[REMOTE], copy.source.ends[TP] = 50_000, 50_000
    copy.new_era(50_000)
    copy.claim()
    task = copy.task()
    task.copied(50_000, 50_000, 3)
    task.write()
    task.copied(50_003, 50_003, 9997)
    task.write()
    copy.target.make(REMOTE.topic)
    copy.source.starts[TP] = 20_000
    copy.new_era(20_000)
    copy.claim()
    task = copy.task()
    task.copied(20_000, 0, 3)
    task.write()
    task.copied(20_003, 3, 59_997)
    task.write()
    assert copy.translate(70_000) == 50_000
    copy.open()
    assert copy.translate(70_000) == 50_000
    copy.target.compact(MAP)
    copy.open()
    assert copy.translate(70_000) == 50_000


def test_a_tombstone_by_itself_removes_the_runs_of_its_segment() -> None:
    copy = MappedCopy()
    copy.target.ends[REMOTE] = 1000
    old_map(copy, 0, 0, 10)
    old_map(copy, 20, 10, 500)
    known = {TP: Position(10, 7, 0, 10, copy.topic_id, 10)}
    copy.offsets.catch_up()
    assert copy.offsets.translate(TP, 5, known) == 5
    write(copy, MAP, offset_key(copy, 20), None)
    copy.offsets.catch_up()
    assert copy.offsets.last_run(TP, known[TP]) is None
    assert copy.offsets.translate(TP, 400, {TP: Position(600, 7, 0, 10, copy.topic_id, 590)}) == 10
    copy.open()
    copy.offsets.catch_up()
    assert copy.offsets.translate(TP, 400, {TP: Position(600, 7, 0, 10, copy.topic_id, 590)}) == 10


def test_runs_that_a_task_of_a_lost_copy_writes_late_do_not_count() -> None:
    copy = MappedCopy()
    copy.claim()
    late = copy.task()
    late.copied(0, 0, 1000)
    copy.target.make(REMOTE.topic)
    copy.new_era(600)
    copy.claim()
    task = copy.task()
    task.copied(600, 0, 400)
    task.write()
    late.write()
    assert [copy.translate(offset) for offset in (700, 999)] == [100, 399]
    copy.open()
    assert [copy.translate(offset) for offset in (700, 999)] == [100, 399]


def offset_key(copy: MappedCopy, first: int) -> bytes:
    return offsetmap.key_of("a", offsetmap.Subject(TP, copy.topic_id), first)


def old_map(copy: MappedCopy, source: int, target: int, length: int) -> None:
    """A segment of 0.1."""
    write(copy, MAP, offset_key(copy, source), offsetmap.encode([offsetmap.Span(source, target, length)]))


def write(copy: MappedCopy, topic: str, key: bytes, value: bytes | None) -> None:
    copy.target.produce(TopicPartition(topic, 0), encode([Record(0, 0, key, value)]))


def test_a_generation_without_runs_that_began_behind_the_end_of_a_cut_copy_does_not_count() -> None:
    """It was claimed behind what MM2 had copied, and copied nothing itself: no run tells that the copy was cut."""
    copy = MappedCopy()
    for source, target in ((0, 0), (200, 100), (300, 40)):  # the copy was cut at 40
        copy.source.ends[TP], copy.target.ends[REMOTE] = 300, target
        copy.new_era(source)
        copy.claim()
    assert (copy.translate(200) or 0) <= 40, "what comes from 300 on begins at 40"

"""Checkpoints and groups' offsets over breaks of the copy, rewinds that a sum hides, brokers that cannot be asked and
members that come between."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.typing import EventDict

from heliograph.batch import Record, encode
from heliograph.errors import BrokerError
from heliograph.formats import Checkpoint
from heliograph.sync.groups import GroupSync
from heliograph.sync.rewinds import Rewinds
from heliograph.types import TopicPartition
from heliograph.wire import Committed
from tests.mapped_copy import FLOW, KEY, REMOTE, TP, MappedCopy

CHECKPOINTS = "a.checkpoints.internal"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read lower counts at once: how long it must last is `test_sync_rewinds`' affair."""
    monkeypatch.setattr(Rewinds, "seen_s", 0.0)


def copied() -> MappedCopy:
    """Source 0 to 1999 became 0 to 1999, the group has read 1000 of them, here and by its checkpoint there."""
    copy = MappedCopy()
    copy.claim()
    task = copy.task()
    task.copied(0, 0, 2000)
    task.write()
    copy.commit(1000)
    copy.round()
    copy.round()  # reads back what the first wrote
    assert (copy.place(), copy.target.groups["g"][REMOTE].offset) == (1000, 1000)
    return copy


def begin_again(copy: MappedCopy, source: int, target: int, length: int) -> None:
    copy.new_era(source)
    copy.claim()
    task = copy.task()
    task.copied(source, target, length)
    task.write()


def cut_and_begun_again() -> MappedCopy:
    """The group was placed at 1900, the copy was cut at 700 and copied again from 600 on: 600 lies at 700."""
    copy = copied()
    copy.commit(1900)
    copy.round()
    copy.target.ends[REMOTE] = 700
    copy.commit(1700)
    begin_again(copy, 600, 700, 900)
    return copy


# ---------------------------------------------------------------- copies that are gone


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "another process"])
def test_a_copy_that_was_deleted_takes_its_checkpoints_with_it(restarted: bool) -> None:
    copy = copied()
    copy.target.make(REMOTE.topic)  # and the broker drops the group's offsets of it
    begin_again(copy, 600, 0, 1400)  # the source's retention has reached 600
    if restarted:
        copy.open()
    for _ in range(3):
        copy.round()
    assert (copy.place(), copy.target.groups["g"][REMOTE].offset) == (400, 400)
    copy.commit(1200)
    copy.round()
    assert (copy.place(), copy.target.groups["g"][REMOTE].offset) == (600, 600)


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "another process"])
def test_a_copy_that_was_cut_takes_back_where_its_checkpoints_had_placed_groups(restarted: bool) -> None:
    """Cut at 700 and copied again from 600 on: 600 lies at 700, 1000 at 1100. A group at 1000 would be read twice from
    900; one that had been placed at 1900 would miss 200."""
    copy = cut_and_begun_again()
    if restarted:
        copy.open()
    for _ in range(3):
        copy.round()
    assert (copy.place(), copy.target.groups["g"][REMOTE].offset) == (1600, 1600)  # the end: 1700 is still to come


@pytest.mark.parametrize("other", [False, True], ids=["began later", "stood by"])
def test_a_group_is_taken_back_though_the_process_ended_that_withdrew_its_checkpoint(other: bool) -> None:
    """Checkpoints are written a minute before groups are set by them."""
    copy = cut_and_begun_again()
    first = copy.checkpoints
    if other:
        copy.open()
        copy.checkpoints._log.count()
        copy.checkpoints._unjudged += copy.checkpoints._log.news()
    first.emit()
    if not other:
        copy.open()
    for _ in range(3):
        copy.round()
    assert (copy.place(), copy.target.groups["g"][REMOTE].offset) == (1600, 1600)


def test_an_offset_that_the_group_committed_itself_is_not_made_smaller() -> None:
    copy = copied()
    copy.target.make(REMOTE.topic)
    copy.target.groups["g"] = {REMOTE: Committed(777)}
    begin_again(copy, 600, 0, 1400)
    for _ in range(3):
        copy.round()
    assert copy.place() == 400
    assert copy.target.groups["g"][REMOTE].offset == 777


def test_where_the_map_cannot_be_written_a_group_of_a_lost_copy_goes_to_the_beginning() -> None:
    """Nothing says where it stands in the new copy, and its old place there is not its own."""
    copy = copied()
    copy.target.make(REMOTE.topic)
    copy.target.refused = {copy.offsets.topic}
    copy.new_era(600)
    copy.claim()
    task = copy.task(mapped=False)
    task.copied(600, 0, 1400)
    task.write()
    copy.round()
    assert copy.place() == 0
    copy.commit(2000)
    copy.round()
    assert copy.place() == 1400


def test_a_generation_that_only_goes_on_leaves_checkpoints_as_they_are() -> None:
    """MM2 copied for a while, to the same remote topic."""
    copy = copied()
    copy.source.ends[TP], copy.target.ends[REMOTE] = 3000, 2500
    begin_again(copy, 3000, 2500, 10)
    written = len(copy.target.logs[TopicPartition(CHECKPOINTS, 0)])
    copy.round()
    assert copy.place() == 1000
    assert len(copy.target.logs[TopicPartition(CHECKPOINTS, 0)]) == written


def test_what_mm2_says_of_the_stretch_it_copied_stands() -> None:
    """We know that 2000 to 2999 became something from 2000 to 2499; MM2 knows more."""
    copy = copied()
    copy.source.ends[TP], copy.target.ends[REMOTE] = 3000, 2500
    begin_again(copy, 3000, 2500, 10)
    copy.commit(2600)
    write_checkpoint(copy, Checkpoint("g", REMOTE, 2600, 2250))
    copy.round()
    assert copy.place() == 2250
    write_checkpoint(copy, Checkpoint("g", REMOTE, 2600, 2501))  # beyond what it can have copied
    copy.round()
    assert copy.place() == 2000


def test_no_tombstone_is_ever_written_to_mm2s_topic(logs: list[EventDict]) -> None:
    """Java's `Checkpoint.deserializeRecord` fails on one, and `translateOffsets` with it."""
    copy = copied()
    copy.target.make(REMOTE.topic)
    begin_again(copy, 600, 0, 1400)
    copy.round()
    assert all(record.value is not None for record in copy.target.logs[TopicPartition(CHECKPOINTS, 0)])
    assert any(line["event"].startswith("checkpoint withdrawn") for line in logs)


def write_checkpoint(copy: MappedCopy, one: Checkpoint) -> None:
    """As MM2: without a header."""
    copy.target.produce(TopicPartition(CHECKPOINTS, 0), encode([Record(0, 0, one.key(), one.value())]))


# ---------------------------------------------------------------- divided topics


def divided() -> MappedCopy:
    """Over two target partitions: source offset n lies at n / 2 of partition n % 2, 20,000 of them."""
    copy = MappedCopy(strands=2)
    copy.claim()
    task = copy.task()
    for start in range(0, 20_000, 2000):
        for q in (0, 1):
            task.copied(start + q, start // 2, 1000, strand=q)
    for lane in task.lanes:
        lane._advance(20_000, lane.acked.sequence)
    task.write()
    copy.source.ends[TP] = 20_000
    return copy


def places(copy: MappedCopy) -> list[int]:
    return [copy.place(TopicPartition(REMOTE.topic, q)) for q in (0, 1)]


def test_a_new_generation_of_a_divided_topic_moves_no_group_to_the_end() -> None:
    copy = divided()
    copy.commit(8000)
    copy.round()
    assert all(3000 <= place <= 4000 for place in places(copy))
    before = places(copy)
    copy.new_era(20_000, 20_000)  # an operator set the position to where it stood
    copy.claim()
    copy.round()
    assert places(copy) == before
    copy.commit(9000)
    copy.round()
    assert all(3000 <= place <= 4500 for place in places(copy))


def test_a_divided_copy_that_was_deleted_takes_its_checkpoints_with_it() -> None:
    copy = divided()
    copy.commit(19_000)
    copy.round()
    copy.target.make(REMOTE.topic, 2)
    copy.new_era(18_000, 18_000)
    copy.claim()
    task = copy.task()
    for q in (0, 1):
        task.copied(18_000 + q, 0, 1000, strand=q)
        task.copied(40_000 + q, 1000, 19_000, strand=q)
    task.write()
    copy.round()
    assert all(place <= 500 for place in places(copy))


def test_a_rewind_of_one_source_partition_is_not_hidden_by_the_progress_of_another() -> None:
    other = TopicPartition("orders", 1)
    copy = MappedCopy(strands=1)
    copy.source.make("orders", 2)
    copy.topic_id = copy.source.topics["orders"][0]
    for tp in (TP, other):
        copy.claim(tp)
    first, second = copy.task(tp=TP), copy.task(tp=other)
    for start in range(0, 20_000, 1000):  # a thousand records of each, in turns
        first.copied(start, 2 * start, 1000)
        second.copied(start, 2 * start + 1000, 1000)
    first.write()
    second.write()
    copy.commit(10_000)
    copy.commit(10_000, other)
    copy.round()
    assert 18_000 <= copy.place() <= 20_000
    copy.commit(5000)
    copy.commit(16_000, other)
    for _ in range(2):
        copy.round()
    assert 8000 <= copy.place() <= 10_000
    copy.commit(4000)
    copy.commit(18_000, other)
    copy.open()  # the topic remembers where the group stood in each
    for _ in range(2):
        copy.round()
    assert copy.place() <= 8000


# ---------------------------------------------------------------- brokers and members


def test_one_source_broker_that_does_not_answer_stops_no_checkpoints(logs: list[EventDict]) -> None:
    copy = copied()
    copy.source.unlisted = True
    copy.commit(1500)
    copy.round()
    assert copy.place() == 1500
    (line,) = [line for line in logs if "groups cannot be listed" in line["event"]]
    assert (line["groups"], line["cluster"]) == (1, "a")


def test_without_any_list_of_groups_the_failure_is_said() -> None:
    copy = MappedCopy()
    copy.source.unlisted = True
    with pytest.raises(BrokerError):
        copy.checkpoints.emit()


class Busy:
    """The target while a member of the group comes and goes: it commits between our reading and our commit, and perhaps
    once more after it, perhaps to a topic of its own as well."""

    def __init__(self, copy: MappedCopy, before: int, *, after: int | None = None, elsewhere: bool = False) -> None:
        self._copy, self._before, self._after, self._elsewhere = copy, before, after, elsewhere

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copy.target, name)

    def commit_group_offsets(
        self, group: str, offsets: dict[TopicPartition, Committed]
    ) -> dict[TopicPartition, BrokerError | None]:
        committed = self._copy.target.groups[group]
        committed[REMOTE] = Committed(self._before)
        if self._elsewhere:
            committed[ELSEWHERE] = Committed(5)
        answers = self._copy.target.commit_group_offsets(group, offsets)
        if self._after is not None:
            committed[REMOTE] = Committed(self._after)
        return answers


ELSEWHERE = TopicPartition("payments", 0)  # a topic that we do not write


def named_members(logs: list[EventDict]) -> list[list[str]]:
    return [line["partitions"] for line in logs if "member of the group committed" in line["event"]]


def set_while(copy: MappedCopy, member: Busy) -> GroupSync:
    """The group's offsets are set to 1200 on the target while this member is there."""
    copy.commit(1200)
    copy.checkpoints.emit()
    sync = GroupSync(FLOW, cast(Any, member), copy.checkpoints)
    assert sync.sync() == 1
    return sync


def test_a_member_that_commits_in_between_is_named_and_its_later_commits_count(logs: list[EventDict]) -> None:
    copy = copied()
    sync = set_while(copy, Busy(copy, 1300, after=1350))
    assert named_members(logs) == [[str(REMOTE)]]
    copy.commit(1340)
    copy.checkpoints.emit()
    assert sync.sync() == 0, "1350 was seen there"
    assert copy.target.groups["g"][REMOTE].offset == 1350


def test_a_member_whose_commit_was_replaced_is_named_by_what_else_it_committed(logs: list[EventDict]) -> None:
    """It left with 1300. It reads from 1200 on again, and never past a record that it has not read."""
    copy = copied()
    sync = set_while(copy, Busy(copy, 1300, elsewhere=True))
    assert named_members(logs) == [[str(ELSEWHERE)]]
    assert copy.target.groups["g"][REMOTE].offset == 1200
    copy.commit(1210)
    copy.checkpoints.emit()
    assert sync.sync() == 1
    assert copy.target.groups["g"][ELSEWHERE].offset == 5, "what is not ours stays"


def test_nobody_is_named_when_nobody_was_there(logs: list[EventDict]) -> None:
    copy = copied()
    copy.commit(1200)
    copy.checkpoints.emit()
    assert copy.group_sync.sync() == 1
    assert named_members(logs) == []


def test_offsets_are_read_again_right_before_they_are_set() -> None:
    """A member had committed between the reading of all groups and this one's turn."""
    copy = copied()
    copy.commit(1200)
    copy.checkpoints.emit()
    reads: list[list[str]] = []

    def group_offsets(names: list[str]) -> dict[str, dict[TopicPartition, Committed]]:
        reads.append(list(names))
        if len(reads) == 2:
            copy.target.groups["g"][REMOTE] = Committed(1300)
        return type(copy.target).group_offsets(copy.target, names)

    copy.target.group_offsets = group_offsets  # type: ignore[assignment, method-assign]
    assert copy.group_sync.sync() == 0
    assert copy.target.groups["g"][REMOTE].offset == 1300
    assert KEY in copy.checkpoints.known

"""What an operator sets stays set: positions of tasks that slept come after it, and compaction may leave them alone."""

from __future__ import annotations

import pytest

from heliograph.batch import Record
from heliograph.mirror.positions import Position, encode, is_for_others, join, key_of, partition_of_key
from heliograph.state.fence import NAME, Fences
from heliograph.state.positions import PositionsLog
from heliograph.types import Cluster, Flow, TopicPartition

FLOW = Flow(Cluster("us"), Cluster("eu"))
TP = TopicPartition("orders", 0)
OLD = Position(1000, 7, 0, 1000)
SLEPT = Position(1005, 7, 0, 1005)  # the next position of a task that was frozen
NEW = Position(0, 8, 0, 0)

Pairs = list[tuple[bytes, bytes | None]]


class Topic:
    """A positions topic of one partition, in memory."""

    partitions = 1

    def __init__(self, pairs: Pairs) -> None:
        self.pairs, self.read_to = pairs, 0

    def append(self, partition: int, pairs: Pairs) -> None:
        self.pairs.extend(pairs)

    def is_reread(self, partition: int, offset: int) -> bool:
        return False

    def news(self) -> list[tuple[int, Record]]:
        begin, self.read_to = self.read_to, len(self.pairs)
        return [(0, Record(begin + n, 0, *pair, ())) for n, pair in enumerate(self.pairs[begin:])]


def log_of(pairs: Pairs) -> PositionsLog:
    log = PositionsLog(None, FLOW)  # type: ignore[arg-type]
    log._log = Topic(pairs)  # type: ignore[assignment]
    log.catch_up()
    return log


def pair(position: Position | None) -> tuple[bytes, bytes | None]:
    return key_of("us", TP), None if position is None else encode(position)


def compacted(pairs: Pairs) -> Pairs:
    """The last record of each key, in order."""
    return [one for n, one in enumerate(pairs) if one[0] not in {key for key, _ in pairs[n + 1 :]}]


def changed(to: Position | None) -> Pairs:
    """A topic in which an operator has set the position."""
    pairs = [pair(OLD)]
    log_of(pairs).set_by_hand({TP: to})
    return pairs


@pytest.mark.parametrize("to", [Position(0), Position(500), None])
@pytest.mark.parametrize("compacts", [False, True])
def test_a_position_of_a_task_that_slept_does_not_undo_what_an_operator_set(
    to: Position | None, compacts: bool
) -> None:
    pairs = [*changed(to), pair(SLEPT), pair(SLEPT)]
    assert log_of(compacted(pairs) if compacts else pairs).known.get(TP) == to


def test_a_reader_that_was_there_all_the_time_sees_the_same() -> None:
    pairs: Pairs = [pair(OLD)]
    reader = log_of(pairs)
    log_of(pairs).set_by_hand({TP: Position(0)})
    for more, known in (([], Position(0)), ([pair(SLEPT)], Position(0)), ([pair(NEW), pair(SLEPT)], NEW)):
        pairs += more
        assert reader.catch_up()[TP] == known


def test_the_next_claim_counts_and_goes_on() -> None:
    pairs = [*changed(Position(0)), pair(SLEPT), pair(NEW), pair(SLEPT), pair(Position(9, 8, 0, 9))]
    assert log_of(pairs).known[TP] == Position(9, 8, 0, 9)
    assert log_of(compacted(pairs)).known[TP] == Position(9, 8, 0, 9)


@pytest.mark.parametrize("counts", [Position(9, 8, 0, 9), Position(700)])
def test_a_void_position_is_not_left_as_the_last_of_its_key(counts: Position) -> None:
    """Compaction would leave it, and the fence, of a copy that has begun long ago: all of it would be copied again."""
    pairs = [*changed(Position(0)), pair(NEW), pair(counts), pair(SLEPT)]
    for _ in range(2):
        log_of(pairs).repair()
        assert log_of(pairs).known.get(TP) == counts
        assert log_of(compacted(pairs)).known.get(TP) == counts
    assert len(pairs) == 7, "once"


def test_nothing_is_written_where_the_fence_says_the_same() -> None:
    pairs = [*changed(Position(0)), pair(SLEPT)]
    before = list(pairs)
    log_of(pairs).repair()
    assert pairs == before


def test_a_second_change_keeps_the_first_ones_fence() -> None:
    pairs = changed(Position(0))
    log_of(pairs).set_by_hand({TP: Position(300)})
    pairs.append(pair(SLEPT))
    assert log_of(pairs).known[TP] == Position(300)
    assert log_of(compacted(pairs)).known[TP] == Position(300)


def test_all_producer_ids_of_a_divided_partition_end() -> None:
    divided = join([Position(10, 7, 0, 5), Position(12, 9, 0, 5)])
    pairs: Pairs = [pair(divided)]
    log_of(pairs).set_by_hand({TP: Position(3)})
    pairs += [pair(join([Position(11, 7, 0, 6), Position(12, 9, 0, 5)])), pair(Position(12, 9, 0, 6))]
    assert log_of(pairs).known[TP] == Position(3)


def test_a_fence_whose_change_is_missing_counts_as_the_change() -> None:
    """The batch has both; a copy of the topic that was cut may not."""
    assert log_of(changed(Position(40))[:2]).known[TP] == Position(40)


def test_a_fence_alone_brings_no_position_back() -> None:
    pairs = [*changed(Position(40)), pair(None)]  # forgotten later, by MM2 or Connect
    assert TP not in log_of(pairs).known
    assert TP not in log_of(compacted(pairs)[:1]).known


def test_no_fence_where_no_producer_id_was_claimed() -> None:
    pairs: Pairs = [pair(Position(10))]
    log_of(pairs).set_by_hand({TP: Position(3)})
    assert pairs == [pair(Position(10)), pair(Position(3))]


def test_other_readers_pass_fences_over() -> None:
    key = changed(Position(0))[1][0]
    assert NAME.encode() in key
    assert partition_of_key(key, "us") is None
    assert is_for_others(key, "us")


@pytest.mark.parametrize(
    "value",
    [None, b"", b"[]", b"{}", b'{"voids": 3, "position": null}', b'{"voids": [7], "position": "x"}', b'{"voids": [7]}'],
)
def test_nonsense_is_no_fence(value: bytes | None) -> None:
    key = changed(Position(0))[1][0]
    fences = Fences("us", ("MirrorSourceConnector",))
    fences.hear(key, value, {})
    assert not fences.voids(TP, OLD)

from hypothesis import given
from hypothesis import strategies as st

from heliograph.flow.plan import TOLERANCE, deal, task_count
from heliograph.types import TopicPartition

PARTITIONS = [TopicPartition("t", i) for i in range(12)]


def test_tasks_follow_the_file_then_the_cores_and_never_exceed_partitions():
    assert task_count(100, None, 8) == 4
    assert task_count(100, None, 1) == 1
    assert task_count(100, 3, 8) == 3
    assert task_count(2, 10, 8) == 2
    assert task_count(0, None, 8) == 1


@given(
    st.dictionaries(st.sampled_from(PARTITIONS), st.floats(0, 1e9), max_size=12),
    st.integers(1, 6),
    st.lists(st.lists(st.sampled_from(PARTITIONS), max_size=6), max_size=6),
)
def test_every_partition_is_dealt_once_whatever_was_before(rates, tasks, previous):
    shares = deal(sorted(rates), tasks, rates, previous)
    assert sorted(tp for share in shares for tp in share) == sorted(rates)
    assert len(shares) == min(tasks, len(rates))


def test_nothing_moves_while_the_load_is_even():
    rates = dict.fromkeys(PARTITIONS, 1e6)
    first = deal(PARTITIONS, 3, rates)
    assert deal(PARTITIONS, 3, {tp: 1e6 * (1 + i / 100) for i, tp in enumerate(PARTITIONS)}, first) == first


def test_a_new_partition_moves_no_other():
    rates = dict.fromkeys(PARTITIONS, 1e6)
    first = deal(PARTITIONS[:11], 3, rates)
    second = deal(PARTITIONS, 3, rates, first)
    assert all(set(before) <= set(after) for before, after in zip(first, second, strict=True))


def test_a_heavy_partition_gets_company_moved_away():
    rates = dict.fromkeys(PARTITIONS, 1000000.0) | {PARTITIONS[0]: 50e6}
    shares = deal(PARTITIONS, 3, rates, [PARTITIONS[:4], PARTITIONS[4:8], PARTITIONS[8:]])
    with_heavy = next(share for share in shares if PARTITIONS[0] in share)
    assert with_heavy == [PARTITIONS[0]]


@given(st.lists(st.floats(0, 1e8), min_size=4, max_size=12), st.integers(1, 4))
def test_no_task_is_much_heavier_than_it_must_be(rates, tasks):
    partitions = PARTITIONS[: len(rates)]
    weight = {tp: rate + 1024 for tp, rate in zip(partitions, rates, strict=True)}
    shares = deal(partitions, tasks, dict(zip(partitions, rates, strict=True)))
    mean = sum(weight.values()) / tasks
    assert max(sum(weight[tp] for tp in share) for share in shares) <= TOLERANCE * mean + max(weight.values())

from heliograph.flow.tally import Tally
from heliograph.mirror.protocol import Report, partition_report
from heliograph.types import TopicPartition


def lane(partition=0, *, records, next_offset, end, state="flowing", reason="", **more):
    base = dict.fromkeys(("bytes", "batches", "skipped", "retries", "resyncs", "repeated", "lost"), 0)
    return {**base, "topic": "t", "partition": partition, "records": records, "next": next_offset, "end": end,
            "state": state, "reason": reason, "fix": "", **more}  # fmt: skip


def report(*rows):
    return Report([partition_report(row) for row in rows])


def test_counters_run_on_over_epochs_and_attempts():
    tally = Tally()
    tally.add((1, 0, 0), report(lane(records=10, next_offset=10, end=100)))
    tally.add((1, 0, 0), report(lane(records=30, next_offset=30, end=100)))
    tally.add((1, 0, 1), report(lane(records=5, next_offset=35, end=100)))
    tally.add((2, 0, 0), report(lane(records=65, next_offset=100, end=100)))
    assert tally.total("records") == 100
    assert tally.lag({TopicPartition("t", 0)}) == 0


def test_lag_is_unknown_until_every_partition_was_heard_of():
    tally = Tally()
    both = {TopicPartition("t", 0), TopicPartition("t", 1)}
    tally.add((1, 0, 0), report(lane(records=0, next_offset=0, end=7)))
    assert tally.lag(both) is None
    tally.add((1, 0, 0), report(lane(1, records=0, next_offset=2, end=5)))
    assert tally.lag(both) == 10


def test_what_is_parked_says_why_until_it_moves_again():
    tally = Tally()
    tally.add((1, 0, 0), report(lane(records=0, next_offset=0, end=7, state="parked", reason="no permission")))
    assert [(p.topic, p.partition, p.reason) for p in tally.parked()] == [("t", 0, "no permission")]
    tally.add((1, 0, 0), report(lane(records=7, next_offset=7, end=7)))
    assert tally.parked() == ()


def test_a_last_report_of_a_forgotten_partition_is_not_counted_again():
    tally = Tally()
    tp = TopicPartition("t", 0)
    tally.add((1, 0, 0), report(lane(records=250, next_offset=250, end=250)))
    tally.forget({tp})
    assert tally.lag({tp}) is None
    tally.add((1, 0, 0), report(lane(records=250, next_offset=250, end=250)))
    assert tally.total("records") == 250


def test_a_query_that_starts_again_counts_its_epochs_anew():
    tally = Tally()
    tally.add((1, 0, 0), report(lane(records=250, next_offset=250, end=250)))
    tally.add((1, 0, 0), report(lane(records=10, next_offset=260, end=260)))
    assert tally.total("records") == 260


def test_one_that_hands_over_may_have_the_last_word():
    tally = Tally()
    tally.add((1, 0, 0), report(lane(records=10, next_offset=10, end=100)))
    tally.add((2, 0, 0), report(lane(records=0, next_offset=10, end=100)))
    tally.add((1, 0, 0), report(lane(records=20, next_offset=20, end=100)))
    tally.add((2, 0, 0), report(lane(records=80, next_offset=100, end=100)))
    assert tally.total("records") == 100

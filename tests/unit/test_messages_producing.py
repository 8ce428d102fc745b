"""Sample events: the same for the same seed to the byte, at the rate, each once, in batches that the topic takes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import pytest

from heliograph.batch import Record, decode_all
from heliograph.batch.codec import LZ4
from heliograph.errors import BrokerError, ConfigError
from heliograph.messages import producing
from heliograph.messages.producing import Order, Sender, batches, partition_of
from heliograph.messages.sample import Event, Recipe, event
from heliograph.types import TopicPartition
from heliograph.wire import NewTopic
from tests.unit.logs import Logs


def content(logs: Logs, partition: int = 0) -> list[Record]:
    data = b"".join(logs.logs[TopicPartition("t", partition)].batches)
    return [record for record, _ in decode_all(data) if record is not None]


# ---------------------------------------------------------------- events


def digest(recipe: Recipe, count: int = 300) -> str:
    made = hashlib.sha256()
    for number in range(count):
        made.update(repr(event(recipe, number)).encode())
    return made.hexdigest()[:16]


def test_a_seeds_events_are_the_same_for_ever() -> None:
    """If this fails, an upgrade would make other events of the same seed: say so in the changelog."""
    assert digest(Recipe()) == "75ba4d817ebfec0a"
    assert digest(Recipe(7, (10, 3000), 10, 3, (("h", b"x"),), "text", 0.1)) == "4025f3e9dfbc38ff"
    assert digest(Recipe(7, (0, 100_000), 0, 0, (), "binary")) == "2474e369f86ef419"


def test_another_seed_or_number_is_another_event() -> None:
    assert event(Recipe(1), 5) != event(Recipe(2), 5)
    assert len({event(Recipe(), number).value for number in range(2000)}) == 2000


@pytest.mark.parametrize("shape", ["json", "text", "binary"])
@pytest.mark.parametrize("size", [0, 1, 20, 21, 60, 100, 101, 5000, 200_000])
def test_sizes_are_kept_to_the_byte(shape: str, size: int) -> None:
    value = event(Recipe(sizes=(size, size), shape=shape), 123_456).value  # type: ignore[arg-type]
    assert value is not None
    shortest = len(b'{"event":123456}') if shape == "json" else 0
    assert len(value) == max(size, shortest)
    if shape == "json":
        assert json.loads(value)["event"] == 123_456


def test_sizes_within_bounds_both_included() -> None:
    sizes = Counter(len(event(Recipe(sizes=(90, 92)), n).value or b"") for n in range(300))
    assert set(sizes) == {90, 91, 92}


def test_keys_come_back_in_uneven_shares() -> None:
    keys = Counter(event(Recipe(keys=20), n).key for n in range(4000))
    assert set(keys) == {b"customer-%d" % n for n in range(20)}
    assert keys[b"customer-0"] > 5 * keys[b"customer-19"] > 0
    assert {event(Recipe(keys=0), n).key for n in range(50)} == {None}


def test_headers_own_and_made_up_and_tombstones() -> None:
    own = (("trace", b"1"), ("trace", b"2"))
    headers = event(Recipe(headers=2, own_headers=own), 1).headers
    assert headers[:2] == own
    assert [name for name, _ in headers[2:]] == ["header-0", "header-1"]
    gone = sum(event(Recipe(tombstones=0.25), n).value is None for n in range(4000))
    assert 800 < gone < 1200
    assert all(event(Recipe(tombstones=1.0), n).value is None for n in range(50))


# ---------------------------------------------------------------- sending


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= producing.TICK_S
        self.now_s += seconds


def run(
    logs: Logs, order: Order, recipe: Recipe | None = None, partitions: int = 1, clock: Clock | None = None
) -> Sender:
    sender = Sender(logs, "t", LZ4)
    clock = clock or Clock()
    producing.run(sender, partitions, recipe or Recipe(), order, clock=clock, sleep=clock.sleep)
    return sender


def test_all_of_them_once_and_in_order() -> None:
    logs = Logs({"t": 3})
    sender = run(logs, Order(12_345), partitions=3)
    found = [record for partition in range(3) for record in content(logs, partition)]
    assert len(found) == sender.sent.events == 12_345
    numbers = [json.loads(record.value or b"")["event"] for record in found]
    assert sorted(numbers) == list(range(12_345))
    for partition in range(3):
        mine = [json.loads(record.value or b"")["event"] for record in content(logs, partition)]
        assert mine == sorted(mine)
        assert sender.sent.offsets[partition] == (0, len(mine))


def test_sequences_follow_one_another_in_each_partition() -> None:
    logs = Logs({"t": 2})
    run(logs, Order(12_000), partitions=2)
    expected: dict[int, int] = {}
    for tp, log in logs.logs.items():
        for batch in log.batches:
            from heliograph.batch import Header

            head = Header.parse(batch)
            assert (head.producer_id, head.producer_epoch, head.codec) == (7000, 0, LZ4)
            assert head.base_sequence == expected.get(tp.partition, 0)
            expected[tp.partition] = head.base_sequence + head.count


def test_keys_go_where_kafkas_partitioner_puts_them_and_none_in_turns() -> None:
    assert partition_of(b"foo", 0, 6, None) == 2  # as Java's and librdkafka's murmur2 partitioner
    assert [partition_of(None, n, 3, None) for n in range(5)] == [0, 1, 2, 0, 1]
    assert partition_of(b"foo", 0, 6, 4) == 4


def test_the_rate_is_held() -> None:
    logs, clock = Logs({"t": 1}), Clock()
    run(logs, Order(1000, per_s=500), clock=clock)
    assert 1.9 < clock.now_s - 100.0 <= 2.0
    assert len(logs.produced) > 20  # as they are due, not in one go


def test_less_than_one_a_second() -> None:
    logs, clock = Logs({"t": 1}), Clock()
    run(logs, Order(3, per_s=0.5), clock=clock)
    assert 3.9 < clock.now_s - 100.0 <= 4.1


def test_times_of_a_history() -> None:
    logs = Logs({"t": 1})
    run(logs, Order(4, from_ms=1_000_000, step_ms=250))
    assert [record.timestamp for record in content(logs)] == [1_000_000, 1_000_250, 1_000_500, 1_000_750]


def test_going_on_where_the_last_call_ended_is_the_same_as_one_call() -> None:
    once, twice = Logs({"t": 1}), Logs({"t": 1})
    run(once, Order(50))
    run(twice, Order(20))
    run(twice, Order(30, first=20))
    assert [record.value for record in content(once)] == [record.value for record in content(twice)]


def test_a_batch_that_is_too_large_goes_in_parts_and_one_event_that_is_is_an_error() -> None:
    logs = Logs({"t": 1})
    logs.most_bytes = 1500
    run(logs, Order(200), Recipe(sizes=(300, 300), shape="binary"))
    assert len(content(logs)) == 200
    assert logs.refused < 15  # what did not fit once is not tried again
    assert [head.base_sequence for head in logs.produced] == [
        sum(head.count for head in logs.produced[:n]) for n in range(len(logs.produced))
    ]
    with pytest.raises(BrokerError, match=r"MESSAGE_TOO_LARGE \(cluster us, topic t, partition 0\)"):
        run(logs, Order(1), Recipe(sizes=(5000, 5000), shape="binary"))


def test_what_was_sent_before_an_error_is_counted() -> None:
    logs = Logs({"t": 1})
    sender = Sender(logs, "t")
    sender.send(0, [Record(0, 1, b"k", b"v")])
    logs.troubles.append(BrokerError(87, "INVALID_RECORD", "no key"))
    with pytest.raises(BrokerError):
        sender.send(0, [Record(0, 1, None, b"v")])
    assert (sender.sent.events, sender.sent.bytes, sender.sent.offsets) == (1, 2, {0: (0, 1)})


def test_batches_are_bounded_in_records_and_bytes() -> None:
    small = [Record(0, 1, None, b"x")] * 12_000
    assert [len(batch) for batch in batches(small)] == [5000, 5000, 2000]
    large = [Record(0, 1, None, b"x" * (200 << 10))] * 5
    assert [len(batch) for batch in batches(large)] == [2, 2, 1]
    assert [len(batch) for batch in batches([Record(0, 1, None, b"x" * (2 << 20))] * 2)] == [1, 1]
    assert batches([]) == []


def test_large_events_are_not_all_made_before_they_are_sent() -> None:
    logs = Logs({"t": 1})
    logs.most_bytes = 10 << 20
    made: list[int] = []
    sender = Sender(logs, "t")
    recipe = Recipe(sizes=(1 << 20, 1 << 20), shape="binary")
    producing.run(sender, 1, recipe, Order(12), tick=lambda: made.append(sender.sent.events))
    assert made == [4, 8, 12]


def test_an_event_is_what_is_sent() -> None:
    logs = Logs({"t": 1})
    recipe = Recipe(3, (50, 500), 5, 2, (("h", b"x"),), "text", 0.2)
    run(logs, Order(100), recipe)
    assert [Event(one.key, one.value, one.headers) for one in content(logs)] == [event(recipe, n) for n in range(100)]


def test_a_topic_is_made_once_and_refusals_are_told() -> None:
    logs = Logs()
    assert producing.make_topic(logs, NewTopic("t", 2)) is True
    assert producing.make_topic(logs, NewTopic("t", 2)) is False

    class Refusing(Logs):
        def create_topics(self, specs, **_more):  # type: ignore[no-untyped-def,override]
            return {spec.name: BrokerError(38, "INVALID_REPLICATION_FACTOR", "5 > 1") for spec in specs}

    with pytest.raises(ConfigError, match="t cannot be made on us: INVALID_REPLICATION_FACTOR"):
        producing.make_topic(Refusing(), NewTopic("t", 2, 5))

"""Several partitions as one row: where it begins and ends, what comes first, the last ones, and those still to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from heliograph.batch import Record
from heliograph.errors import BrokerError, ConfigError, ConnectionLost, Unreachable
from heliograph.messages import course, extent
from heliograph.messages.course import Follower
from heliograph.messages.extent import LATE_MS, Span
from heliograph.messages.reading import Message, Reader, Watch
from heliograph.types import StartPoint, TopicPartition
from heliograph.wire import broker_error
from heliograph.wire.codes import LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED
from tests.unit.logs import Logs


def filled(times: Sequence[Sequence[int]]) -> Logs:
    """A topic `t`: of each partition a message at each time, each in a batch of its own."""
    logs = Logs({"t": len(times)})
    for partition, of_one in enumerate(times):
        for n, time_ms in enumerate(of_one):
            logs.append("t", [Record(n, time_ms, None, b"%d/%d" % (partition, n))], partition)
    return logs


def everything(message: Message) -> bool:
    return True


def spans_of(logs: Logs) -> dict[int, Span]:
    return extent.logs(logs, "t", range(len(logs.logs)), "read_committed", print)


def places(messages: Sequence[Message]) -> list[tuple[int, int]]:
    return [(one.partition, one.offset) for one in messages]


# ---------------------------------------------------------------- merging


def test_the_oldest_of_all_partitions_comes_first() -> None:
    logs = filled([[10, 30, 50], [20, 40], []])
    found = list(course.bounded(Reader(logs, "t"), spans_of(logs), everything))
    assert [one.timestamp_ms for one in found] == [10, 20, 30, 40, 50]


def test_a_partition_keeps_its_order_whatever_its_times_say() -> None:
    logs = filled([[50, 10, 20], [30, 40]])
    found = list(course.bounded(Reader(logs, "t"), spans_of(logs), everything))
    assert [one.offset for one in found if one.partition == 0] == [0, 1, 2]
    assert [one.offset for one in found if one.partition == 1] == [0, 1]
    assert places(found)[0] == (1, 0)


def test_no_more_is_fetched_than_is_shown() -> None:
    logs = filled([list(range(100)), list(range(100))])
    row = course.bounded(Reader(logs, "t", fetch_bytes=1), spans_of(logs), everything)
    assert [next(row).timestamp_ms for _ in range(4)] == [0, 0, 1, 1]
    assert len(logs.fetches) <= 6


# ---------------------------------------------------------------- the last


def test_the_last_ones_of_all_by_time() -> None:
    logs = filled([[10, 30, 50], [20, 40, 60]])
    found = course.last(Reader(logs, "t"), spans_of(logs), 3, everything)
    assert [one.timestamp_ms for one in found] == [40, 50, 60]


def test_the_last_ones_are_messages_not_offsets() -> None:
    logs = Logs({"t": 1})
    for n in range(20):  # every offset but the hundredth is gone
        logs.append("t", [Record(n * 100, n, None, b"")], last_offset_delta=99)
    found = course.last(Reader(logs, "t"), spans_of(logs), 12, everything)
    assert [one.offset for one in found] == [n * 100 for n in range(8, 20)]


def test_the_last_ones_that_are_wanted_lie_as_far_back_as_they_do() -> None:
    logs = filled([list(range(6000))])
    found = course.last(Reader(logs, "t"), spans_of(logs), 2, lambda one: one.offset in (3, 17, 30))
    assert [one.offset for one in found] == [17, 30]


def test_a_look_at_the_end_does_not_read_the_beginning() -> None:
    logs = filled([list(range(3000))])
    course.last(Reader(logs, "t"), spans_of(logs), 5, everything)
    assert min(offset for _, offset in logs.fetches) >= 2500


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, [2]), (99, [0, 1, 2])])
def test_none_one_and_more_than_there_are(count: int, expected: list[int]) -> None:
    logs = filled([[1, 2, 3]])
    found = course.last(Reader(logs, "t"), spans_of(logs), count, everything)
    assert [one.offset for one in found] == expected


# ---------------------------------------------------------------- where


def test_beginnings_and_ends() -> None:
    logs = filled([[10, 20, 30, 40], [15, 25]])
    logs.logs[TopicPartition("t", 0)].start = 1
    held = spans_of(logs)
    said: list[str] = []

    def begin(point: StartPoint) -> dict[int, int]:
        return extent.begin(logs, "t", held, point, said.append)

    assert begin(StartPoint("earliest")) == {0: 1, 1: 0}
    assert begin(StartPoint("latest")) == {0: 4, 1: 2}
    assert begin(StartPoint("timestamp", 25)) == {0: 2, 1: 1}
    assert begin(StartPoint("timestamp", 99)) == {0: 4, 1: 2}
    assert begin(StartPoint("offset", 3)) == {0: 3, 1: 2}
    assert not said
    assert begin(StartPoint("offset", 0)) == {0: 1, 1: 0}
    assert said == ["t: partition 0 begins only at offset 1"]
    assert extent.finish(logs, "t", held, None) == {0: 4, 1: 2}
    assert extent.finish(logs, "t", held, StartPoint("offset", 2)) == {0: 2, 1: 2}
    assert extent.finish(logs, "t", held, StartPoint("latest")) == {0: 4, 1: 2}


def test_an_offset_that_no_partition_has_is_told_with_where_they_end() -> None:
    logs = filled([[10, 20], [15]])
    with pytest.raises(ConfigError, match="t on us has no offset 7: it ends before 2"):
        extent.begin(logs, "t", spans_of(logs), StartPoint("offset", 7), print)


def test_until_a_time_looks_an_hour_further_for_what_came_late() -> None:
    logs = filled([[10, 50, 20, 10 + LATE_MS + 100, 30]])
    held = spans_of(logs)
    assert extent.finish(logs, "t", held, StartPoint("timestamp", 40)) == {0: 3}
    assert extent.finish(logs, "t", held, StartPoint("timestamp", LATE_MS * 9)) == {0: 5}


def test_partitions_are_those_that_are_wanted_and_there() -> None:
    logs = Logs({"orders": 3, "order-items": 1})
    assert extent.partitions(logs, "orders") == [0, 1, 2]
    assert extent.partitions(logs, "orders", [2, 1, 2]) == [1, 2]
    with pytest.raises(ConfigError, match=r"orders on us has no partition 3, 7: it has partitions 0 to 2"):
        extent.partitions(logs, "orders", [1, 3, 7])
    with pytest.raises(ConfigError, match=r"order-items on us has no partition 1: it has only partition 0"):
        extent.partitions(logs, "order-items", [1])


def test_a_topic_that_we_may_not_see_is_told_with_the_permission_it_takes() -> None:
    class Guarded(Logs):
        def metadata(self, topics=None, **_more):  # type: ignore[no-untyped-def]
            found = super().metadata(topics)
            denied = {name: replace(topic, error=TOPIC_AUTHORIZATION_FAILED) for name, topic in found.topics.items()}
            return replace(found, topics=denied)

    with pytest.raises(BrokerError, match=r"TOPIC_AUTHORIZATION_FAILED \(cluster us, topic t\).*READ and DESCRIBE"):
        extent.partitions(Guarded({"t": 1}), "t")


def test_a_topic_that_is_not_there_is_told_with_its_neighbours() -> None:
    logs = Logs({"orders": 1, "us.payments.internal": 1})
    with pytest.raises(ConfigError, match=r"us has no topic 'ordrs'.*did you mean orders\?"):
        extent.partitions(logs, "ordrs")
    with pytest.raises(ConfigError, match=r"did you mean us\.payments\.internal\?"):
        extent.partitions(logs, "payments")
    with pytest.raises(ConfigError, match=r"it shows 2 topics\. --create"):
        extent.partitions(logs, "zzz", otherwise=" --create makes it")


def test_a_partition_that_nobody_leads_is_left_out_and_all_of_them_are_an_error() -> None:
    class Headless(Logs):
        away: tuple[int, ...] = ()

        def list_offsets(self, tps, **how):  # type: ignore[no-untyped-def]
            found = super().list_offsets(tps, **how)
            gone = {tp: broker_error(LEADER_NOT_AVAILABLE, topic="t", partition=tp.partition) for tp in found}
            return {tp: gone[tp] if tp.partition in self.away else offset for tp, offset in found.items()}

    logs = Headless({"t": 3})
    logs.away = (1,)
    said: list[str] = []
    assert extent.logs(logs, "t", range(3), "read_committed", said.append) == {0: Span(0, 0), 2: Span(0, 0)}
    assert len(said) == 1
    assert said[0].startswith("t-1 is left out, it cannot be asked now: LEADER_NOT_AVAILABLE")
    following = Follower(Reader(logs, "t"), {0: 0, 1: course.UNSEEN, 2: 0}, everything)
    logs.append("t", [Record(0, 1, None, b"before anybody could ask")], 1)
    assert following.look(50.0) == []
    logs.away = ()
    assert following.look(51.0) == []
    logs.append("t", [Record(1, 1, None, b"then")], 1)
    assert [one.value for one in following.look(52.0)] == [b"then"]
    logs.away = (0, 1, 2)
    with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE"):
        extent.logs(logs, "t", range(3), "read_committed", said.append)


# ---------------------------------------------------------------- following


def follower(logs: Logs, said: list[str] | None = None, **more: object) -> Follower:
    reader = Reader(logs, "t", watch=Watch((said if said is not None else []).append))
    ends = {number: span.end for number, span in spans_of(logs).items()}
    return Follower(reader, ends, everything, topic_id=logs.ids["t"], **more)  # type: ignore[arg-type]


def test_what_is_new_since_the_last_look() -> None:
    logs = filled([[1], [2]])
    following = follower(logs)
    assert following.look(10.0) == []
    logs.append("t", [Record(1, 30, None, b"a")])
    logs.append("t", [Record(1, 20, None, b"b")], 1)
    assert [one.value for one in following.look(10.1)] == [b"b", b"a"]
    assert following.look(10.2) == []


def test_partitions_that_are_added_are_followed_from_their_beginning() -> None:
    logs = filled([[1]])
    following = follower(logs)
    following.look(10.0)
    logs.logs[TopicPartition("t", 1)] = type(logs.logs[TopicPartition("t", 0)])()
    logs.append("t", [Record(0, 5, None, b"new")], 1)
    assert following.look(11.0) == []  # not looked for all the time
    assert [one.value for one in following.look(15.1)] == [b"new"]


def test_chosen_partitions_do_not_grow() -> None:
    logs = filled([[1], [2]])
    reader = Reader(logs, "t")
    following = Follower(reader, {0: 1}, everything, grows=False)
    logs.append("t", [Record(1, 9, None, b"other")], 1)
    assert following.look(100.0) == []


def test_up_to_an_offset_it_is_done() -> None:
    logs = filled([[1, 2]])
    following = follower(logs, until={0: 3})
    assert not following.done
    logs.append("t", [Record(2 + n, 9, None, b"%d" % n) for n in range(4)])
    assert [one.offset for one in following.look(1.0)] == [2]
    assert following.done


def test_a_topic_made_anew_is_followed_from_its_beginning_and_one_that_was_cut_from_its_end() -> None:
    said: list[str] = []
    logs = filled([[1, 2, 3]])
    following = follower(logs, said)
    log = logs.logs[TopicPartition("t", 0)]
    log.batches, log.end = log.batches[:2], 2
    assert following.look(1.0) == []
    assert "ends at 2, not 3; it was cut" in said[0]
    logs.append("t", [Record(2, 9, None, b"again")])
    assert [one.value for one in following.look(1.1)] == [b"again"]
    logs.make("t")
    logs.append("t", [Record(0, 9, None, b"anew")])
    assert [one.value for one in following.look(1.2)] == [b"anew"]
    assert "made anew" in said[1]


def test_a_cluster_that_is_away_is_waited_for_and_nothing_is_missed() -> None:
    class Shaky(Logs):
        answers = True

        def list_offsets(self, tps, **how):  # type: ignore[no-untyped-def]
            if not self.answers:
                raise Unreachable("us: no broker can be reached")
            return super().list_offsets(tps, **how)

        def fetch(self, tp, offset, **how):  # type: ignore[no-untyped-def]
            if tp.partition == 1 and not self.logs[tp].start:
                self.logs[tp].start = 1
                raise ConnectionLost("in the middle")
            return super().fetch(tp, offset, **how)

    logs = Shaky({"t": 2})
    said: list[str] = []
    following = follower(logs, said)
    logs.answers = False
    assert following.look(100.0) == []
    assert said == ["t on us cannot be asked now, still trying: us: no broker can be reached"]
    logs.answers = True
    for partition in (0, 1):
        logs.append("t", [Record(0, 9, None, b"x")], partition)
        logs.append("t", [Record(1, 9, None, b"%d" % partition)], partition)
    assert [one.value for one in following.look(101.0)] == [b"x", b"0"]  # what came of one is not lost with the other
    following.at[1] = 1
    assert [one.value for one in following.look(101.1)] == [b"1"]
    assert "t-1 cannot be asked now" in said[1]


def test_a_leader_that_is_away_is_waited_for_and_a_topic_that_is_gone_is_not() -> None:
    class Shaky(Logs):
        away = False

        def list_offsets(self, tps, **how):  # type: ignore[no-untyped-def]
            if self.away:
                return {tp: broker_error(LEADER_NOT_AVAILABLE, topic=tp.topic, partition=tp.partition) for tp in tps}
            return super().list_offsets(tps, **how)

    logs = Shaky({"t": 1})
    said: list[str] = []
    following = follower(logs, said, grows=False)
    logs.away = True
    for now_s in (1.0, 1.1, 1.2, 40.0):
        assert following.look(now_s) == []
    assert len(said) == 2  # not at every look
    assert "t-0 cannot be asked now, still trying: LEADER_NOT_AVAILABLE" in said[0]
    logs.away = False
    logs.append("t", [Record(0, 9, None, b"then")])
    assert [one.value for one in following.look(40.5)] == [b"then"]
    logs.logs.clear()
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        following.look(41.0)

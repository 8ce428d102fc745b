"""Records that nobody of us wrote: named once each, in few lines, and changing nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from structlog.typing import EventDict

from heliograph.batch import Record
from heliograph.errors import BrokerError
from heliograph.mirror import offsetmap, positions
from heliograph.mirror.offsetmap import Span, Subject
from heliograph.mirror.positions import Position
from heliograph.state import offsets
from heliograph.state.offsets import OffsetMap
from heliograph.state.positions import PositionsLog
from heliograph.state.strangers import Strangers, ranges
from heliograph.types import Cluster, Flow, TopicPartition

TP = TopicPartition("orders", 0)
FLOW = Flow(Cluster("a"), Cluster("b"))
KEY = positions.key_of("a", TP)


def test_offsets_in_a_row_are_a_range() -> None:
    assert ranges([]) == ""
    assert ranges([7]) == "7"
    assert ranges([3, 4, 5, 9, 11, 12]) == "3-5, 9, 11-12"
    assert ranges(range(0, 1000, 2)).endswith("396, 398, …")


def test_a_line_for_each_partition_and_reason_and_never_again(logs: list[EventDict]) -> None:
    strangers = Strangers("a->b", "t")
    for offset in range(10_000):
        strangers.add(0, offset, "no key")
    strangers.add(1, 5, "no key")
    strangers.tell()
    strangers.tell()
    assert [(line["partition"], line["offsets"], line["records"]) for line in logs] == [
        (0, "0-9999", 10_000),
        (1, "5", 1),
    ]


class Topic:
    """In the place of a compacted log: what was appended and not yet read."""

    def __init__(self) -> None:
        self.news_: list[Record] = []
        self.end = 0

    def write(self, key: bytes | None, value: bytes | None) -> None:
        self.news_.append(Record(self.end, 0, key, value))
        self.end += 1

    def news(self) -> Iterator[tuple[int, Record]]:
        read, self.news_ = self.news_, []
        return iter([(0, record) for record in read])

    def append(self, _partition: int, pairs: Iterable[tuple[bytes, bytes | None]], _now_ms: int = 0) -> None:
        for pair in pairs:
            self.write(*pair)


class Remote:
    """The target: where the copy ends."""

    def __init__(self, end: int | BrokerError) -> None:
        self.end, self.asked = end, 0

    def list_offsets(self, tps: list[TopicPartition], **_: object) -> dict[TopicPartition, int | BrokerError]:
        assert tps == [TopicPartition("a.orders", 0)]
        self.asked += 1
        return dict.fromkeys(tps, self.end)


def positions_log(topic: Any) -> PositionsLog:
    nobody: Any = None
    log = PositionsLog(nobody, FLOW)
    log._log.news, log._log.append = topic.news, topic.append  # type: ignore[method-assign]
    log._log.partitions = 1
    return log


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\x00",
        b'"\xff"',
        b"[" * 100_000,
        b'{"offset":"41"}',
        b'{"offset":-2}',
        b'{"offset":9223372036854775807}',
        b'{"offset":41,"producerId":-3,"producerEpoch":0,"sequence":1}',
        b'{"offset":41,"producerId":1,"producerEpoch":70000,"sequence":1}',
        b'{"offset":41,"producerId":1,"producerEpoch":0,"sequence":1,"targetOffset":99999999999999999999}',
    ],
)
def test_what_cannot_be_read_changes_no_position(value: bytes, logs: list[EventDict]) -> None:
    topic = Topic()
    log = positions_log(topic)
    mine = Position(100, 7, 0, 100, None, 100)
    topic.write(KEY, positions.encode(mine))
    topic.write(KEY, value)
    assert log.catch_up() == {TP: mine}
    [line] = logs
    assert (line["topic"], line["partition"], line["offsets"]) == ("mm2-offsets.a.internal", 0, "1")


def test_keys_of_connects_are_no_strangers_and_others_are(logs: list[EventDict]) -> None:
    topic = Topic()
    log = positions_log(topic)
    topic.write(b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"a","targetClusterAlias":"b"}]', b'{"offset":0}')
    topic.write(positions.key_of("z", TP), b"whatever")
    assert log.catch_up() == {}
    assert logs == []
    for key in (
        None,
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'["MirrorSourceConnector",{"cluster":"a","topic":"orders"}]',
    ):
        topic.write(key, b'{"offset":1}')
    topic.write(b"whatever", None)
    assert log.catch_up() == {}
    assert [line["offsets"] for line in logs] == ["2-8"]


def test_a_position_behind_the_sources_end_is_taken_back(logs: list[EventDict]) -> None:
    topic = Topic()
    log = positions_log(topic)
    mine = Position(100, 7, 0, 100, None, 100)
    topic.write(KEY, positions.encode(mine))
    topic.write(KEY, b'{"offset":4000000}')
    topic.write(KEY, b'{"offset":5000000}')
    assert log.catch_up() == {TP: Position(5_000_001)}
    log.doubt({TP: (120, False)})
    assert log.known == {TP: mine}
    assert [line["offsets"] for line in logs] == ["1-2"]
    assert topic.end == 4  # written again: who reads the topic next finds it last


def test_the_last_position_that_can_be_true_is_gone_back_to_also_when_it_is_mm2s() -> None:
    topic = Topic()
    log = positions_log(topic)
    topic.write(KEY, positions.encode(Position(100, 7, 0, 100, None, 100)))
    for offset in (*range(150, 190, 2), 4_000_000, 5_000_000):  # MM2 went on from ours
        topic.write(KEY, b'{"offset":%d}' % offset)
    log.catch_up()
    log.doubt({TP: (500, False)})
    assert log.known == {TP: Position(189)}
    topic.write(KEY, b'{"offset":49}')  # and an operator went back
    topic.write(KEY, b'{"offset":4000000}')
    log.catch_up()
    log.doubt({TP: (500, False)})
    assert log.known == {TP: Position(50)}


def test_without_one_before_only_an_empty_copy_begins_at_the_beginning() -> None:
    topic = Topic()
    log = positions_log(topic)
    topic.write(KEY, b'{"offset":4000000}')
    log.catch_up()
    log.doubt({TP: (100, False)})
    assert log.known == {TP: Position(4_000_001)}  # MM2 may have been here: a person must say
    log.doubt({TP: (100, True)})
    assert log.known == {}


def offset_map(topic: Any, remote: Any, flow: Flow = FLOW) -> OffsetMap:
    log = OffsetMap(remote, flow)
    log._log.news, log._log.partitions = topic.news, 1  # type: ignore[method-assign]
    return log


def test_a_run_behind_the_copys_end_is_nobodys(logs: list[EventDict]) -> None:
    topic, remote = Topic(), Remote(1000)
    log = offset_map(topic, remote)
    subject, known = Subject(TP, None), {TP: Position(1010, 7, 0, 1000, None, 1000)}
    topic.write(offsetmap.key_of("a", subject, 0), offsetmap.encode([Span(0, 0, 500), Span(510, 500, 1)]))
    log.catch_up()
    for first, span in ((0, Span(0, 10**9, 50)), (20, Span(20, 990, 11)), (2**40, Span(2**40, 2**40, 5))):
        topic.write(offsetmap.key_of("a", subject, first), offsetmap.encode([span]))
    topic.write(offsetmap.key_of("a", subject, 3), b"\xc1")
    topic.write(None, b"\x93\x00\x00\x01")
    log.catch_up()
    assert [log.translate(TP, offset, known) for offset in (20, 505, 700, 2**41)] == [20, 500, 690, 1000]
    assert {(line["why"], line["offsets"]) for line in logs} == {
        ("it is no run of offsets", "4-5"),
        ("a run behind the end of orders-0's copy", "1-3"),
    }


def test_runs_that_can_be_true_ask_nobody_and_a_copy_that_cannot_be_asked_proves_nothing() -> None:
    topic, remote = Topic(), Remote(1000)
    log = offset_map(topic, remote)
    subject, known = Subject(TP, None), {TP: Position(2000, 7, 0, 1500, None, 1500)}
    key = offsetmap.key_of("a", subject, 0)
    for length in (10, 20, 1000):
        topic.write(key, offsetmap.encode([Span(0, 0, length)]))
        log.catch_up()
    assert remote.asked == 1
    remote.end = BrokerError(5, "LEADER_NOT_AVAILABLE")
    topic.write(offsetmap.key_of("a", subject, 1010), offsetmap.encode([Span(1010, 1000, 500)]))
    log.catch_up()
    assert log.translate(TP, 1020, known) == 1010


def test_a_copy_that_is_not_visible_for_a_moment_loses_no_runs(logs: list[EventDict]) -> None:
    topic, remote = Topic(), Remote(200)
    log = offset_map(topic, remote)
    subject, known = Subject(TP, None), {TP: Position(300, 7, 0, 200, None, 200)}
    topic.write(offsetmap.key_of("a", subject, 0), offsetmap.encode([Span(0, 0, 100)]))
    log.catch_up()
    remote.end = BrokerError(3, "UNKNOWN_TOPIC_OR_PARTITION")
    log._ends.clear()
    topic.write(offsetmap.key_of("a", subject, 0), offsetmap.encode([Span(0, 0, 100), Span(200, 100, 100)]))
    log.catch_up()
    log.catch_up()
    remote.end = 200
    log.catch_up()
    assert log.translate(TP, 250, known) == 150
    assert logs == []


def test_where_there_is_no_copy_yet_there_are_no_runs(logs: list[EventDict], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "KEEP_S", 0.0)
    topic, remote = Topic(), Remote(BrokerError(3, "UNKNOWN_TOPIC_OR_PARTITION"))
    log = offset_map(topic, remote)
    subject, known = Subject(TP, None), {TP: Position(100, 7, 0, 100, None, 100)}
    topic.write(offsetmap.key_of("a", subject, 0), offsetmap.encode([Span(0, 50, 10)]))
    log.catch_up()
    remote.end = 100
    topic.write(offsetmap.key_of("a", subject, 0), offsetmap.encode([Span(0, 0, 10)]))
    log.catch_up()
    assert log.translate(TP, 5, known) == 5
    assert [line["offsets"] for line in logs] == ["0"]


def test_who_only_translates_may_call_the_copy_otherwise_than_who_copies(logs: list[EventDict]) -> None:
    """As in the field: a source connector that keeps names, and a checkpoint connector that was told of no policy."""
    topic, remote = Topic(), Remote(BrokerError(3, "UNKNOWN_TOPIC_OR_PARTITION"))
    log = offset_map(topic, remote, replace(FLOW, copies=False))
    subject, known = Subject(TP, None), {TP: Position(100, 7, 0, 100, None, 100)}
    topic.write(offsetmap.key_of("a", subject, 0), offsetmap.encode([Span(0, 50, 10)]))
    log.catch_up()
    assert log.translate(TP, 5, known) == 55
    assert logs == []

"""State topics under a reader: leaders that lag, topics recreated, tails lost, retention, compaction, transactions,
repeats. Each of them once, by name; `tests/property/test_topic_log.py` mixes them."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.typing import EventDict

from heliograph.batch import Record
from heliograph.errors import BrokerError, CorruptBatch
from heliograph.mirror.annals import Annals, quarantine_spec
from heliograph.state.compacted import CompactedLog
from heliograph.topiclog import TopicReader, TopicWriter, reader
from heliograph.types import Factor, TopicPartition
from heliograph.wire.codes import OFFSET_NOT_AVAILABLE, OUT_OF_ORDER_SEQUENCE, broker_error
from tests.unit.brokers import Brokers

TP = TopicPartition("t", 0)


@pytest.fixture
def brokers() -> Any:
    return Brokers(t=1)


@pytest.fixture
def log(brokers: Any) -> CompactedLog:
    log = CompactedLog(brokers, "t")
    log.partitions = 1
    return log


def write(brokers: Any, *keys: str, value: bytes | None = b"v") -> None:
    for key in keys:
        brokers.append(TP, Record(0, 0, key.encode(), value))


def keys(log: CompactedLog) -> list[str]:
    return [(record.key or b"").decode() for _, record in log.news()]


# -- high watermarks


def test_an_empty_fetch_below_the_end_is_not_the_end(brokers: Any, log: CompactedLog) -> None:
    """A new leader has the records, and shows them only once its followers have fetched."""
    write(brokers, "a", "b", "c")
    brokers.logs[TP].lag = [0, 1, 1]
    assert keys(log) == ["a", "b", "c"]


def test_a_leader_that_lags_for_too_long_is_named_and_nothing_is_skipped(
    brokers: Any, log: CompactedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WAIT_S", 0.0)
    write(brokers, "a", "b", "c")
    brokers.logs[TP].lag = [1, 1]
    read = log.news()
    assert next(read)[1].key == b"a"
    with pytest.raises(BrokerError) as caught:
        next(read)
    assert caught.value.code == OFFSET_NOT_AVAILABLE
    assert caught.value.retriable
    assert (caught.value.context["topic"], caught.value.context["partition"], caught.value.context["offset"]) == (
        *TP,
        1,
    )
    assert keys(log) == ["b", "c"]


def test_incidents_and_quarantine_are_read_by_the_same_rule(brokers: Any) -> None:
    annals = Annals(brokers, quarantine_spec("t", Factor(1)))
    write(brokers, "a")
    brokers.logs[TP].lag = [0]
    assert [record.key for record in annals.news()] == [b"a"]


def test_a_tail_that_compaction_took_is_the_end(brokers: Any, log: CompactedLog) -> None:
    write(brokers, "a")
    write(brokers, "b", value=None)
    brokers.compact(TP, below=2, tombstones=True)
    assert brokers.logs[TP].end == 2
    assert keys(log) == ["a"]
    write(brokers, "c")
    assert keys(log) == ["c"]


# -- not the topic, or not the records, that were read


def test_a_recreated_topic_is_read_from_its_start(brokers: Any, log: CompactedLog) -> None:
    write(brokers, "a", "b")
    assert keys(log) == ["a", "b"]
    brokers.make("t")
    write(brokers, "x", "y", "z")  # it has grown beyond what was read before anybody looked
    refolds: list[str] = []
    log.on_refold = lambda: refolds.append("begun")
    assert keys(log) == ["x", "y", "z"]
    assert refolds == ["begun"]
    assert keys(log) == []


def test_a_topic_that_is_recreated_while_it_is_read_is_not_mixed_with_its_old_self(
    brokers: Any, log: CompactedLog
) -> None:
    write(brokers, *"abcdef")
    found: list[str] = []
    log.on_refold = found.clear
    for _, record in log.news():
        found.append((record.key or b"").decode())
        if record.key == b"b":
            brokers.make("t")
            write(brokers, *"uvwxyz")
    assert found == [*"uvwxyz"]


def test_a_lost_tail_is_seen_by_the_end(brokers: Any, log: CompactedLog) -> None:
    write(brokers, *"abcdef")
    keys(log)
    brokers.truncate(TP, 3)
    write(brokers, "x")
    assert keys(log) == ["a", "b", "c", "x"]


def test_a_lost_tail_that_has_grown_again_is_seen_by_the_leader_epoch(brokers: Any, log: CompactedLog) -> None:
    write(brokers, *"abc")
    keys(log)
    brokers.truncate(TP, 1)
    write(brokers, *"xyz")
    assert keys(log) == ["a", "x", "y", "z"]


def test_a_lost_tail_is_seen_also_when_the_read_before_it_ended_halfway(
    brokers: Any, log: CompactedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had read of the old log was in no epoch, and the new one was read from the middle on."""
    monkeypatch.setattr(reader, "WAIT_S", 0.0)
    write(brokers, "a")
    write(brokers, "b")
    brokers.logs[TP].lag = [1, 1]
    with pytest.raises(BrokerError, match="OFFSET_NOT_AVAILABLE"):
        keys(log)
    brokers.logs[TP].lag.clear()
    brokers.truncate(TP, 0)
    write(brokers, *"xyz")
    assert keys(log) == ["x", "y", "z"]


def test_a_new_leader_that_lost_nothing_costs_no_second_read(brokers: Any, log: CompactedLog) -> None:
    write(brokers, *"abc")
    keys(log)
    brokers.elect(TP)
    write(brokers, "d")
    assert keys(log) == ["d"]


def test_records_that_retention_took_unread_are_a_new_beginning(brokers: Any, log: CompactedLog) -> None:
    write(brokers, *"ab")
    keys(log)
    write(brokers, *"cdef")
    brokers.delete_records(TP, 4)
    assert keys(log) == ["e", "f"]
    assert [record.key for _, record in TopicReader(brokers, "t").read()] == [b"e", b"f"]


def test_a_topic_that_is_recreated_for_ever_is_an_error(brokers: Any, log: CompactedLog) -> None:
    write(brokers, "a")
    keys(log)

    def again() -> None:
        brokers.make("t")
        write(brokers, "a")

    again()
    log.on_refold = again
    with pytest.raises(BrokerError, match="recreated or truncated"):
        keys(log)


# -- records


def test_tombstones_are_handed_on(brokers: Any, log: CompactedLog) -> None:
    write(brokers, "a", value=None)
    assert [record.value for _, record in log.news()] == [None]


def test_aborted_records_never_come_and_open_ones_only_when_committed(brokers: Any, log: CompactedLog) -> None:
    brokers.append_in_transaction(TP, 1, Record(0, 0, b"aborted", b"v"))
    brokers.end_transaction(TP, 1, commit=False)
    brokers.append_in_transaction(TP, 2, Record(0, 0, b"open", b"v"))
    write(brokers, "ours")
    assert keys(log) == ["ours"]
    refolds: list[str] = []
    log.on_refold = lambda: refolds.append("begun")
    brokers.end_transaction(TP, 2, commit=True)
    assert keys(log) == ["open", "ours"], "in the order of the log, as a reader that comes now finds them"
    assert refolds == ["begun"]


def test_what_cannot_be_decoded_is_named_once_and_the_rest_goes_on(
    brokers: Any, log: CompactedLog, logs: list[EventDict]
) -> None:
    write(brokers, *"abc")
    damaged = bytearray(brokers.logs[TP].batches[1])
    damaged[-1] ^= 1
    brokers.logs[TP].batches[1] = bytes(damaged)
    assert keys(log) == ["a", "c"]
    log.restart()
    assert keys(log) == ["a", "c"]
    (line,) = logs
    assert (line["topic"], line["partition"], line["offsets"]) == ("t", 0, "1-1")
    assert "CRC" in line["why"]


def test_bytes_that_are_no_batch_are_an_error_with_their_offset(brokers: Any, log: CompactedLog) -> None:
    write(brokers, "a", "b")
    brokers.logs[TP].batches[1] = brokers.logs[TP].batches[1][:16] + b"\x09" + bytes(60)
    fetch, whole = brokers.fetch, brokers.logs[TP].batches
    brokers.fetch = lambda tp, at, **_: _only(fetch, brokers, whole[at], tp, at)
    with pytest.raises(CorruptBatch, match="t-0 at offset 1"):
        keys(log)


def _only(fetch: Any, brokers: Any, batch: bytes, tp: TopicPartition, at: int) -> Any:
    brokers.logs[TP].batches = []
    found = fetch(tp, at)
    found.records = batch
    return found


# -- writes


def test_a_write_whose_answer_is_lost_is_stored_once_also_behind_others(brokers: Any, log: CompactedLog) -> None:
    brokers.lost_answers = [lambda: write(brokers, "a", value=b"theirs")] * 2
    log.append(0, [(b"a", b"ours")])
    assert brokers.sent == 3
    assert [record.value for record in brokers.records(TP)] == [b"ours", b"theirs", b"theirs"]
    log.append(0, [(b"b", b"1"), (b"c", b"2")])
    log.append(0, [(b"d", b"3")])
    assert [record.key for record in brokers.records(TP)] == [b"a", b"a", b"a", b"b", b"c", b"d"]


def test_a_repeat_that_a_broker_stored_all_the_same_is_handed_on_once(
    brokers: Any, log: CompactedLog, logs: list[EventDict]
) -> None:
    brokers.remembers_producers = False
    brokers.lost_answers = [lambda: write(brokers, "a", value=b"theirs")]
    log.append(0, [(b"a", b"ours"), (b"b", b"ours")])
    assert len(brokers.records(TP)) == 5
    repeats: list[tuple[int, int]] = []
    log.on_repeat = lambda partition, record: repeats.append((partition, record.offset))
    assert [(record.key, record.value) for _, record in log.news()] == [
        (b"a", b"ours"),
        (b"b", b"ours"),
        (b"a", b"theirs"),
    ]
    assert repeats == [(0, 3), (0, 4)]
    assert [(line["topic"], line["partition"], line["offset"]) for line in logs] == [("t", 0, 3), ("t", 0, 4)]


def test_equal_records_that_were_written_twice_are_two(brokers: Any, log: CompactedLog) -> None:
    log.append(0, [(b"a", b"v")])
    log.append(0, [(b"a", b"v")])
    assert keys(log) == ["a", "a"]


def test_a_producer_id_that_the_broker_does_not_take_is_replaced(brokers: Any) -> None:
    writer = TopicWriter(brokers, "t")
    writer.append(0, [Record(0, 0, b"a", b"v")])
    produce, refusals = brokers.produce, [broker_error(OUT_OF_ORDER_SEQUENCE)]

    def refuse_once(tp: TopicPartition, batch: bytes) -> Any:
        if refusals:
            raise refusals.pop()
        return produce(tp, batch)

    brokers.produce = refuse_once
    writer.append(0, [Record(0, 0, b"b", b"v")])
    assert [record.key for record in brokers.records(TP)] == [b"a", b"b"]
    assert len(brokers.logs[TP].producers) == 2

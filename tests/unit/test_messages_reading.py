"""One partition read as a consumer would see it, whatever lies in its log."""

from __future__ import annotations

import struct
import zlib

import pytest

from heliograph.batch import Record, encode
from heliograph.batch.header import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from heliograph.errors import BrokerError
from heliograph.messages.reading import Message, Reader, Watch, fetch_bytes
from heliograph.types import TopicPartition
from tests.unit.logs import Logs

TP = TopicPartition("t", 0)
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def record(offset: int, value: bytes | None = b"v", timestamp: int = 1000, key: bytes | None = None) -> Record:
    return Record(offset, timestamp, key, value)


def values(
    logs: Logs, *, first: int = 0, end: int | None = None, watch: Watch | None = None, **how: object
) -> list[bytes]:
    reader = Reader(logs, "t", watch=watch or Watch(), **how)  # type: ignore[arg-type]
    stop = logs.list_offsets([TP], at="latest", isolation=reader.isolation)[TP] if end is None else end
    assert isinstance(stop, int)
    return [message.value or b"" for message in reader.read(0, first, stop)]


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_and_everything_of_a_message(codec: int) -> None:
    logs = Logs({"t": 1})
    headers = (("trace", b"a"), ("trace", b"b"), ("none", None), ("", b""))
    logs.append("t", [Record(0, 5, b"k", b"v", headers), Record(1, 3, None, None)], codec=codec)
    found = list(Reader(logs, "t").read(0, 0, 2))
    assert found == [Message(0, 0, 5, b"k", b"v", headers), Message(0, 1, 3, None, None)]


def test_only_what_lies_between_first_and_end() -> None:
    logs = Logs({"t": 1})
    for base in (0, 5, 10):
        logs.append("t", [record(base + i, b"%d" % (base + i)) for i in range(5)])
    assert values(logs, first=3, end=11) == [b"%d" % n for n in range(3, 11)]


def test_fetches_go_on_behind_one_another() -> None:
    logs = Logs({"t": 1})
    for base in range(10):
        logs.append("t", [record(base, b"x" * 1000)])
    assert len(values(logs, fetch_bytes=1500)) == 10
    assert [offset for _, offset in logs.fetches] == list(range(10))


def test_holes_of_compaction_in_the_middle_and_at_the_end() -> None:
    logs = Logs({"t": 1})
    logs.append("t", [record(2, b"2"), record(7, b"7")], last_offset_delta=17)  # up to offset 19
    logs.append("t", [record(30, b"30")])
    logs.logs[TP].end = 50  # nothing behind it
    assert values(logs) == [b"2", b"7", b"30"]


def test_markers_are_no_messages_and_aborted_ones_only_where_they_are_wanted() -> None:
    logs = Logs({"t": 1})
    mine = {"producer_id": 9, "producer_epoch": 0, "attributes": TRANSACTIONAL}
    logs.append("t", [record(0, b"aborted")], base_sequence=0, **mine)
    logs.append("t", [record(1, b"plain")])
    logs.append("t", [Record(2, 1000, ABORT, b"\0" * 6)], **{**mine, "attributes": TRANSACTIONAL | CONTROL})
    logs.append("t", [record(3, b"kept")], base_sequence=1, **mine)
    logs.append("t", [Record(4, 1000, COMMIT, b"\0" * 6)], **{**mine, "attributes": TRANSACTIONAL | CONTROL})
    logs.logs[TP].aborted = ((9, 0),)
    assert values(logs) == [b"plain", b"kept"]
    assert values(logs, isolation="read_uncommitted") == [b"aborted", b"plain", b"kept"]


def test_an_open_transaction_is_not_read_but_where_it_is_wanted() -> None:
    logs = Logs({"t": 1})
    logs.append("t", [record(0, b"done")])
    logs.append("t", [record(1, b"open")], producer_id=9, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    logs.logs[TP].stable = 1
    assert values(logs) == [b"done"]
    assert values(logs, isolation="read_uncommitted") == [b"done", b"open"]


def test_the_time_of_the_append_is_said_to_be_that() -> None:
    logs = Logs({"t": 1})
    logs.append("t", [record(0, timestamp=5), record(1, timestamp=6)], attributes=LOG_APPEND_TIME, max_timestamp=77)
    assert [(one.timestamp_ms, one.appended) for one in Reader(logs, "t").read(0, 0, 2)] == [(77, True)] * 2


def old_message(offset: int, value: bytes, timestamp: int) -> bytes:
    body = struct.pack(">bbqi", 1, 0, timestamp, -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_messages_of_the_format_before_batches() -> None:
    logs = Logs({"t": 1})
    logs.put("t", old_message(0, b"old", 11))
    logs.put("t", old_message(1, b"older", 12))
    logs.append("t", [record(2, b"new")])
    found = list(Reader(logs, "t").read(0, 0, 3))
    assert [(one.offset, one.value, one.timestamp_ms) for one in found] == [
        (0, b"old", 11),
        (1, b"older", 12),
        (2, b"new", 1000),
    ]


def test_a_batch_that_cannot_be_read_is_named_and_the_others_are_shown() -> None:
    logs = Logs({"t": 1})
    logs.append("t", [record(0, b"before")])
    broken = bytearray(encode([record(1, b"spoilt"), record(2, b"spoilt")]))
    broken[-1] ^= 0xFF
    logs.put("t", bytes(broken))
    logs.append("t", [record(3, b"behind")])
    said: list[str] = []
    watch = Watch(said.append)
    assert values(logs, watch=watch) == [b"before", b"behind"]
    assert watch.unreadable == 1
    assert "t-0: offsets 1 to 2 cannot be read" in said[0]
    assert "CRC" in said[0]


def test_a_header_that_makes_no_sense_ends_the_partition_with_a_word() -> None:
    logs = Logs({"t": 1})
    logs.append("t", [record(0, b"before")])
    logs.append("t", [record(1, b"lost")])
    batch = bytearray(logs.logs[TP].batches[1])
    batch[57:61] = (1 << 30).to_bytes(4, "big")  # a count that its offsets deny
    logs.logs[TP].batches[1] = bytes(batch)
    said: list[str] = []
    watch = Watch(said.append)
    assert values(logs, watch=watch) == [b"before"]
    assert watch.unreadable == 1
    assert "t-0 cannot be read behind offset 1" in said[0]


def test_retention_that_was_faster_is_said_and_passed_over() -> None:
    logs = Logs({"t": 1})
    for n in range(4):
        logs.append("t", [record(n, b"%d" % n)])
    logs.logs[TP].start = 2
    said: list[str] = []
    assert values(logs, watch=Watch(said.append)) == [b"2", b"3"]
    assert said == ["t-0: offsets 0 to 1 were deleted meanwhile"]


def test_a_log_that_was_cut_ends_the_reading() -> None:
    logs = Logs({"t": 1})
    logs.append("t", [record(0)])
    said: list[str] = []
    assert values(logs, first=5, end=9, watch=Watch(said.append)) == []
    assert "it was cut, or made anew" in said[0]


def test_other_errors_are_the_callers() -> None:
    class Denied(Logs):
        def fetch(self, *_arguments: object, **_more: object):  # type: ignore[no-untyped-def,override]
            raise BrokerError(29, "TOPIC_AUTHORIZATION_FAILED", topic="t")

    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        list(Reader(Denied({"t": 1}), "t").read(0, 0, 1))


def test_names_of_headers_that_are_no_text_come_back_as_they_went() -> None:
    name = b"\xff\xfe".decode(errors="surrogateescape")
    logs = Logs({"t": 1})
    logs.append("t", [Record(0, 1, None, b"v", ((name, b"x"),))])
    (one,) = Reader(logs, "t").read(0, 0, 1)
    assert one.headers[0][0].encode(errors="surrogateescape") == b"\xff\xfe"


def test_progress_counts_offsets_with_their_holes() -> None:
    logs = Logs({"t": 1})
    logs.append("t", [record(2), record(7)], last_offset_delta=17)
    logs.append("t", [record(30)])
    steps: list[int] = []
    watch = Watch(tick=lambda: steps.append(watch.looked_at))
    assert len(values(logs, watch=watch, fetch_bytes=1)) == 3
    assert steps == [20, 31]


def test_many_partitions_share_the_memory() -> None:
    assert fetch_bytes(1) == 1 << 20
    assert fetch_bytes(64) == 1 << 20
    assert fetch_bytes(128) == 512 << 10
    assert fetch_bytes(1_000_000) == 64 << 10

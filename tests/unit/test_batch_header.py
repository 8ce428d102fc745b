"""The header: where its fields lie, what a patch changes and what it leaves alone."""

from __future__ import annotations

import io
import struct

import pytest
from kio.records.readers import read_batch
from kio.records.writers import write_batch

from heliograph.batch import Header, Record, decode, decode_all, encode, headers, patch, verify_crc
from heliograph.batch.header import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from heliograph.errors import CorruptBatch

RECORDS = [
    Record(100, 1_700_000_000_000, b"k", b"v", (("h", b"1"), ("h", None))),
    Record(101, 1_700_000_005_000, None, None),
]


@pytest.mark.parametrize("wrap", [lambda b: b, memoryview], ids=["bytearray", "memoryview"])
def test_patch(wrap) -> None:  # type: ignore[no-untyped-def]
    flags = LOG_APPEND_TIME | TRANSACTIONAL | DELETE_HORIZON
    batch = bytearray(encode(RECORDS, codec=4, producer_id=55, producer_epoch=3, base_sequence=8, attributes=flags))
    body = bytes(batch[61:])
    before = Header.parse(batch)
    assert (before.log_append_time, before.transactional, before.delete_horizon, before.control) == (1, 1, 1, 0)
    patch(wrap(batch), 1 << 40, 7, 2**31 - 1)
    after = Header.parse(batch)
    assert (after.base_offset, after.leader_epoch, after.attributes) == (0, -1, 4)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (1 << 40, 7, 2**31 - 1)
    assert (after.count, after.last_offset_delta, after.length) == (2, 1, before.length)
    assert (after.base_timestamp, after.max_timestamp) == (before.base_timestamp, before.max_timestamp)
    assert batch[61:] == body
    assert verify_crc(batch)


def test_crc_covers_the_attributes_and_all_behind() -> None:
    batch = encode(RECORDS)
    assert verify_crc(batch)
    for at in (21, 22, 57, len(batch) - 1):
        assert not verify_crc(batch[:at] + bytes((batch[at] ^ 1,)) + batch[at + 1 :])
    for at in (0, 12):
        assert verify_crc(batch[:at] + bytes((batch[at] ^ 1,)) + batch[at + 1 :])


def test_kio_reads_what_we_write() -> None:
    batch, size = read_batch(encode(RECORDS, producer_id=5, producer_epoch=1, base_sequence=9), 0)
    assert size == len(encode(RECORDS))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 1, 9)
    assert [(r.offset, r.key, r.value) for r in batch.records] == [(100, b"k", b"v"), (101, None, None)]
    assert [(h.key, h.value) for h in batch.records[0].headers] == [(b"h", b"1"), (b"h", None)]
    assert [r.timestamp.timestamp() for r in batch.records] == [1_700_000_000, 1_700_000_005]


def test_we_read_what_kio_writes() -> None:
    batch, _ = read_batch(encode(RECORDS), 0)
    out = io.BytesIO()
    write_batch(out, batch)
    assert decode(out.getvalue()) == RECORDS


def test_headers_of_a_fetched_buffer() -> None:
    one, two = encode(RECORDS), encode([Record(102, 5, b"a", b"b")])
    assert [h.base_offset for h in headers(one + two + one[:70])] == [100, 102]
    assert list(headers(b"")) == []


def test_decode_all_says_where_to_go_on() -> None:
    marker = encode([Record(102, 1, struct.pack(">hh", 0, 1), b"")], attributes=CONTROL)
    holes = encode([Record(103, 1, b"k", None)], last_offset_delta=4)
    found = list(decode_all(encode(RECORDS) + marker + holes + holes[:30]))
    assert found == [
        (RECORDS[0], 101),
        (RECORDS[1], 102),
        (None, 103),
        (Record(103, 1, b"k", None), 104),
        (None, 108),
    ]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda b: b[:60], "header alone"),
        (lambda b: b[:16] + b"\1" + b[17:], "magic 1"),
        (lambda b: b + b"x", "says it has"),
        (lambda b: b[:-1] + b"!", "CRC"),
    ],
)
def test_decode_refuses(spoil, why: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CorruptBatch, match=why):
        decode(spoil(encode(RECORDS)))


def test_a_batch_needs_records() -> None:
    with pytest.raises(ValueError, match="without records"):
        encode([])

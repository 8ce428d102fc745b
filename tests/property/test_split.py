"""Dividing a fetch by target partition: every record in one share, in order, where Kafka's producers would put it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.batch import codec as codecs
from heliograph.batch import header, routing  # noqa: F401 - compiled before the clock runs
from heliograph.batch.chunk import Chunk, Limits
from heliograph.batch.records import Record, decode_all, encode
from heliograph.batch.split import KEYLESS_RUN, murmur2, split, target_of
from heliograph.errors import CorruptBatch

# From the tests of Kafka's own clients.
KNOWN_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN_HASHES)
def test_the_hash_is_kafkas(key):
    assert murmur2(key) == KNOWN_HASHES[key] & 0xFFFFFFFF


@st.composite
def logs(draw):
    """(records, buffer): batches as a log has them, with holes, codecs, control batches and empty ones."""
    offset = draw(st.integers(0, 10_000))
    kept, buffer = [], b""
    for _ in range(draw(st.integers(0, 5))):
        records = []
        for _ in range(draw(st.integers(1, 30))):
            offset += draw(st.integers(0, 3)) * draw(st.integers(0, KEYLESS_RUN))
            key = draw(st.none() | st.binary(max_size=20))
            records.append(Record(offset, 1_790_000_000_000 + offset, key, draw(st.none() | st.binary(max_size=50))))
            offset += 1
        kind = draw(st.sampled_from(["data"] * 4 + ["control", "empty"]))
        if kind == "control":
            marker = Record(records[0].offset, records[0].timestamp, b"\0\0\0\1", b"\0\0\0\0\0\0")
            buffer += encode([marker], producer_id=7, attributes=header.CONTROL | header.TRANSACTIONAL)
            offset = marker.offset + 1
            continue
        data = bytearray(encode(records, codec=draw(st.sampled_from([0, 0, 1, 2, 3, 4]))))
        if kind == "empty":
            data = bytearray(encode(records)[: header.SIZE])
            data[header.LENGTH : header.LENGTH + 4] = (header.SIZE - header.PREFIX).to_bytes(4, "big")
            data[header.COUNT : header.SIZE] = bytes(4)
            header.patch(data, -1, -1, -1)
            data[header.BASE_OFFSET : header.LENGTH] = records[0].offset.to_bytes(8, "big")
        else:
            kept += records
        buffer += data
    return kept, bytes(buffer), offset


def read(share, wanted=0):
    chunk = Chunk(share, wanted=wanted, limits=Limits(), check_crc=False)
    found = []
    while (piece := chunk.take(merge=True)) is not None:
        data = bytearray(piece.data)
        header.patch(data, 1, 0, 0)
        records = [record for record, _ in decode_all(bytes(data)) if record is not None]
        offsets = [first + n for first, length in piece.runs for n in range(length)]
        found += [(o, r.timestamp, r.key, r.value) for o, r in zip(offsets, records, strict=True)]
    return found, chunk.next_offset


@settings(max_examples=60)
@given(logs(), st.integers(1, 13), st.data())
def test_every_record_is_in_its_share_in_order(drawn, targets, data):
    records, buffer, end = drawn
    shares = split(buffer, targets)
    wanted = data.draw(st.integers(0, end))
    for target, share in enumerate(shares.buffers):
        expected = [
            (r.offset, r.timestamp, r.key, r.value)
            for r in records
            if r.offset >= wanted and target_of(r.key, r.offset, targets) == target
        ]
        found, reached = read(share, wanted)
        assert found == expected
        assert reached == max(end, wanted) or not buffer


@given(logs(), st.integers(1, 5), st.data())
def test_a_fetch_that_is_cut_off_or_corrupt_gives_what_lies_before(drawn, targets, data):
    _, buffer, _ = drawn
    if not buffer:
        return
    ends = []
    at = 0
    while at < len(buffer):
        at += header.PREFIX + int.from_bytes(buffer[at + 8 : at + 12], "big")
        ends.append(at)
    cut = data.draw(st.integers(0, len(buffer)))
    whole = max((e for e in ends if e <= cut), default=0)
    assert split(buffer[:cut], targets).buffers == split(buffer[:whole], targets).buffers
    hurt = bytearray(buffer)
    where = data.draw(
        st.integers(header.ATTRIBUTES, ends[0] - 1) if len(ends) == 1 else st.integers(0, len(buffer) - 1)
    )
    if (where - max([0] + [e for e in ends if e <= where])) < header.CRC:
        return  # outside the CRC
    hurt[where] ^= 0x55
    before = max([0] + [e for e in ends if e <= where])
    if not before:
        with pytest.raises(CorruptBatch):
            split(bytes(hurt), targets)
    else:
        assert split(bytes(hurt), targets).buffers == split(buffer[:before], targets).buffers


def test_the_codec_of_most_bytes_is_kept():
    small = encode([Record(0, 1, b"k", b"v")])
    large = encode([Record(1 + n, 1, b"k%d" % n, b"v" * 100) for n in range(50)], codec=codecs.LZ4)
    assert split(small + large, 3).codec == codecs.LZ4

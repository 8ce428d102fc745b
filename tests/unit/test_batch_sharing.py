"""What has to be unpacked to be divided: bounded whatever a producer packed, sound up to the first bad batch."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from heliograph.batch import Chunk, Limits, Record, encode, header, patch, warm
from heliograph.batch.codec import LIMIT_BYTES, NONE, ZSTD
from heliograph.batch.demux import STRANGE_BYTES, Targets, demux
from heliograph.batch.labels import Stamp
from heliograph.batch.mux import mux
from heliograph.batch.records import decode
from heliograph.batch.sharing import MOST_BYTES, Shares
from heliograph.batch.split import split
from heliograph.errors import CorruptBatch, RecordTooLarge
from heliograph.types import TopicPartition

ORIGIN = TopicPartition("t", 0)
STAMP = Stamp(ORIGIN, "b:9", "mux", "id", "cid")
DIVIDE: dict[str, Callable[[bytes], Shares]] = {
    "split": lambda data: split(data, 3),
    "mux": lambda data: mux(data, STAMP, 1).shares,
    "demux": lambda data: demux(data, Targets([ORIGIN]), keep=False).shares,
}
every_way = pytest.mark.parametrize("way", DIVIDE)


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    warm()


def labelled(data: bytes, way: str) -> bytes:
    """As the way wants them: with labels, if it is to take them off."""
    return bytes(mux(data, STAMP, 1).shares.buffers[0]) if way == "demux" else data


def pieces(share: bytes | memoryview, limits: Limits, codec: int) -> Iterator[list[Record]]:
    limits = replace(limits, codec_of_target=codec)
    chunk = Chunk(share, wanted=0, limits=limits, check_crc=False, shared=True)
    while (piece := chunk.take(merge=chunk.small())) is not None:
        assert len(piece.data) <= limits.max_batch_bytes
        patch(piece.data, 1, 0, 0)
        yield decode(piece.data)


@every_way
def test_shares_end_behind_the_batch_that_makes_them_too_large_and_go_on_from_there(way: str) -> None:
    """4 MiB of zstd can hold gigabytes: they come in pieces, none of which is much larger than the bound."""
    each = MOST_BYTES // 3
    batches = [encode([Record(n, 1, b"k%d" % n, bytes(each))], codec=ZSTD) for n in range(8)]
    data = b"".join(labelled(batch, way) for batch in batches)
    reached, turns = 0, 0
    while reached < 8:
        begins = [head.base_offset for head in header.headers(data)].index(reached)
        at = sum(head.size_bytes for head in list(header.headers(data))[:begins])
        shares = DIVIDE[way](data[at:])
        assert sum(len(share) for share in shares.buffers) < MOST_BYTES + each + 10_000
        ends = {Chunk(share, wanted=reached, limits=Limits(), check_crc=False).next_offset for share in shares.buffers}
        assert len(ends) == 1, "every share says how far the source was read"
        assert max(ends) > reached
        reached, turns = max(ends), turns + 1
    assert turns == 3


@every_way
def test_a_batch_that_claims_an_absurd_size_is_an_error_that_names_its_offset(way: str) -> None:
    good = labelled(encode([Record(6, 1, b"k", b"v")]), way)
    absurd = encode([Record(7 + n, 1, None, bytes(LIMIT_BYTES // 8)) for n in range(9)], codec=ZSTD)
    assert len(absurd) < 100_000
    shares = DIVIDE[way](good + absurd)
    assert {Chunk(share, wanted=0, limits=Limits(), check_crc=False).next_offset for share in shares.buffers} == {7}
    with pytest.raises(CorruptBatch, match="unpacks to more than") as caught:
        DIVIDE[way](absurd)
    assert caught.value.context["offset"] == 7


@every_way
def test_batches_before_one_of_an_unknown_codec_are_divided(way: str) -> None:
    good, strange = labelled(encode([Record(0, 1, b"k", b"v")]), way), bytearray(encode([Record(1, 1, b"k", b"v")]))
    strange[header.ATTRIBUTES + 1] |= 5
    struct.pack_into(">I", strange, header.CRC, header.checksum(strange))
    assert DIVIDE[way](good + bytes(strange)).filled


@every_way
@pytest.mark.parametrize("size", [0, -5, 32, 60])
def test_a_length_field_shorter_than_a_header_ends_the_walk(way: str, size: int) -> None:
    """It lies outside the CRC, which is right: 0.1 took the batch and walked on the spot for ever."""
    data = bytearray(encode([Record(5, 1, None, b"x" * 40)]))
    struct.pack_into(">i", data, header.LENGTH, size - header.PREFIX)
    with pytest.raises(CorruptBatch, match=r"offset 5 .* length field") as caught:
        DIVIDE[way](bytes(data))
    assert caught.value.context["offset"] == 5
    assert DIVIDE[way](labelled(encode([Record(4, 1, b"k", b"v")]), way) + bytes(data)).filled


def test_a_record_that_fits_packed_is_not_refused_because_its_neighbours_are_not_packed() -> None:
    big = json.dumps([{"id": n, "state": "ok", "text": "lorem ipsum"} for n in range(24_000)]).encode()
    packed = encode([Record(0, 1, b"k", big)], codec=ZSTD)
    limits = Limits(max_batch_bytes=1_048_588)
    assert len(packed) < 100_000 < limits.max_batch_bytes < len(big)
    plain = b"".join(encode([Record(n, 1, b"k", bytes(1500))]) for n in range(1, 100))
    shares = split(packed + plain, 1)
    assert shares.codec == NONE, "most of the bytes"
    (share,) = shares.buffers
    assert sum(len(records) for records in pieces(share, limits, shares.codec)) == 100


def test_a_record_that_is_too_large_is_refused_also_where_its_neighbours_are_packed() -> None:
    """Packed with them it would fit. A writer that reads it without them would refuse it, and both must agree."""
    plain = encode([Record(0, 1, b"k", bytes(2_000_000))])
    noise = [os.urandom(10_000) for _ in range(300)]
    packed = b"".join(encode([Record(n, 1, b"k", noise[n - 1])], codec=ZSTD) for n in range(1, 300))
    shares = split(plain + packed, 1)
    assert shares.codec == ZSTD
    with pytest.raises(RecordTooLarge) as caught:
        list(pieces(shares.buffers[0], Limits(max_batch_bytes=1_048_588), shares.codec))
    assert caught.value.context["offset"] == 0


def test_records_without_labels_are_named_in_bounded_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each becomes an object of Python: a response full of them comes in pieces, a batch with too many is refused."""
    monkeypatch.setattr("heliograph.batch.demux.MOST_STRANGE", 50)
    data = b"".join(encode([Record(10 * n + k, 1, b"k", b"v") for k in range(10)], codec=ZSTD) for n in range(5))
    found = demux(data, Targets([ORIGIN]), keep=False, most_bytes=20 * STRANGE_BYTES)
    assert [one.record.offset for one in found.strange] == list(range(20))
    assert found.next_offset == 20
    many = encode([Record(70 + k, 1, b"k", b"v") for k in range(51)], codec=ZSTD)
    with pytest.raises(CorruptBatch, match=r"offset 70 .* 51 of its records have no labels"):
        demux(many, Targets([ORIGIN]), keep=False)

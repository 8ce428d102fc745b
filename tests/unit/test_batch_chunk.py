"""Single decisions of a chunk that the properties do not name: which way a batch goes, and what errors say."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from crc32c import crc32c

from heliograph.batch import Chunk, Limits, Record, cache, decode, encode, patch, warm
from heliograph.batch import codec as codecs
from heliograph.batch.header import LOG_APPEND_TIME, checksum
from heliograph.errors import CorruptBatch, RecordTooLarge, UnknownCodec


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    warm()  # else what is merged would depend on how long they take to load


def batch(base: int, values: list[bytes], **how: int) -> bytes:
    return encode([Record(base + k, 10 + k, None, v) for k, v in enumerate(values)], **how)  # type: ignore[arg-type]


def test_a_batch_that_may_pass_is_not_touched_and_needs_no_numba() -> None:
    program = """
import sys
from heliograph.batch import Chunk, Limits, Record, encode, patch
data = b"".join(encode([Record(k, 5, b"k", b"v")], codec=k % 5) for k in range(100))
chunk = Chunk(data, wanted=0, limits=Limits())
while (piece := chunk.take(merge=False)) is not None:
    assert bytes(piece.data) == encode([Record(piece.first_offset, 5, b"k", b"v")], codec=piece.first_offset % 5)
    patch(piece.data, 1, 0, 0)
assert chunk.position == 100
assert "numba" not in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nothing_waits_for_the_kernels_that_can_go_without() -> None:
    """Many small batches and a backlog at the very start: the first go as they are, later ones are merged."""
    program = """
import sys, time
from heliograph.batch import Chunk, Limits, Record, encode, loading
data = b"".join(encode([Record(k, 5, b"k", b"v")]) for k in range(1000))
chunk = Chunk(data, wanted=0, limits=Limits())
piece = chunk.take(merge=True)
assert piece.records == 1 and not loading._kernels.there
deadline = time.monotonic() + 60
while not loading.ready():
    assert time.monotonic() < deadline
    time.sleep(0.01)
piece = chunk.take(merge=True)
assert piece.first_offset == 1 and piece.records == 999, piece.runs
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("size", [0, 7, 8, 9, 1000, 4097])
def test_the_kernels_crc_with_and_without_the_instruction(size: int) -> None:
    data = np.frombuffer(os.urandom(size), np.uint8)
    for step in (by_table, by_choice):
        crc, whole = 0xFFFFFFFF, size // 8 * 8
        for at in range(0, whole, 8):
            crc = int(step(np.uint64(crc), data, at))
        assert crc ^ 0xFFFFFFFF == crc32c(data[:whole].tobytes())


def by_table(crc: np.uint64, data: Any, at: int) -> int:
    from heliograph.batch import kernels

    return int(kernels._crc_step_by_table(crc, data, at))


def by_choice(crc: np.uint64, data: Any, at: int) -> int:
    global _chosen
    if _chosen is None:
        from heliograph.batch import kernels

        step = kernels._crc_step
        _chosen = numba.njit(lambda crc, data, at: step(crc, data, at))
    return int(_chosen(crc, data, at))


_chosen: Any = None


def test_large_batches_pass_untouched_even_under_backlog() -> None:
    large, small = batch(0, [os.urandom(30_000)], codec=3), batch(1, [b"x"], codec=3)
    other = batch(2, [os.urandom(30_000)], codec=3)
    chunk = Chunk(large + small + other, wanted=0, limits=Limits())
    for source in (large, small, other):
        piece = chunk.take(merge=True)
        assert piece is not None
        assert bytes(piece.data) == source


def test_a_merged_batch_keeps_the_codec_of_most_of_its_bytes() -> None:
    data = batch(0, [b"a"]) + batch(1, [b"x" * 50 * k for k in range(50)], codec=4) + batch(51, [b"b"])
    piece = Chunk(data, wanted=0, limits=Limits()).take(merge=True)
    assert piece is not None
    assert piece.data[22] == 4
    assert piece.records == 52


def test_a_batch_too_large_for_the_target_is_split() -> None:
    values = [os.urandom(1000) for _ in range(100)]
    for codec in range(5):
        chunk = Chunk(batch(0, values, codec=codec), wanted=0, limits=Limits(max_batch_bytes=10_000))
        got = []
        while (piece := chunk.take(merge=False)) is not None:
            assert len(piece.data) <= 10_000
            patch(piece.data, 1, 0, 0)
            got += [r.value for r in decode(piece.data)]
        assert got == values


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("merge", [False, True])
def test_a_record_too_large_can_be_stepped_over(codec: int, merge: bool) -> None:
    small, huge = b"s", os.urandom(5000)
    data = batch(40, [small, huge, small, small], codec=codec)
    chunk = Chunk(data, wanted=40, limits=Limits(max_batch_bytes=2000))
    first = chunk.take(merge=merge)
    assert first is not None
    assert first.runs == ((40, 1),)
    for _ in range(2):  # it stands where it stood
        with pytest.raises(RecordTooLarge) as caught:
            chunk.take(merge=merge)
        assert caught.value.context["offset"] == 41
        assert caught.value.context["limit_bytes"] == 2000
        assert "max.message.bytes" in str(caught.value)
    assert chunk.skip(1) == 1
    rest = chunk.take(merge=merge)
    assert rest is not None
    assert rest.runs == ((42, 2),)
    assert chunk.take(merge=merge) is None


@pytest.mark.parametrize("codec", [0, 3])
def test_a_record_too_large_is_named_by_its_own_offset_among_holes(codec: int) -> None:
    data = encode(
        [Record(3, 1, None, b"s"), Record(90, 1, None, os.urandom(5000)), Record(99, 1, None, b"s")], codec=codec
    )
    chunk = Chunk(data, wanted=4, limits=Limits(max_batch_bytes=2000))
    with pytest.raises(RecordTooLarge) as caught:
        chunk.take(merge=False)
    assert caught.value.context["offset"] == 90
    assert chunk.skip(1) == 1
    piece = chunk.take(merge=False)
    assert piece is not None
    assert piece.runs == ((99, 1),)


def test_a_bad_batch_that_straddles_stays_bad() -> None:
    data = bytearray(encode([Record(0, 1, None, b"a"), Record(5, 1, None, b"b")]))
    data[-2] ^= 1
    chunk = Chunk(bytes(data), wanted=3, limits=Limits())
    for act in (lambda: chunk.take(merge=False), lambda: chunk.skip(1), lambda: chunk.take(merge=True)):
        with pytest.raises(CorruptBatch, match="CRC"):
            act()


def test_a_record_that_only_packed_fits() -> None:
    data = batch(0, [bytes(20 << 20), b"next"], codec=4, attributes=LOG_APPEND_TIME)
    chunk = Chunk(data, wanted=0, limits=Limits(max_batch_bytes=100_000))
    sizes = []
    while (piece := chunk.take(merge=False)) is not None:
        patch(piece.data, 1, 0, 0)
        sizes += [len(r.value or b"") for r in decode(piece.data)]
    assert sizes == [20 << 20, 4]


def test_a_wrong_crc_is_reported_when_its_turn_comes() -> None:
    good, bad = batch(0, [b"a"]), bytearray(batch(1, [b"b"]))
    bad[-1] ^= 1
    for merge in (False, True):
        chunk = Chunk(good + bytes(bad), wanted=0, limits=Limits())
        piece = chunk.take(merge=merge)
        assert piece is not None
        assert piece.next_offset == 1
        with pytest.raises(CorruptBatch, match=r"offset 1 .* CRC") as caught:
            chunk.take(merge=merge)
        assert caught.value.context["offset"] == 1
    unchecked = Chunk(bytes(bad), wanted=1, limits=Limits(), check_crc=False).take(merge=False)
    assert unchecked is not None


@pytest.mark.parametrize("merge", [False, True])
def test_a_codec_of_the_future_is_named_when_its_turn_comes(merge: bool) -> None:
    strange = bytearray(batch(1, [b"a" * 100]))
    strange[22] = 5
    struct.pack_into(">I", strange, 17, checksum(strange))
    chunk = Chunk(batch(0, [b"known"]) + bytes(strange), wanted=0, limits=Limits())
    piece = chunk.take(merge=merge)
    assert piece is not None
    assert piece.runs == ((0, 1),)
    with pytest.raises(UnknownCodec) as caught:
        chunk.take(merge=merge)
    assert caught.value.context["offset"] == 1


def test_nothing_fetched() -> None:
    chunk = Chunk(b"", wanted=7, limits=Limits())
    assert (chunk.next_offset, chunk.position, chunk.take(merge=True), chunk.skip(3)) == (7, 7, None, 0)
    assert not chunk.small()
    assert not chunk.compressed


def test_the_kernels_cache_goes_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setattr(cache, "_writable", lambda folder: False)
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    cache.prepare()
    first = Path(os.environ["NUMBA_CACHE_DIR"])
    assert first.stat().st_mode & 0o777 == 0o700
    first.chmod(0o777)  # somebody else could have put code there
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    cache.prepare()
    assert Path(os.environ["NUMBA_CACHE_DIR"]) != first


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("codec", range(1, 5))
def test_a_record_is_not_too_large_for_the_sake_of_its_neighbours_codec(merge: bool, codec: int) -> None:
    """Its batch would pass as it stands; merged with more bytes that are not packed it does not fit unpacked."""
    packed = batch(0, [b"packed " * 4_000], codec=codec)
    limits = Limits(max_batch_bytes=10_000, merge_below_bytes=256 << 10, merged_bytes=500_000)
    data = packed + b"".join(batch(n, [bytes(900)]) for n in range(1, 30))
    chunk = Chunk(data, wanted=0, limits=limits)
    offsets = []
    while (piece := chunk.take(merge=merge)) is not None:
        assert len(piece.data) <= limits.max_batch_bytes
        offsets += [offset + n for offset, length in piece.runs for n in range(length)]
    assert offsets == list(range(30))


@pytest.mark.parametrize("merge", [False, True])
def test_a_record_too_large_is_too_large_also_among_packed_neighbours(merge: bool) -> None:
    """Merged into a packed batch it would fit. A second writer that reads it alone would refuse it."""
    data = batch(0, [bytes(20_000)]) + b"".join(batch(n, [os.urandom(400)] * 50, codec=4) for n in range(1, 2000, 50))
    limits = Limits(max_batch_bytes=10_000, merge_below_bytes=256 << 10, merged_bytes=500_000)
    with pytest.raises(RecordTooLarge) as caught:
        Chunk(data, wanted=0, limits=limits).take(merge=merge)
    assert caught.value.context["offset"] == 0


def test_a_record_that_its_producer_packed_tightly_fits_also_when_its_batch_is_rewritten() -> None:
    text = b"".join(b'{"id":%d,"state":"ok","text":"%d lorem ipsum"}' % (n * 7919 % 10_007, n) for n in range(20_000))
    usual, tight = len(codecs.compress(4, text)), len(codecs.compress(4, text, tight=True))
    limits = Limits(max_batch_bytes=(usual + tight) // 2)
    data = batch(0, [text, b"next"], codec=4, attributes=LOG_APPEND_TIME)
    piece = Chunk(data, wanted=0, limits=limits).take(merge=False)
    assert piece is not None
    assert piece.runs == ((0, 1),)


@pytest.mark.parametrize("size", [100, 20_000, 200_000])
def test_good_batches_before_one_with_a_wrong_crc_come_whatever_its_size(size: int) -> None:
    """CRCs of large batches are checked before the copy: 0.1 withheld good ones, lost to an operator who steps over."""
    bad = bytearray(batch(2, [bytes(size)]))
    bad[-5] ^= 1
    limits = Limits(max_batch_bytes=1 << 20, merge_below_bytes=256 << 10, merged_bytes=500_000)
    chunk = Chunk(batch(0, [b"a", b"b"]) + bytes(bad) + batch(3, [b"c"]), wanted=0, limits=limits)
    piece = chunk.take(merge=True)
    assert piece is not None
    assert piece.runs == ((0, 2),)
    with pytest.raises(CorruptBatch, match=r"offset 2 .* CRC") as caught:
        chunk.take(merge=True)
    assert caught.value.context["offset"] == 2

"""Whatever lies in a fetched buffer: the pieces taken from it hold exactly the records they should, as brokers want.

A log is made up batch by batch (codec, holes, LogAppendTime, delete horizon, transactions, markers, emptied batches),
and the records a consumer would read from it are worked out beside it, by other means than the code under test.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.batch import Chunk, Limits, Piece, Record, decode, encode, patch, scan, warm
from heliograph.batch import columns as c
from heliograph.batch.header import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, checksum
from heliograph.errors import BatchError, CorruptBatch, RecordTooLarge, UnknownCodec
from tests.property.test_batch_rules import broker_would_accept


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    warm()  # else what is merged would depend on how long they take to load


quick = settings(derandomize=True, deadline=None, database=None, max_examples=100)

ABORT, COMMIT = 0, 1


@dataclass
class Log:
    """A made-up source partition."""

    data: bytearray = field(default_factory=bytearray)
    committed: list[Record] = field(default_factory=list)  # what read_committed sees
    everything: list[Record] = field(default_factory=list)  # what read_uncommitted sees
    aborted: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    batches: int = 0

    def add(self, batch: bytes, last: int) -> None:
        self.data += batch
        self.end = last + 1
        self.batches += 1

    def marker(self, producer: int, kind: int) -> None:
        key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
        record = Record(self.end, 9, key, value)
        self.add(encode([record], attributes=CONTROL | TRANSACTIONAL, producer_id=producer, producer_epoch=0), self.end)


def emptied(base: int, last_delta: int) -> bytes:
    """What a log cleaner leaves of a batch without records: the header."""
    head = bytearray(encode([Record(base, 1, None, None)], last_offset_delta=last_delta))[:61]
    struct.pack_into(">i", head, 8, 61 - 12)
    struct.pack_into(">i", head, 57, 0)
    struct.pack_into(">I", head, 17, checksum(head))
    return bytes(head)


timestamps = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_100_000), st.sampled_from([-1, 0, 2**62, -(2**62), 2**63 - 1])
)
bodies = st.one_of(st.none(), st.binary(max_size=30), st.sampled_from([b"x" * 200, bytes(range(256)) * 3]))
header_lists = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2).map(
    tuple
)
contents = st.tuples(timestamps, bodies, bodies, header_lists)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log(end=draw(st.sampled_from([0, 17, 2**40])))
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(
            st.sampled_from(["plain", "plain", "plain", "holes", "append", "horizon", "empty", "aborted", "done"])
        )
        base = log.end + draw(st.sampled_from([0, 0, 0, 3]))
        if kind == "empty":
            delta = draw(st.integers(0, 5))
            log.add(emptied(base, delta), base + delta)
            continue
        codec = draw(st.integers(0, 4))
        records = []
        offset = base
        for ts, key, value, headers in draw(st.lists(contents, min_size=1, max_size=6)):
            offset += draw(st.integers(0, 4)) if kind in ("holes", "horizon") else 0
            records.append(Record(offset, ts, key, value, headers))
            offset += 1
        how: dict[str, int] = {"codec": codec}
        seen = records
        last = records[-1].offset
        if kind in ("holes", "horizon"):
            last += draw(st.integers(0, 3))
        if kind == "horizon":
            how |= {"attributes": DELETE_HORIZON, "base_timestamp": 1_600_000_000_000}
        if kind == "append":
            how |= {"attributes": LOG_APPEND_TIME, "max_timestamp": 1_800_000_000_000}
            seen = [replace(r, timestamp=1_800_000_000_000) for r in records]
        if kind in ("aborted", "done"):
            how |= {"attributes": TRANSACTIONAL, "producer_id": draw(st.integers(1, 2)), "producer_epoch": 0}
        first = records[0].offset
        log.add(encode(records, last_offset_delta=last - first, **how), last)  # type: ignore[arg-type]
        log.everything += seen
        if kind != "aborted":
            log.committed += seen
        if kind in ("aborted", "done"):
            log.marker(how["producer_id"], ABORT if kind == "aborted" else COMMIT)
            if kind == "aborted":
                log.aborted.append((how["producer_id"], first))
    return log


limits = st.builds(
    Limits,
    max_batch_bytes=st.sampled_from([1_048_588, 3000, 1800]),
    codec_of_target=st.one_of(st.none(), st.none(), st.integers(0, 4)),
    merge_below_bytes=st.sampled_from([24 << 10, 300]),
)


def copied(piece: Piece, limits: Limits, sequence: int = 0) -> list[Record]:
    """The records of a piece at their source offsets, after every check a broker makes."""
    patch(piece.data, 7, 0, sequence)
    assert not broker_would_accept(piece.data, limits)
    records = decode(piece.data)
    offsets = [first + k for first, length in piece.runs for k in range(length)]
    assert len(records) == piece.records == len(offsets)
    assert offsets[0] == piece.first_offset
    assert offsets[-1] + 1 == piece.next_offset
    assert all(a + n < b for (a, n), (b, _) in zip(piece.runs, piece.runs[1:], strict=False)), (
        "runs are not the longest"
    )
    assert piece.max_timestamp == max(r.timestamp for r in records)
    return [replace(record, offset=offset) for record, offset in zip(records, offsets, strict=True)]


def drain(chunk: Chunk, limits: Limits, merges: list[bool]) -> list[Record]:
    """Everything that is left, taken now merging, now not."""
    got: list[Record] = []
    turn = 0
    while True:
        before = chunk.position
        piece = chunk.take(merge=merges[turn % len(merges)])
        if piece is None:
            break
        turn += 1
        got += copied(piece, limits, len(got))
        assert before <= piece.first_offset
        assert piece.next_offset <= chunk.position
    assert chunk.position == chunk.next_offset
    assert (chunk.remaining_bytes, chunk.remaining_records, chunk.batches) == (0, 0, 0)
    return got


merging = st.lists(st.booleans(), min_size=1, max_size=3)


@quick
@given(logs(), limits, merging, st.booleans(), st.integers(0, 40), st.integers(0, 6), st.integers(0, 70))
def test_pieces_hold_exactly_what_a_consumer_would_read(
    log: Log, limits: Limits, merges: list[bool], committed: bool, ahead: int, skip: int, cut: int
) -> None:
    wanted = min(log.end, max(0, log.end - 40) + ahead)
    expected = [r for r in (log.committed if committed else log.everything) if r.offset >= wanted]
    tail = encode([Record(log.end, 1, b"cut", b"off" * 20)])[:cut]
    chunk = Chunk(
        bytes(log.data + tail),
        wanted=wanted,
        aborted=log.aborted if committed else (),
        read_committed=committed,
        limits=limits,
    )
    assert chunk.next_offset == (log.end if log.batches else wanted)
    assert chunk.skip(skip) == min(skip, len(expected))
    assert drain(chunk, limits, merges) == expected[skip:]


@quick
@given(logs(), merging, st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_skip_between_takes_drops_what_comes_next(log: Log, merges: list[bool], skips: list[int]) -> None:
    limits = Limits(max_batch_bytes=1800)
    chunk = Chunk(bytes(log.data), wanted=0, aborted=log.aborted, limits=limits)
    left = log.committed
    for turn in range(200):
        n = chunk.skip(skips[turn % len(skips)])
        left = left[n:]
        piece = chunk.take(merge=merges[turn % len(merges)])
        if piece is None:
            break
        got = copied(piece, limits)
        assert got == left[: len(got)]
        left = left[len(got) :]
    assert not left


@quick
@given(logs(), st.integers(0, 40), st.booleans())
def test_the_kernel_walks_as_python_does(log: Log, ahead: int, committed: bool) -> None:
    view = memoryview(bytes(log.data))
    wanted = max(0, log.end - 40) + ahead
    slow = scan.walk(view, wanted, log.aborted, committed, True, 10_000)
    fast = scan._by_kernel(view, wanted, log.aborted, committed, True)
    assert slow is not None
    assert slow.rows == [tuple(row) for row in fast.rows.tolist()]
    for name in ("next_offset", "control", "aborted", "empty", "problem"):
        assert getattr(slow, name) == getattr(fast, name), name


@quick
@given(logs(), merging, st.data())
def test_corruption_is_an_error_or_less_data_never_other_data(
    log: Log, merges: list[bool], data: st.DataObject
) -> None:
    """With the CRC checked: what comes out before the error is a prefix of the truth."""
    if not log.data:
        return
    at = data.draw(st.integers(0, len(log.data) - 1))
    spoilt = bytearray(log.data)
    spoilt[at] ^= data.draw(st.integers(1, 255))
    got: list[Record] = []
    try:
        chunk = Chunk(bytes(spoilt), wanted=0, aborted=log.aborted, limits=Limits())
        while (piece := chunk.take(merge=merges[len(got) % len(merges)])) is not None:
            got += copied(piece, Limits())
    except (CorruptBatch, UnknownCodec):
        pass
    # Base offset and leader epoch lie outside the CRC: a flipped bit there moves offsets, or the transactions' borders.
    assert [r.value for r in got] == [r.value for r in log.committed[: len(got)]] or at_offset(log.data, at)


def at_offset(data: bytearray, at: int) -> bool:
    """Whether position `at` is a base offset or a length, which no CRC covers."""
    start = 0
    while start + 12 + struct.unpack_from(">i", data, start + 8)[0] <= at:
        start += 12 + struct.unpack_from(">i", data, start + 8)[0]
    return at - start < 17


@quick
@given(logs(), merging, st.data())
def test_without_crc_rubbish_neither_crashes_nor_hangs(log: Log, merges: list[bool], data: st.DataObject) -> None:
    """The kernels' bounds: with the CRC off they meet every kind of rubbish."""
    spoilt = bytearray(log.data)
    for _ in range(data.draw(st.integers(1, 6))):
        if spoilt:
            spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    view = memoryview(bytes(spoilt))
    slow, fast = (
        scan.walk(view, 0, log.aborted, True, False, 10_000),
        scan._by_kernel(view, 0, log.aborted, True, False),
    )
    assert slow is not None
    assert (slow.next_offset, slow.problem, len(slow.rows)) == (fast.next_offset, fast.problem, len(fast.rows))
    try:
        chunk = Chunk(
            bytes(spoilt), wanted=0, aborted=log.aborted, limits=Limits(max_batch_bytes=1500), check_crc=False
        )
    except BatchError:
        return
    for turn in range(500):
        try:
            if chunk.take(merge=merges[turn % len(merges)]) is None:
                return
        except RecordTooLarge:
            assert chunk.skip(1) == 1
        except BatchError:
            return
    raise AssertionError("it does not end")


@quick
@given(st.binary(max_size=300), merging)
def test_any_bytes_at_all(rubbish: bytes, merges: list[bool]) -> None:
    try:
        chunk = Chunk(rubbish, wanted=0, limits=Limits(), check_crc=False)
        while chunk.take(merge=merges[0]) is not None:
            pass
    except BatchError:
        pass


def test_a_million_one_record_batches_in_a_few_calls() -> None:
    """Rows of the kernel's walk, not Python's, and one call a piece."""
    one = bytearray(encode([Record(0, 1_700_000_000_000, b"key", b"value" * 20)]))
    n = 20_000
    data = b"".join(struct.pack(">q", k) + one[8:] for k in range(n))
    chunk = Chunk(data, wanted=5, limits=Limits())
    assert chunk.small()
    assert not isinstance(chunk._rows, list)
    pieces = []
    while (piece := chunk.take(merge=True)) is not None:
        pieces.append(piece)
    assert len(pieces) <= 1 + n * 110 // 1_000_000 + 1
    assert [p.runs for p in pieces] == [((p.first_offset, p.records),) for p in pieces]
    assert sum(p.records for p in pieces) == n - 5
    assert len(one) < c.CRC_IN_KERNEL

"""Chunks joined, shares that end early, and verdicts on a record's size: the records are the same however they come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.batch import Chunk, Header, Limits, Record, decode, encode, header, patch, warm
from heliograph.batch.demux import Targets, demux
from heliograph.batch.labels import Stamp
from heliograph.batch.mux import mux
from heliograph.batch.sharing import Shares
from heliograph.batch.split import split
from heliograph.errors import RecordTooLarge
from heliograph.types import TopicPartition
from tests.property.test_batch_rules import broker_would_accept

quick = settings(derandomize=True, deadline=None, database=None, max_examples=60)
ORIGIN = TopicPartition("t", 0)
STAMP = Stamp(ORIGIN, "b:9", "mux", "id", "cid")
NEAR = Limits(merge_below_bytes=256 << 10, merged_bytes=500_000)

Fetches = list[tuple[list[Record], list[bytes]]]  # what each fetch brings: records, and the batches they are in


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    warm()


@st.composite
def fetches(draw: st.DrawFn) -> Fetches:
    found: Fetches = []
    offset = draw(st.integers(0, 1000))
    for _ in range(draw(st.integers(1, 6))):
        kept: list[Record] = []
        batches: list[bytes] = []
        for _ in range(draw(st.integers(1, 3))):
            records = []
            for _ in range(draw(st.integers(1, 5))):
                offset += draw(st.sampled_from([0, 0, 0, 1, 4]))
                size = draw(st.sampled_from([0, 10, 200, 3000]))
                key = draw(st.sampled_from([None, b"", b"k", b"other"]))
                records.append(Record(offset, 1_790_000_000_000 + offset % 7, key, bytes([offset % 251]) * size))
                offset += 1
            kept += records
            batches.append(encode(records, codec=draw(st.integers(0, 4))))
        found.append((kept, batches))
    return found


def taken(chunk: Chunk, merges: list[bool]) -> list[Record]:
    """Its records with their source offsets; every piece as a broker wants it."""
    found: list[Record] = []
    turn = 0
    while (piece := chunk.take(merge=merges[turn % len(merges)])) is not None:
        turn += 1
        patch(piece.data, 1, 0, len(found))
        assert broker_would_accept(bytearray(piece.data), NEAR) == ""
        offsets = [first + n for first, length in piece.runs for n in range(length)]
        found += [replace(record, offset=o) for record, o in zip(decode(piece.data), offsets, strict=True)]
    return found


@quick
@given(fetches(), st.lists(st.booleans(), min_size=1, max_size=5), st.integers(0, 8), st.integers(0, 8))
def test_joined_chunks_hold_what_they_held_before(drawn: Fetches, merges: list[bool], skipped: int, early: int) -> None:
    everything = [record for records, _ in drawn for record in records]
    chunks, wanted = [], everything[0].offset
    for records, batches in drawn:
        chunks.append(Chunk(b"".join(batches), wanted=wanted, limits=NEAR))
        wanted = records[-1].offset + 1
    skipped = min(skipped, len(drawn[0][0]) - 1)
    chunks[0].skip(skipped)
    count = len(chunks) - early % len(chunks)
    sizes = [sum(one) for one in zip(*((c.remaining_records, c.remaining_bytes) for c in chunks[:count]), strict=True)]
    whole = Chunk.joined(chunks[:count])
    assert [whole.remaining_records, whole.remaining_bytes] == sizes
    assert whole.next_offset == chunks[count - 1].next_offset
    found = taken(whole, merges)
    assert (whole.remaining_records, whole.remaining_bytes, whole.position) == (0, 0, whole.next_offset)
    for chunk in chunks[count:]:
        found += taken(chunk, merges)
    assert found == everything[skipped:]


@quick
@given(fetches())
def test_batches_that_are_joined_and_not_merged_pass_as_they_stand(drawn: Fetches) -> None:
    dense = [
        batch
        for _, batches in drawn
        for batch in batches
        if Header.parse(batch).count == Header.parse(batch).last_offset_delta + 1
    ]
    chunks = [Chunk(batch, wanted=Header.parse(batch).base_offset, limits=NEAR) for batch in dense]
    if not chunks:
        return
    whole = Chunk.joined(chunks)
    for batch in dense:
        piece = whole.take(merge=False)
        assert piece is not None
        assert bytes(piece.data) == batch
    assert whole.take(merge=False) is None


def pieces_of(way: str, buffer: bytes, most_bytes: int) -> tuple[Shares, int]:
    if way == "split":
        shares = split(buffer, 3, most_bytes=most_bytes)
    elif way == "mux":
        shares = mux(buffer, STAMP, 1, most_bytes=most_bytes).shares
    else:
        shares = demux(buffer, Targets([ORIGIN]), keep=False, most_bytes=most_bytes).shares
    ends = {Chunk(share, wanted=0, limits=Limits(), check_crc=False).next_offset for share in shares.buffers}
    assert len(ends) == 1, "every share says how far the source was read"
    return shares, ends.pop()


@quick
@given(fetches(), st.sampled_from(["split", "mux", "demux"]), st.integers(1, 9000))
def test_shares_in_pieces_are_the_shares_of_the_whole(drawn: Fetches, way: str, most_bytes: int) -> None:
    batches = [batch for _, some in drawn for batch in some]
    if way == "demux":
        batches = [bytes(mux(batch, STAMP, 1).shares.buffers[0]) for batch in batches]
    whole, end = pieces_of(way, b"".join(batches), 1 << 30)
    found: list[list[Record]] = [[] for _ in whole.buffers]
    at = 0
    while at < end:
        rest = b"".join(batch for batch in batches if Header.parse(batch).last_offset >= at)
        shares, reached = pieces_of(way, rest, most_bytes)
        assert reached > at, "a batch at least"
        largest = max(sum(map(len, pieces_of(way, batch, 1)[0].buffers)) for batch in batches)
        assert sum(map(len, shares.buffers)) < most_bytes + largest + header.SIZE * len(shares.buffers)
        for target, share in enumerate(shares.buffers):
            limits = replace(NEAR, codec_of_target=shares.codec)
            chunk = Chunk(share, wanted=at, limits=limits, check_crc=False, shared=True)
            found[target] += taken(chunk, [True])
        at = reached
    for target, share in enumerate(whole.buffers):
        chunk = Chunk(share, wanted=0, limits=NEAR, check_crc=False, shared=True)
        assert found[target] == taken(chunk, [True])


@quick
@given(fetches(), st.integers(300, 4000), st.lists(st.booleans(), min_size=1, max_size=5), st.data())
def test_whether_a_record_is_too_large_depends_on_nothing_beside_it(
    drawn: Fetches, most: int, merges: list[bool], data: st.DataObject
) -> None:
    """Two writers that read the same log from other places, in other pieces, refuse the same records."""
    batches = [batch for _, some in drawn for batch in some]
    everything = [record for records, _ in drawn for record in records]
    limits = replace(NEAR, max_batch_bytes=most)
    begins = data.draw(st.sampled_from(everything)).offset
    alone = [o for batch in batches for o in refused([batch], begins, limits, [False])]
    assert refused(batches, begins, limits, merges) == alone
    divided = split(b"".join(batches), 1)
    by_majority = replace(limits, codec_of_target=divided.codec)
    share = Chunk(divided.buffers[0], wanted=begins, limits=by_majority, check_crc=False, shared=True)
    again = [split(batch, 1) for batch in batches]
    each = [
        Chunk(
            one.buffers[0],
            wanted=begins,
            limits=replace(limits, codec_of_target=one.codec),
            check_crc=False,
            shared=True,
        )
        for one in again
    ]
    assert steps(share, merges) == [offset for chunk in each for offset in steps(chunk, [False])]


def refused(batches: list[bytes], wanted: int, limits: Limits, merges: list[bool]) -> list[int]:
    if Header.parse(batches[-1]).last_offset < wanted:
        return []
    return steps(Chunk(b"".join(batches), wanted=wanted, limits=limits), merges)


def steps(chunk: Chunk, merges: list[bool]) -> list[int]:
    found, turn = [], 0
    while True:
        turn += 1
        try:
            if chunk.take(merge=merges[turn % len(merges)]) is None:
                return found
        except RecordTooLarge as error:
            found.append(error.context["offset"])
            chunk.skip(1)

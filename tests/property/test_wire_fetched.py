"""What is read by hand of a fetch's answer is what kio reads, and nothing of it outlives or overlaps its frame."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta

from heliograph.errors import ProtocolError
from heliograph.wire import fetch
from heliograph.wire.fetched import VIEW_SHARE
from heliograph.wire.frames import SHARED_BYTES
from heliograph.wire.messages import decoder
from tests.property.framing import framed

FETCH = 1
I32, I64 = st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1)
NAMES = st.text("abcXYZ._-09", min_size=1, max_size=249)
ERRORS = st.sampled_from([ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.offset_out_of_range])


@st.composite
def partitions(draw, schema, most_bytes):
    aborted = draw(st.none() | st.lists(st.tuples(st.integers(0, 2**63 - 1), I64), max_size=3))
    if aborted is not None:
        aborted = tuple(schema.AbortedTransaction(producer_id=p, first_offset=f) for p, f in aborted)
    leader, diverging = draw(st.tuples(I32, I32)), draw(st.tuples(I32, I64))
    return schema.PartitionData(
        partition_index=draw(st.integers(0, 2**31 - 1)),
        error_code=draw(ERRORS),
        high_watermark=draw(I64),
        last_stable_offset=draw(I64),
        log_start_offset=draw(I64),
        diverging_epoch=schema.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        current_leader=schema.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        snapshot_id=schema.SnapshotId(),
        aborted_transactions=aborted,
        preferred_read_replica=draw(I32),
        records=draw(st.none() | st.binary(max_size=200) | st.integers(0, most_bytes).map(lambda size: b"r" * size)),
    )


@st.composite
def answers(draw, most_bytes=200_000):
    version = draw(st.integers(12, 17))
    schema = load_entity_module("fetch", version, EntityType.response)
    topics = []
    for _ in range(draw(st.integers(0, 3))):
        which = (
            {"topic_id": uuid.UUID(int=draw(st.integers(1, 2**128 - 1)))} if version > 12 else {"topic": draw(NAMES)}
        )
        parts = draw(st.lists(partitions(schema, most_bytes), max_size=3))
        topics.append(schema.FetchableTopicResponse(**which, partitions=tuple(parts)))
    more = {}
    if version >= 16 and draw(st.booleans()):
        more["node_endpoints"] = (schema.NodeEndpoint(node_id=1, host="broker", port=9092, rack="r"),)
    return version, schema.FetchResponse(
        throttle_time=i32Timedelta.parse(draw(st.integers(0, 10_000)) * i32Timedelta.resolution * 1000),
        error_code=draw(ERRORS),
        session_id=draw(I32),
        responses=tuple(topics),
        **more,
    )


@given(answers())
def test_an_answer_is_what_kio_reads(drawn):
    version, response = drawn
    frame = framed(response)
    correlation_id, ours = decoder(FETCH, version).read(frame)
    assert correlation_id == 7
    theirs = fetch._by_kio(response)
    for _, part in theirs.parts:
        part.topic = "" if version > 12 else part.topic  # named by id
    assert ours == theirs


@given(answers())
def test_only_a_good_part_of_a_large_frame_stays_in_it(drawn):
    version, response = drawn
    frame = framed(response)
    _, ours = decoder(FETCH, version).read(frame)
    for _, part in ours.parts:
        share = len(part.records) / len(frame)
        assert isinstance(part.records, memoryview) == (share > VIEW_SHARE and len(part.records) > SHARED_BYTES)
        assert not isinstance(part.records, memoryview) or part.records.readonly


@given(answers(most_bytes=300), st.data())
def test_an_answer_cut_short_is_an_error(drawn, data):
    version, response = drawn
    frame = framed(response)
    with pytest.raises(ProtocolError, match="does not parse"):
        decoder(FETCH, version).read(frame[: data.draw(st.integers(5, len(frame) - 1))])


@given(answers(most_bytes=300), st.data())
def test_an_answer_with_a_wrong_byte_is_an_error_or_another_answer(drawn, data):
    version, response = drawn
    frame = bytearray(framed(response))
    frame[data.draw(st.integers(5, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        _, ours = decoder(FETCH, version).read(memoryview(bytes(frame)))
    except ProtocolError:
        return
    assert sum(len(part.records) for _, part in ours.parts) <= len(frame)


def test_a_view_is_measured_against_the_buffer_that_it_would_keep():
    schema = load_entity_module("fetch", 12, EntityType.response)
    part = schema.PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        high_watermark=1,
        aborted_transactions=None,
        records=b"r" * 100_000,
    )
    frame = framed(
        schema.FetchResponse(
            throttle_time=i32Timedelta.parse(0 * i32Timedelta.resolution),
            error_code=ErrorCode.none,
            responses=(schema.FetchableTopicResponse(topic="t", partitions=(part,)),),
        )
    )
    for spare_bytes, kind in ((0, memoryview), (1_000_000, bytes)):
        buffer = memoryview(bytearray(frame) + bytes(spare_bytes)).toreadonly()
        [(_, fetched)] = decoder(FETCH, 12).read(buffer[: len(frame)])[1].parts
        assert isinstance(fetched.records, kind)
        assert bytes(fetched.records) == b"r" * 100_000

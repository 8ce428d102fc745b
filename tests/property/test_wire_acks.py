"""What is read by hand of a produce's answer is what kio reads by Kafka's schema; nonsense is an error."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta

from heliograph.errors import ProtocolError
from heliograph.wire import produced
from heliograph.wire.acks import FIRST_READ_BY_HAND, LAST_READ_BY_HAND, ProduceAnswer
from heliograph.wire.messages import decoder
from tests.property.framing import framed

PRODUCE = 0
I32, I64 = st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1)
NAMES = st.text("abcXYZ._-09", min_size=1, max_size=249)
WORDS = st.none() | st.text(max_size=200)
ERRORS = st.sampled_from([ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.invalid_record])
TIMES = st.none() | st.integers(0, 2**41).map(lambda ms: datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC))


@st.composite
def partitions(draw, schema, version):
    plain = {"record_errors": (), "error_message": None}
    errors = st.lists(st.tuples(I32, WORDS), max_size=3)
    more = plain if draw(st.booleans()) else {"error_message": draw(WORDS)}
    if more is not plain:
        more["record_errors"] = tuple(
            schema.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
            for index, why in draw(errors)
        )
    if version >= 10 and draw(st.booleans()):
        leader, epoch = draw(st.tuples(I32, I32))
        more["current_leader"] = schema.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return schema.PartitionProduceResponse(
        index=draw(st.integers(0, 2**31 - 1)),
        error_code=draw(ERRORS),
        base_offset=draw(I64),
        log_append_time=draw(TIMES),
        log_start_offset=draw(I64),
        **more,
    )


@st.composite
def answers(draw):
    version = draw(st.integers(FIRST_READ_BY_HAND, LAST_READ_BY_HAND))
    schema = load_entity_module("produce", version, EntityType.response)
    topics = tuple(
        schema.TopicProduceResponse(
            name=draw(NAMES), partition_responses=tuple(draw(st.lists(partitions(schema, version), max_size=3)))
        )
        for _ in range(draw(st.integers(0, 3)))
    )
    more = {}
    if version >= 10 and draw(st.booleans()):
        more["node_endpoints"] = (schema.NodeEndpoint(node_id=1, host="broker", port=9092, rack="r"),)
    throttle = i32Timedelta.parse(draw(st.integers(0, 10_000)) * i32Timedelta.resolution * 1000)
    return version, schema.ProduceResponse(responses=topics, throttle_time=throttle, **more)


@given(answers())
def test_an_answer_is_what_kio_reads(drawn):
    version, response = drawn
    correlation_id, ours = decoder(PRODUCE, version).read(framed(response))
    assert correlation_id == 7
    assert isinstance(ours, ProduceAnswer)
    assert produced(ours) == produced(response)


@given(answers(), st.data())
def test_an_answer_cut_short_is_an_error(drawn, data):
    version, response = drawn
    frame = framed(response)
    with pytest.raises(ProtocolError, match="does not parse"):
        decoder(PRODUCE, version).read(frame[: data.draw(st.integers(5, len(frame) - 1))])


@given(answers(), st.data())
def test_an_answer_with_a_wrong_byte_is_an_error_or_another_answer(drawn, data):
    version, response = drawn
    frame = bytearray(framed(response))
    frame[data.draw(st.integers(5, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        _, ours = decoder(PRODUCE, version).read(memoryview(bytes(frame)))
    except ProtocolError:
        return
    assert len(produced(ours)) * 33 <= len(frame)

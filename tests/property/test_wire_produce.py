"""The one message written by hand is byte for byte what kio writes from Kafka's schema."""

from hypothesis import given
from hypothesis import strategies as st

from heliograph.wire.messages import encode
from heliograph.wire.produce import kio_request, produce_request

TOPICS = st.dictionaries(
    st.text("abcXYZ._-09", min_size=1, max_size=200),
    st.dictionaries(st.integers(0, 2**31 - 1), st.binary(max_size=20_000), min_size=1, max_size=4),
    max_size=3,
)


@given(
    version=st.integers(9, 12),
    topics=TOPICS,
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=st.integers(0, 2**31 - 1),
    correlation_id=st.integers(0, 2**31 - 1),
    client_id=st.text(max_size=200),
)
def test_a_produce_request_is_what_kio_writes(version, topics, acks, timeout_ms, correlation_id, client_id):
    parts = [(topic, partition, data) for topic, some in topics.items() for partition, data in some.items()]
    ours = produce_request(version, parts, acks=acks, timeout_ms=timeout_ms)
    theirs = kio_request(version, topics, acks, timeout_ms)
    assert b"".join(encode(ours, correlation_id, client_id)) == b"".join(encode(theirs, correlation_id, client_id))

"""A fetch request written by hand is byte for byte what kio writes from Kafka's schema."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from heliograph.wire.fetch_request import FetchFrame, ForgottenTopic, Partition, Topic, kio_request
from heliograph.wire.messages import encode

INT = st.integers(-(2**31), 2**31 - 1)
INDEX = st.integers(0, 2**31 - 1)
NAMED = (st.text("abcXYZ._-09", min_size=1, max_size=200), st.uuids().filter(lambda one: one != UUID(int=0)))
PARTITIONS = st.builds(Partition, INDEX, st.integers(-1, 2**63 - 1), INT, INT)


@given(
    version=st.integers(12, 18),
    wait_ms=INDEX,
    least=INT,
    most=INT,
    level=st.sampled_from([0, 1]),
    session=st.tuples(INT, INT),
    topics=st.lists(st.builds(Topic, *NAMED, st.lists(PARTITIONS, max_size=200).map(tuple)), max_size=3),
    forgotten=st.lists(st.builds(ForgottenTopic, *NAMED, st.lists(INDEX, max_size=200).map(tuple)), max_size=3),
    correlation_id=INDEX,
    client_id=st.text(max_size=200),
)
def test_a_fetch_request_is_what_kio_writes(
    version, wait_ms, least, most, level, session, topics, forgotten, correlation_id, client_id
):
    ours = FetchFrame(
        version,
        max_wait_ms=wait_ms,
        min_bytes=least,
        max_bytes=most,
        isolation_level=level,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=forgotten,
    )
    theirs = encode(kio_request(ours), correlation_id, client_id)
    assert b"".join(encode(ours, correlation_id, client_id)) == b"".join(theirs)

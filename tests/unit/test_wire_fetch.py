"""Fetch sessions against a model of the broker's side of KIP-227, and produce requests."""

from __future__ import annotations

import datetime
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_entity_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from heliograph.errors import BrokerError, VersionUnsupported
from heliograph.types import TopicPartition
from heliograph.wire import FetchSession, produce_request, produced
from heliograph.wire.messages import encode

IDS = {f"t{n}": uuid.UUID(int=n + 1) for n in range(4)}


@dataclass
class Broker:
    """Holds what the session holds: (topic key, partition) -> offset. Applies updates, then removals, as Kafka does."""

    version: int
    session_id: int = 0
    epoch: int = 0
    held: dict[tuple[Any, int], int] = field(default_factory=dict)
    has_room: bool = True

    def key(self, topic: Any) -> Any:
        return topic.topic_id if self.version >= 13 else topic.topic

    def answer(self, request: Any) -> Any:
        encode(request, 1, "x")  # it can be written
        if request.session_epoch == 0:
            self.held.clear()
            self.session_id = self.session_id + 1 if self.has_room else 0
            self.epoch = 1
        elif request.session_id != self.session_id or not self.session_id:
            return self.response(error=ErrorCode.fetch_session_id_not_found)
        elif request.session_epoch != self.epoch:
            return self.response(error=ErrorCode.invalid_fetch_session_epoch)
        else:
            self.epoch += 1
        for topic in request.topics:
            for part in topic.partitions:
                self.held[self.key(topic), part.partition] = part.fetch_offset
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self.held.pop((self.key(topic), partition), None)
        return self.response()

    def response(self, error: ErrorCode = ErrorCode.none, records: bytes = b"r") -> Any:
        schema: Any = load_entity_module("fetch", self.version, EntityType.response)
        topics: dict[Any, list[Any]] = {}
        for (topic, partition), offset in self.held.items():
            data = schema.PartitionData(
                partition_index=partition,
                error_code=ErrorCode.none,
                high_watermark=offset + 1,
                last_stable_offset=offset,
                log_start_offset=0,
                aborted_transactions=(schema.AbortedTransaction(producer_id=5, first_offset=6),),
                records=records,
            )
            topics.setdefault(topic, []).append(data)
        name = "topic_id" if self.version >= 13 else "topic"
        return schema.FetchResponse(
            throttle_time=datetime.timedelta(milliseconds=7),
            error_code=error,
            session_id=0 if error else self.session_id,
            responses=tuple(
                schema.FetchableTopicResponse(**{name: topic}, partitions=tuple(parts))
                for topic, parts in topics.items()
                if not error
            ),
        )


def want(session: FetchSession, tp: TopicPartition, offset: int, topic_id: uuid.UUID | None = None) -> None:
    session.want(tp, offset, topic_id=topic_id or IDS[tp.topic], max_bytes=1000)


def turn(session: FetchSession, broker: Broker) -> dict[TopicPartition, int]:
    return {f.tp: f.offset for f in session.take(broker.answer(session.request()))}


tps = st.builds(TopicPartition, st.sampled_from(sorted(IDS)), st.integers(0, 2))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("want"), tps, st.integers(0, 5)),
        st.tuples(st.just("drop"), tps, st.just(0)),
        st.tuples(st.sampled_from(["turn", "lost session", "no room", "reconnect", "recreate"]), tps, st.just(0)),
    ),
    max_size=60,
)


@settings(deadline=None)  # a schema loads when it is first used
@given(steps, st.sampled_from([10, 12, 13, 17, 18]))
def test_the_broker_always_holds_what_is_wanted(script: list[tuple[str, TopicPartition, int]], version: int) -> None:
    session, broker = FetchSession(version, isolation="read_committed"), Broker(version)
    wanted: dict[TopicPartition, int] = {}
    ids = dict(IDS)
    for step, tp, offset in script:
        if step == "want":
            want(session, tp, offset, ids[tp.topic])
            wanted[tp] = offset
        elif step == "drop":
            session.drop(tp)
            wanted.pop(tp, None)
        elif step == "lost session":
            broker.session_id += 100
        elif step == "no room":
            broker.has_room = not broker.has_room
        elif step == "reconnect":
            broker = Broker(version)
            session.restart()
        elif step == "recreate":
            ids[tp.topic] = uuid.UUID(int=ids[tp.topic].int + 1000)
            for each in [each for each in wanted if each.topic == tp.topic]:
                want(session, each, wanted[each], ids[tp.topic])
        else:
            found = turn(session, broker)
            if not found:
                found = turn(session, broker)  # a session error: the next one starts over
            assert found == wanted
            by_key = {(ids[tp.topic] if version >= 13 else tp.topic, tp.partition): o for tp, o in wanted.items()}
            assert broker.held == by_key
    assert len(session) == len(wanted)


def names(request: Any) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


def test_only_what_changed_is_named() -> None:
    session, broker = FetchSession(17), Broker(17)
    for n in range(3):
        want(session, TopicPartition("t0", n), 0)
    first = session.request()
    assert names(first) == 3
    session.take(broker.answer(first))
    want(session, TopicPartition("t0", 1), 0)  # the same again: nothing to say
    quiet = session.request()
    assert names(quiet) == 0
    session.take(broker.answer(quiet))
    want(session, TopicPartition("t0", 1), 9)
    session.drop(TopicPartition("t0", 2))
    moved = session.request()
    assert names(moved) == 1
    assert moved.topics[0].partitions[0].fetch_offset == 9
    assert moved.forgotten_topics_data[0].partitions == (2,)


def test_answers_overtaken_by_a_change_are_left_out() -> None:
    session, broker = FetchSession(12), Broker(12)
    for n in range(3):
        want(session, TopicPartition("t0", n), 0)
    response = broker.answer(session.request())
    session.drop(TopicPartition("t0", 0))
    want(session, TopicPartition("t0", 1), 50)
    assert [f.partition for f in session.take(response)] == [2]
    assert turn(session, broker) == {TopicPartition("t0", 1): 50, TopicPartition("t0", 2): 0}


def test_what_is_read_of_an_answer() -> None:
    session, broker = FetchSession(12), Broker(12)
    want(session, TopicPartition("t0", 1), 41)
    [one] = session.take(broker.answer(session.request()))
    assert (one.topic, one.partition, one.offset, one.high_watermark, one.last_stable_offset) == ("t0", 1, 41, 42, 41)
    assert (one.aborted, one.records, one.error, one.leader) == (((5, 6),), b"r", 0, -1)
    assert session.throttle_ms == 7


def test_full_requests_rotate() -> None:
    session, broker = FetchSession(12), Broker(12, has_room=False)
    for n in range(3):
        want(session, TopicPartition("t0", n), 0)
    firsts = set()
    for _ in range(3):
        request = session.request()
        firsts.add(request.topics[0].partitions[0].partition)
        session.take(broker.answer(request))
    assert firsts == {0, 1, 2}


def test_another_error_is_raised_and_the_next_request_is_full() -> None:
    session, broker = FetchSession(12), Broker(12)
    want(session, TopicPartition("t0", 0), 0)
    turn(session, broker)
    session.request()
    with pytest.raises(BrokerError) as caught:
        session.take(broker.response(error=ErrorCode.cluster_authorization_failed))
    assert caught.value.code == 31
    assert names(session.request()) == 1


def test_one_request_at_a_time() -> None:
    session = FetchSession(12)
    session.request()
    with pytest.raises(RuntimeError):
        session.request()


def test_a_topic_without_id_needs_an_older_version() -> None:
    with pytest.raises(VersionUnsupported):
        FetchSession(13).want(TopicPartition("t0", 0), 0, topic_id=None, max_bytes=1)
    FetchSession(12).want(TopicPartition("t0", 0), 0, topic_id=None, max_bytes=1)


def test_farewell_closes_the_brokers_session() -> None:
    session, broker = FetchSession(17), Broker(17)
    assert session.farewell() is None
    want(session, TopicPartition("t0", 0), 0)
    turn(session, broker)
    farewell = session.farewell()
    assert farewell is not None
    assert (farewell.session_id, farewell.session_epoch) == (broker.session_id, -1)
    encode(farewell, 1, "x")
    assert names(session.request()) == 1


def test_a_thousand_partitions_cost_what_changed() -> None:
    """request() on 1,000 partitions with one change must not cost as if all had changed: O(changed)."""

    def cost_s(partitions: int) -> float:
        session, broker = FetchSession(12), Broker(12)
        for n in range(partitions):
            want(session, TopicPartition("t0", n), 0)
        session.take(broker.answer(session.request()))
        best = 1.0
        for offset in range(1, 60):
            want(session, TopicPartition("t0", 3), offset)
            began = time.perf_counter()
            request = session.request()
            best = min(best, time.perf_counter() - began)
            broker.held.clear()
            session.take(broker.answer(request))
        return best

    assert cost_s(5000) < 10 * cost_s(5)


def test_one_batch_a_partition() -> None:
    request = produce_request(9, [("a", 0, b"x"), ("b", 0, b"y"), ("a", 1, b"z")], timeout_ms=1234)
    assert request.topics == {"a": {0: b"x", 1: b"z"}, "b": {0: b"y"}}
    assert request.timeout_ms == 1234
    with pytest.raises(ValueError):
        produce_request(9, [("a", 0, b"x"), ("a", 0, b"y")])


@pytest.mark.parametrize("version", range(7, 13))
def test_what_is_read_of_a_produce_answer(version: int) -> None:
    schema: Any = load_entity_module("produce", version, EntityType.response)
    late = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC)
    newer: dict[str, Any] = {}
    if version >= 8:
        why = schema.BatchIndexAndErrorMessage(batch_index=4, batch_index_error_message="no key")
        newer = {"record_errors": (why,), "error_message": "bad"}
    part = schema.PartitionProduceResponse(
        index=3, error_code=ErrorCode.none, base_offset=77, log_append_time=late, log_start_offset=2, **newer
    )
    topic = schema.TopicProduceResponse(name="t", partition_responses=(part,))
    [one] = produced(schema.ProduceResponse(responses=(topic,)))
    assert (one.topic, one.partition, one.error, one.base_offset, one.log_start_offset) == ("t", 3, 0, 77, 2)
    assert one.log_append_time_ms == round(late.timestamp() * 1000)
    assert (one.message, one.record_errors) == (("bad", ((4, "no key"),)) if version >= 8 else ("", ()))

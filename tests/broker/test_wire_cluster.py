"""Clients and fetch sessions on real brokers: topics, offsets, producer states, leaders that move, brokers that go."""

from __future__ import annotations

import itertools
import select
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from heliograph.batch import patch
from heliograph.embedded import Kafka
from heliograph.errors import BrokerError, ConnectionLost, Unreachable
from heliograph.types import TopicPartition
from heliograph.wire import (
    Client,
    Connection,
    Dialer,
    Fetched,
    FetchSession,
    NewTopic,
    bootstrap_addresses,
    produce_request,
    produced,
    versions,
)
from tests.kit import SOON_BACK, Record, create_topic, produce, read_all, wait_until


@pytest.fixture
def client(primary: Kafka) -> Iterator[Client]:
    with Client(primary.cluster("west")) as client:
        yield client


@pytest.fixture(scope="module")
def three() -> Iterator[Kafka]:
    with Kafka("three", brokers=3, config={**SOON_BACK, "auto.create.topics.enable": "false"}) as kafka:
        yield kafka


# or the broker would take the batch for a repetition when it comes again
NO_SEQUENCE = {"enable.idempotence": False}


@pytest.fixture(scope="module")
def roomy() -> Iterator[Kafka]:
    with Kafka("roomy", security=("PLAINTEXT", "SSL"), config={"message.max.bytes": "2000000"}) as kafka:
        yield kafka


def first_batch(records: bytes) -> bytes:
    return records[: 12 + int.from_bytes(records[8:12], "big")]


def a_batch(client: Client, kafka: Kafka, topic: str) -> bytes:
    """A batch as another implementation makes it, ready to be appended anywhere: base offset 0."""
    record = Record(b"k", b"v", timestamp_ms=int(time.time() * 1000))
    produce(kafka.confluent(), topic, [record], config=NO_SEQUENCE)
    return first_batch(client.fetch(TopicPartition(topic, 0), 0, max_wait_ms=500).records)


def sequenced(client: Client, batch: bytes) -> Iterator[bytes]:
    """The batch again and again, as an idempotent producer sends it: only such a one is repeated."""
    [(producer_id, epoch)] = client.init_producer_ids(1)
    for sequence in itertools.count():
        data = bytearray(batch)
        patch(data, producer_id, epoch, sequence)
        yield bytes(data)


def test_topics_are_created_grown_described_deleted(client: Client, primary: Kafka, topic_name: str) -> None:
    tp = TopicPartition(topic_name, 0)
    results = client.create_topics(
        [NewTopic(topic_name, 2, 1, {"retention.ms": "12345678"}), NewTopic(f"{topic_name}-x", 1, 5)]
    )
    assert results[topic_name] is None
    too_many = results[f"{topic_name}-x"]
    assert isinstance(too_many, BrokerError)
    assert too_many.code == 38
    assert "replication.factor" in str(too_many)
    again = client.create_topics([NewTopic(topic_name)])[topic_name]
    assert again is not None
    assert again.name == "TOPIC_ALREADY_EXISTS"

    assert client.create_partitions({topic_name: 3}) == {topic_name: None}
    wait_until(lambda: len(client.metadata([topic_name]).topics[topic_name].partitions) == 3)
    topic = client.metadata([topic_name]).topics[topic_name]
    assert topic.id is not None
    assert {p.leader for p in topic.partitions.values()} == {1}
    assert client.cluster_id() == primary.cluster_id

    configs = client.describe_topic_configs([topic_name, "absent"])
    mine = configs[topic_name]
    assert isinstance(mine, dict)
    assert (mine["retention.ms"].value, mine["retention.ms"].is_default) == ("12345678", False)
    assert mine["cleanup.policy"].is_default
    assert isinstance(configs["absent"], BrokerError)

    assert client.list_offsets([tp], at="latest") == {tp: 0}
    assert client.delete_topics([topic_name, "absent"])[topic_name] is None
    wait_until(lambda: topic_name not in client.metadata().topics)


def test_asking_never_creates_a_topic(roomy: Kafka) -> None:
    with Client(roomy.cluster()) as client:  # auto.create.topics.enable is on here, as it comes
        assert client.metadata(["ghost"]).topics["ghost"].error == 3
        assert "ghost" not in client.metadata().topics


def test_offsets_by_place_and_time(client: Client, primary: Kafka, topic_name: str) -> None:
    create_topic(primary.confluent(), topic_name, 2, config={"retention.ms": "-1"})
    times = [1_700_000_000_000 + n * 1000 for n in range(5)]
    produce(primary.confluent(), topic_name, [Record(None, b"v", timestamp_ms=t) for t in times])
    zero, one = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    assert client.list_offsets([zero, one], at="latest") == {zero: 5, one: 0}
    assert client.list_offsets([zero, one], at="earliest") == {zero: 0, one: 0}
    assert client.list_offsets([zero, one], at=times[2] - 1) == {zero: 2, one: -1}
    absent = TopicPartition("absent", 0)
    mixed = client.list_offsets([zero, absent], at="latest", timeout_s=1)
    assert mixed[zero] == 5
    assert isinstance(mixed[absent], BrokerError)


def test_produce_and_fetch_one_batch(client: Client, primary: Kafka, new_topic: Callable[[], str]) -> None:
    source, target = create_topic(primary.confluent(), new_topic()), create_topic(primary.confluent(), new_topic())
    batch = a_batch(client, primary, source)
    first = client.produce(TopicPartition(target, 0), bytearray(batch))
    second = client.produce(TopicPartition(target, 0), memoryview(batch))
    assert (first.base_offset, second.base_offset, second.error) == (0, 1, 0)
    assert [record.value for record in read_all(primary.confluent(), target)[0]] == [b"v", b"v"]
    with pytest.raises(BrokerError) as caught:
        client.fetch(TopicPartition(target, 0), 99)
    assert caught.value.name == "OFFSET_OUT_OF_RANGE"
    with pytest.raises(BrokerError) as caught:
        client.produce(TopicPartition(target, 0), b"not a batch")
    assert caught.value.code in (2, 87)


def test_producer_ids_and_what_the_leader_holds_of_them(client: Client, primary: Kafka, topic_name: str) -> None:
    create_topic(primary.confluent(), topic_name, 2)
    ids = client.init_producer_ids(150)
    assert len({producer_id for producer_id, _ in ids}) == 150
    produce(primary.confluent(), topic_name, [Record(None, b"v")] * 3, config={"enable.idempotence": True})
    zero, one, absent = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1), TopicPartition("absent", 0)
    found = client.describe_producers([zero, one, absent], timeout_s=1)
    held = found[zero]
    assert isinstance(held, dict)
    [state] = held.values()
    assert (state.epoch, state.last_sequence) == (0, 2)
    assert found[one] == {}
    assert isinstance(found[absent], BrokerError)


def test_the_calls_as_an_old_broker_would_take_them(
    primary: Kafka, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No 2.8 broker is at hand, but this one still takes the versions that 2.8 has: topics by name, older shapes."""
    highest = {0: 9, 1: 12, 2: 6, 3: 11, 22: 4}
    real = versions.ranges_of

    def as_2_8(answer: object) -> dict[int, tuple[int, int]]:
        return {key: (low, min(high, highest.get(key, high))) for key, (low, high) in real(answer).items()}

    monkeypatch.setattr(versions, "ranges_of", as_2_8)
    tp = TopicPartition(topic_name, 0)
    with Client(primary.cluster("old")) as client:
        assert client.create_topics([NewTopic(topic_name, 1, 1)]) == {topic_name: None}
        wait_until(lambda: client.metadata([topic_name]).topics[topic_name].error == 0)
        batch = a_batch(client, primary, topic_name)
        assert client.produce(tp, batch).base_offset == 1
        assert client.list_offsets([tp], at="latest") == {tp: 2}
        assert client.describe_producers([tp]) == {tp: {}}
        assert len(client.init_producer_ids(3)) == 3
        connection = opened(primary)
        assert (connection.version("produce"), connection.version("fetch"), connection.version("metadata")) == (
            9,
            12,
            11,
        )
        connection.close()
        assert client.delete_topics([topic_name]) == {topic_name: None}


# -- fetch sessions --------------------------------------------------------------------------------------------------


def opened(kafka: Kafka) -> Connection:
    cluster = kafka.cluster("west")
    return Connection.open(bootstrap_addresses(cluster)[0], cluster)


def batches(fetched: Fetched) -> Iterator[tuple[int, int]]:
    at, data = 0, fetched.records
    while at + 61 <= len(data):
        base, size = int.from_bytes(data[at : at + 8], "big"), int.from_bytes(data[at + 8 : at + 12], "big")
        if at + 12 + size > len(data):
            return
        yield base, base + int.from_bytes(data[at + 23 : at + 27], "big")
        at += 12 + size


@pytest.fixture(scope="module")
def wide(primary: Kafka) -> Iterator[tuple[str, uuid.UUID]]:
    """A topic of a thousand partitions."""
    with Client(primary.cluster()) as client:
        assert client.create_topics([NewTopic("wide", 1000, 1)], timeout_s=60) == {"wide": None}
        wait_until(lambda: len(client.metadata(["wide"]).topics["wide"].partitions) == 1000)
        topic_id = client.metadata(["wide"]).topics["wide"].id
        assert topic_id is not None
        yield "wide", topic_id
        client.delete_topics(["wide"])


def drain(connection: Connection, session: FetchSession, topic_id: uuid.UUID, until: dict[TopicPartition, int]) -> int:
    """Fetch, moving on, until these offsets are reached. Returns how many partitions the requests named."""
    named, left = 0, dict(until)
    while left:
        request = session.request()
        named += sum(len(topic.partitions) for topic in request.topics)
        for one in session.take(connection.call(request)):
            assert one.error == 0
            end = max([last + 1 for _, last in batches(one)], default=one.offset)
            session.want(one.tp, end, topic_id=topic_id, max_bytes=1 << 20)
            if left.get(one.tp, end + 1) <= end:
                del left[one.tp]
    return named


@pytest.mark.parametrize("at_most", [12, None], ids=["by name", "by id"])
def test_a_thousand_partitions_in_one_session(primary: Kafka, wide: tuple[str, uuid.UUID], at_most: int | None) -> None:
    topic, topic_id = wide
    tps = [TopicPartition(topic, n) for n in range(1000)]
    produce(primary.confluent(), topic, [Record(None, b"v", partition=n) for n in range(1000)])
    connection = opened(primary)
    with Client(primary.cluster()) as client:
        ends = {tp: end for tp, end in client.list_offsets(tps, at="latest").items() if isinstance(end, int)}
    assert len(ends) == 1000
    session = FetchSession(connection.version("fetch", at_most=at_most), max_wait_ms=200)
    for tp in tps:
        session.want(tp, ends[tp] - 1, topic_id=topic_id, max_bytes=1 << 20)
    assert drain(connection, session, topic_id, ends) >= 1000
    session.take(connection.call(session.request()))  # what moved last is said

    produce(primary.confluent(), topic, [Record(None, b"w", partition=n) for n in (3, 999)])
    more = {tps[n]: ends[tps[n]] + 1 for n in (3, 999)}
    assert drain(connection, session, topic_id, more) <= 4  # of a thousand
    farewell = session.farewell()
    assert farewell is not None
    assert connection.call(farewell).error_code == 0
    connection.close()


def test_a_session_the_broker_forgot_starts_over(primary: Kafka, client: Client, topic_name: str) -> None:
    create_topic(primary.confluent(), topic_name)
    produce(primary.confluent(), topic_name, [Record(None, b"v")])
    topic_id = client.metadata([topic_name]).topics[topic_name].id
    connection = opened(primary)
    session = FetchSession(connection.version("fetch"), max_wait_ms=50)
    session.want(TopicPartition(topic_name, 0), 0, topic_id=topic_id, max_bytes=1000)
    assert session.take(connection.call(session.request()))
    session._session_id += 1_000_000  # as if the broker had restarted
    assert session.take(connection.call(session.request())) == []
    assert session.take(connection.call(session.request()))
    session._epoch += 5
    assert session.take(connection.call(session.request())) == []
    assert session.take(connection.call(session.request()))
    connection.close()


def test_a_topic_made_anew_under_its_name(primary: Kafka, client: Client, topic_name: str) -> None:
    tp = TopicPartition(topic_name, 0)
    create_topic(primary.confluent(), topic_name)
    old = client.metadata([topic_name]).topics[topic_name].id
    connection = opened(primary)
    session = FetchSession(connection.version("fetch"), max_wait_ms=50)
    session.want(tp, 0, topic_id=old, max_bytes=1000)
    session.take(connection.call(session.request()))
    client.delete_topics([topic_name])
    wait_until(lambda: topic_name not in client.metadata().topics)
    errors: list[int] = []

    def noticed() -> bool:
        errors.extend(one.error for one in session.take(connection.call(session.request())))
        return any(errors)

    wait_until(noticed, what="an error for the deleted topic")
    assert set(errors) - {0} <= {3, 100, 103}
    create_topic(primary.confluent(), topic_name)
    produce(primary.confluent(), topic_name, [Record(None, b"new")])
    session.want(tp, 0, topic_id=client.metadata([topic_name]).topics[topic_name].id, max_bytes=1000)
    found: list[Fetched] = []

    def arrived() -> bool:
        found.extend(one for one in session.take(connection.call(session.request())) if one.records)
        return bool(found)

    wait_until(arrived, what="the new topic's record")
    connection.close()


@pytest.mark.parametrize("security", ["PLAINTEXT", "SSL"])
def test_large_answers_and_many_requests_without_blocking(
    roomy: Kafka, security: str, new_topic: Callable[[], str]
) -> None:
    """40 MB in one answer, then 60 produce requests of 900 KB in flight, over a plain and a TLS connection."""
    topic, target = create_topic(roomy.confluent(), new_topic()), create_topic(roomy.confluent(), new_topic())
    produce(roomy.confluent(), topic, [Record(None, bytes(900_000))] * 45, config=NO_SEQUENCE)
    cluster = roomy.cluster("west", security=security)
    with Client(cluster) as client:
        topic_id = client.metadata([topic]).topics[topic].id
    connection = Connection.open(bootstrap_addresses(cluster)[0], cluster)
    session = FetchSession(connection.version("fetch"), max_bytes=60 << 20)
    session.want(TopicPartition(topic, 0), 0, topic_id=topic_id, max_bytes=60 << 20)
    [one] = session.take(connection.call(session.request()))
    assert len(one.records) > 40_000_000
    assert [base for base, _ in batches(one)] == list(range(45))

    batch = bytearray(first_batch(one.records))
    version = connection.version("produce")
    for n in range(60):
        connection.send(produce_request(version, [(target, 0, batch)]), n)
    answered: list[tuple[object, int]] = []
    while len(answered) < 60:
        writers = [connection] if connection.wants_write else []
        readable, writable, _ = select.select([connection], writers, [], 60)
        assert readable or writable, "nothing moves"
        if writable:
            connection.flush()
        answered += [(tag, produced(response)[0].base_offset) for tag, response in connection.receive()]
    assert answered == [(n, n) for n in range(60)]
    assert connection.in_flight == 0
    connection.close()


# -- brokers that go and leaders that move ----------------------------------------------------------------------------


def test_leaders_move_while_a_client_works(three: Kafka, topic_name: str) -> None:
    create_topic(three.confluent(), topic_name, 3, replication_factor=3)
    tps = [TopicPartition(topic_name, n) for n in range(3)]
    with Client(three.cluster("west")) as client:
        batches = sequenced(client, a_batch(client, three, topic_name))
        assert set(client.list_offsets(tps, at="earliest").values()) == {0}
        gone = three.brokers[client.metadata([topic_name]).topics[topic_name].partitions[0].leader - 1]
        appended = client.produce(tps[0], next(batches)).base_offset
        gone.kill()
        assert client.produce(tps[0], next(batches)).base_offset == appended + 1
        assert client.list_offsets(tps, at="latest")[tps[0]] == appended + 2
        assert all(isinstance(held, dict) for held in client.describe_producers(tps).values())
        assert client.metadata([topic_name]).topics[topic_name].partitions[0].leader != gone.id
        gone.start()
        wait_until(lambda: len(client.metadata([topic_name]).topics[topic_name].partitions[0].isr) == 3)


def test_a_fetch_says_who_leads_now(three: Kafka, topic_name: str) -> None:
    create_topic(three.confluent(), topic_name, 1, replication_factor=3)
    tp = TopicPartition(topic_name, 0)
    with Client(three.cluster("west")) as client:
        found = client.metadata([topic_name])
        leader = found.topics[topic_name].partitions[0].leader
        other = next(broker for broker in found.brokers if broker != leader)
        connection = Connection.open(found.brokers[other], three.cluster("west"))
        produced_there = produced(
            connection.call(
                produce_request(connection.version("produce"), [(topic_name, 0, a_batch(client, three, topic_name))])
            )
        )[0]
        assert (produced_there.error, produced_there.leader) == (6, leader)
        session = FetchSession(connection.version("fetch"), max_wait_ms=50)
        session.want(tp, 0, topic_id=found.topics[topic_name].id, max_bytes=1000, leader_epoch=0)
        [one] = session.take(connection.call(session.request()))
        # A follower may serve consumers since 2.4; only a wrong epoch or an offline replica makes it say no.
        assert one.error in (0, 6)
        connection.close()


def test_a_broker_restarts_under_a_client(topic_name: str) -> None:
    with Kafka("phoenix", config=SOON_BACK) as kafka, Client(kafka.cluster("west")) as client:
        create_topic(kafka.confluent(), topic_name)
        tp = TopicPartition(topic_name, 0)
        batch = next(sequenced(client, a_batch(client, kafka, topic_name)))
        connection = Connection.open(bootstrap_addresses(kafka.cluster("west"))[0], kafka.cluster("west"))
        kafka.brokers[0].kill()
        with pytest.raises(ConnectionLost):
            connection.call(produce_request(connection.version("produce"), [(topic_name, 0, batch)]))
        with pytest.raises((Unreachable, ConnectionLost)):
            client.metadata([], timeout_s=0.5)

        dialer = Dialer()
        address = bootstrap_addresses(kafka.cluster("west"))[0]
        starter = threading.Thread(target=kafka.brokers[0].start)
        starter.start()
        assert client.produce(tp, batch).error == 0  # waits for the broker, and finds it
        starter.join()
        dialer.dial(address, kafka.cluster("west"))
        assert select.select([dialer], [], [], 10)[0]
        [(where, dialled)] = dialer.ready()
        assert where == address
        assert isinstance(dialled, Connection)
        dialled.close()
        dialer.close()

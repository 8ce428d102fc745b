"""State topics on a real broker: recreated under a reader, written with lost answers, in transactions that abort."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from confluent_kafka import Producer

from heliograph.batch import Record, encode
from heliograph.embedded import Kafka
from heliograph.errors import BrokerError
from heliograph.mirror.positions import Position
from heliograph.state.compacted import CompactedLog
from heliograph.state.positions import PositionsLog
from heliograph.types import Factor, Flow, TopicPartition
from heliograph.wire import Client
from heliograph.wire.codes import INCONSISTENT_TOPIC_ID
from tests.kit import wait_until

ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def client(backup: Kafka) -> Iterator[Client]:
    with Client(backup.cluster()) as client:
        yield client


@pytest.fixture
def log(client: Client, new_topic: Callable[[], str]) -> CompactedLog:
    log = CompactedLog(client, new_topic())
    log.ensure(1, Factor(1))
    return log


def keys(log: CompactedLog) -> list[bytes | None]:
    return [record.key for _, record in log.news()]


def recreate(client: Client, topic: str) -> None:
    assert client.delete_topics([topic]) == {topic: None}
    wait_until(lambda: not client.metadata([topic]).topics[topic].partitions, what=f"{topic} to be gone")


def test_a_positions_topic_that_is_recreated_under_a_reader(
    primary: Kafka, backup: Kafka, client: Client, new_topic: Callable[[], str]
) -> None:
    flow = Flow(
        primary.cluster(),
        backup.cluster(),
        positions_topic=new_topic(),
        offset_storage_partitions=2,
        offset_storage_replication_factor=1,
    )
    mine = {ONE: Position(100, 7, 0, 100, UUID(int=1), 100), OTHER: Position(5)}
    log = PositionsLog(client, flow)
    log.ensure()
    log.write(mine)
    assert log.catch_up() == mine
    for _ in range(2):
        recreate(client, log.topic)
        log.ensure()
        assert log.catch_up() == mine
        with Client(backup.cluster()) as another:
            starts_now = PositionsLog(another, flow)
            assert starts_now.find()
            assert starts_now.catch_up() == mine


def test_a_recreated_topic_that_has_grown_beyond_what_was_read(client: Client, log: CompactedLog) -> None:
    log.append(0, [(b"a", b"1")])
    assert keys(log) == [b"a"]
    old_id = client.metadata([log.topic]).topics[log.topic].id
    recreate(client, log.topic)
    again = CompactedLog(client, log.topic)
    again.ensure(1, Factor(1))
    again.append(0, [(b"x", b"1"), (b"y", b"1")])
    assert keys(log) == [b"x", b"y"]
    log.append(0, [(b"z", b"1")])  # under the producer id that it has had
    assert keys(log) == [b"z"]
    with pytest.raises(BrokerError) as caught:
        client.fetch(TopicPartition(log.topic, 0), 0, topic_id=old_id)
    assert caught.value.code == INCONSISTENT_TOPIC_ID


def test_a_batch_that_is_sent_again_behind_others_is_stored_once(client: Client, log: CompactedLog) -> None:
    tp = TopicPartition(log.topic, 0)
    producer_id, epoch = client.init_producer_ids(1)[0]
    numbers = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    batch = encode([Record(0, 1_700_000_000_000, b"a", b"ours")], **numbers)
    first = client.produce(tp, batch).base_offset
    log.append(0, [(b"a", b"theirs")])
    assert client.produce(tp, batch).base_offset == first
    assert [(record.key, record.value) for _, record in log.news()] == [(b"a", b"ours"), (b"a", b"theirs")]


def test_aborted_records_are_no_state(backup: Kafka, log: CompactedLog) -> None:
    settings = {**backup.confluent(), "transactional.id": log.topic, "linger.ms": 0, "log_level": 3}
    producer = Producer(settings)
    producer.init_transactions(30)
    for key, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(log.topic, b"v", key, partition=0)
        producer.flush(30)
        log.append(0, [(b"beside " + key, b"v")])
        end(30)
    assert keys(log) == [b"beside aborted", b"committed", b"beside committed"]


def test_where_an_epoch_ends_is_what_the_leader_says(client: Client, log: CompactedLog) -> None:
    log.append(0, [(b"a", b"1"), (b"b", b"1")])
    tp = TopicPartition(log.topic, 0)
    epoch = client.metadata([log.topic]).topics[log.topic].partitions[0].leader_epoch
    assert client.epoch_end_offsets({tp: epoch}) == {tp: 2}

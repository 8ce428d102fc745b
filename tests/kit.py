"""What broker tests need of a Kafka client, by confluent-kafka: an implementation that shares no code with ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
)

from heliograph.mirror.protocol import DriverMessage

NOT_LED_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

# For brokers that a test kills: the controller takes one back only when its old session has ended. (Not the default: a
# machine at its limit would lose brokers that live.)
SOON_BACK = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "3000"}

# A wait's bound tells what hangs from what works; how fast something is, the benchmark says. Bounds are written for a
# quiet machine, and a busy one gets so many times as long.
PATIENCE = 3


class Record(NamedTuple):
    """Everything of a record that a copy must keep."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    partition: int = 0
    offset: int = -1  # left out when copies are compared: see `content`

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]:
        return self.key, self.value, self.headers, self.timestamp_ms


def create_topic(
    client: Mapping[str, str],
    name: str,
    partitions: int = 1,
    *,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> str:
    """Create it and wait until every partition has a leader, on every broker that is asked."""
    admin = AdminClient(dict(client))
    new = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(config or {}))
    admin.create_topics([new])[name].result(30)

    def led(asked: AdminClient) -> bool:
        topic = asked.list_topics(name, timeout=10).topics[name]
        return len(topic.partitions) == partitions and all(one.leader >= 0 for one in topic.partitions.values())

    wait_until(lambda: led(admin), what=f"leaders for {name}")
    brokers = admin.list_topics(name, timeout=10).brokers.values()
    for broker in brokers if len(brokers) > 1 else ():  # each learns of it by itself
        there = AdminClient({**client, "bootstrap.servers": f"{broker.host}:{broker.port}"})
        wait_until(lambda asked=there: led(asked), what=f"leaders for {name} on {broker}")  # type: ignore[misc]
    return name


def alter_topic(client: Mapping[str, str], name: str, changes: Mapping[str, str | None]) -> None:
    """Its settings, in one request; None removes the topic's own. Not waited for: it may be undone at once."""
    operations = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
    entries = [ConfigEntry(key, new, incremental_operation=operations[new is None]) for key, new in changes.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    admin = AdminClient(dict(client))  # held: without it its answers never come
    admin.incremental_alter_configs([resource])[resource].result(30)


def own_settings(client: Mapping[str, str], name: str) -> dict[str, str]:
    """What is set on the topic itself."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    admin = AdminClient(dict(client))
    entries = admin.describe_configs([resource])[resource].result(30)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {key: str(entry.value) for key, entry in entries.items() if entry.source == own}


def produce(
    client: Mapping[str, str], topic: str, records: Iterable[Record], *, config: Mapping[str, object] | None = None
) -> None:
    """Append these, each to its own partition, in order; raise if one is refused. `config`: e.g. compression.type."""
    # In order by one request at a time. With idempotence librdkafka would wait half a second for a producer id; where
    # batches with one matter, a test asks for it (and Java's producer, `Feed` and transactions always have one).
    ordered = {"acks": "all", "max.in.flight.requests.per.connection": 1, "linger.ms": 5, "log_level": 3}
    producer = Producer({**client, **ordered, **(config or {})})
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for record in records:
        options: dict[str, object] = {"timestamp": record.timestamp_ms} if record.timestamp_ms else {}
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    headers=list(record.headers),
                    on_delivery=delivered,
                    **options,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(60)
    if left or failures:
        raise KafkaException(failures[0]) if failures else TimeoutError(f"{left} records of {topic} not acknowledged")


def end_offsets(client: Mapping[str, str], topic: str) -> dict[int, int]:
    """The high watermark of every partition."""
    consumer = _consumer(client)
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return {one: _end(consumer, TopicPartition(topic, one)) for one in partitions}
    finally:
        consumer.close()


def _end(consumer: Consumer, tp: TopicPartition) -> int:
    """A broker may not know yet that it leads a partition which the cluster has just given to it."""
    deadline = time.monotonic() + 15
    while True:
        try:
            return int(consumer.get_watermark_offsets(tp, timeout=10)[1])
        except KafkaException as error:
            if error.args[0].code() not in NOT_LED_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def read_all(
    client: Mapping[str, str], topic: str, *, isolation: str = "read_committed", timeout_seconds: float = 60
) -> dict[int, list[Record]]:
    """Every record of the topic up to its end as of now, by partition, in order."""
    consumer = _consumer(client, isolation)
    try:
        partitions = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        found: dict[int, list[Record]] = {one: [] for one in partitions}
        consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
        open_ends = set(partitions)
        deadline = time.monotonic() + timeout_seconds * PATIENCE
        while open_ends:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: partitions {sorted(open_ends)} not read to their end")
            for message in consumer.consume(10_000, timeout=0.03):  # returns no sooner, however little there is
                error = message.error()
                if error is None:
                    found[message.partition()].append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(message.partition())
                else:
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()


def contents(read: Mapping[int, list[Record]]) -> dict[int, list[tuple[object, ...]]]:
    """What must be equal between a topic and its copy: key, value, headers, timestamp, in order by partition."""
    return {partition: [record.content for record in records] for partition, records in read.items()}


def wait_until(
    condition: Callable[[], object], *, what: str = "", timeout_seconds: float = 60, every_seconds: float = 0.02
) -> None:
    """Poll until the condition holds; a test's only way of waiting. The bound is PATIENCE times as long."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > timeout_seconds * PATIENCE:
            raise TimeoutError(f"{what or condition} did not come true in {waited:.0f} s")
        time.sleep(every_seconds)


def _consumer(client: Mapping[str, str], isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            **client,
            "group.id": "kit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 64 << 20,
            "fetch.wait.max.ms": 10,
        }
    )


def _record(message: Message) -> Record:
    _, timestamp_ms = message.timestamp()
    headers = tuple(message.headers() or ())
    return Record(
        message.key(),
        message.value(),
        headers,
        timestamp_ms,
        message.partition(),
        message.offset(),
    )


class Heard:
    """A task's end of a coordinator's channel: keeps what was sent."""

    def __init__(self) -> None:
        self.messages: list[DriverMessage] = []

    @property
    def words(self) -> list[str]:
        """The kinds of messages, in order."""
        return [str(type(message).__struct_config__.tag) for message in self.messages]

    def send(self, message: DriverMessage) -> None:
        self.messages.append(message)

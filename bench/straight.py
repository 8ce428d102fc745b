"""The straightforward way to multiplex and to put back: consume and produce record by record, with confluent-kafka.

A peer of its own, as somebody writes it in an afternoon, in its generous form: a thousand records asked for at once,
librdkafka's own batches, nothing waited for one by one. At least once: positions are the group's, committed now and
then. `python -m bench.straight mux|demux FROM TO INTO --group G TOPIC…`; INTO is the shared topic, or the prefix of
those that records go back to.
"""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime
from types import FrameType

import click
from confluent_kafka import Consumer, Message, Producer

AT_ONCE = 1_000
# Written and read here by their names alone, so that this shares no code with what it is compared with.
TOPIC, PARTITION, TIMESTAMP = "MUX_SOURCE_TOPIC", "MUX_SOURCE_TOPIC_PARTITION", "MUX_SOURCE_TIMESTAMP"
BOOTSTRAP, INTERMEDIATE = "MUX_SOURCE_BOOTSTRAP_SERVERS", "MUX_INTERMEDIATE_TOPIC"
IDENTIFIER, CLUSTER_ID, OFFSET = "MUX_SOURCE_IDENTIFIER", "MUX_SOURCE_CLUSTER_ID", "MUX_SOURCE_OFFSET"
LABELS = frozenset({TOPIC, PARTITION, TIMESTAMP, BOOTSTRAP, INTERMEDIATE, IDENTIFIER, CLUSTER_ID, OFFSET})

Headers = list[tuple[str, str | bytes | None]]
Way = tuple[str, int, int, Headers]  # topic, partition (-1: by key), milliseconds, headers


def labelled(message: Message, bootstrap: str, into: str, identifier: str, cluster_id: str) -> Way:
    time_ms = message.timestamp()[1]
    when = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    headers: Headers = [
        *(message.headers() or ()),
        (TOPIC, (message.topic() or "").encode()),
        (PARTITION, b"%d" % (message.partition() or 0)),
        (TIMESTAMP, when.encode()),
        (BOOTSTRAP, bootstrap.encode()),
        (INTERMEDIATE, into.encode()),
        (IDENTIFIER, identifier.encode()),
        (CLUSTER_ID, cluster_id.encode()),
        (OFFSET, b"%d" % (message.offset() or 0)),
    ]
    return into, -1, 0, headers


def put_back(message: Message, prefix: str) -> Way:
    headers: Headers = [*(message.headers() or ())]
    said = {name: value for name, value in headers if name in LABELS}
    topic, partition, when = (_text(said[name]) for name in (TOPIC, PARTITION, TIMESTAMP))
    time_ms = round(datetime.fromisoformat(when).timestamp() * 1000)
    return f"{prefix}{topic}", int(partition), time_ms, [one for one in headers if one[0] not in LABELS]


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


@click.command()
@click.argument("step", type=click.Choice(["mux", "demux"]))
@click.argument("source")
@click.argument("target")
@click.argument("into")
@click.argument("topics", nargs=-1, required=True)
@click.option("--group", required=True)
def main(step: str, source: str, target: str, into: str, topics: tuple[str, ...], group: str) -> None:
    """Until SIGTERM."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    consumer = Consumer(
        {"bootstrap.servers": source, "group.id": group, "auto.offset.reset": "earliest", "fetch.max.bytes": 64 << 20}
    )
    producer = Producer(
        {
            "bootstrap.servers": target,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 100,
            "batch.size": 512 * 1024,
            "queue.buffering.max.messages": 500_000,
        }
    )
    cluster_id = consumer.list_topics(timeout=30).cluster_id or ""
    consumer.subscribe(list(topics))
    while not stop.is_set():
        for message in consumer.consume(AT_ONCE, timeout=0.2):
            if message.error() is None:
                one = labelled(message, source, into, group, cluster_id) if step == "mux" else put_back(message, into)
                _send(producer, message, one)
        producer.poll(0)
    producer.flush(10)
    consumer.close()


def _send(producer: Producer, message: Message, way: Way) -> None:
    topic, partition, time_ms, headers = way
    while True:
        try:
            producer.produce(topic, message.value(), message.key(), partition, headers=headers, timestamp=time_ms)
            return
        except BufferError:
            producer.poll(0.1)


if __name__ == "__main__":
    main()

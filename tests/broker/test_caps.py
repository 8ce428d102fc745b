"""Caps and history on real brokers, by the bytes in the target's log: a cap is one figure for two tasks, over changes
of epochs; records that are written now overtake hundreds of megabytes' history that shares the cap with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from heliograph.embedded import Kafka
from heliograph.mirror.budget import BURST_S
from heliograph.types import Cap
from heliograph.types import TopicPartition as Partition
from heliograph.wire import Client
from tests.broker.engine import Engine, assert_same, one_flow
from tests.kit import Record, create_topic, produce, wait_until

MB = 1_000_000
CAP = 8 * MB
WINDOW_S = 5.0
PARTITIONS = 4
SMALL_BATCHES = {"batch.size": 64 << 10}  # as Java's producers make them, or nearly
VALUE = bytes(range(250)) * 40


def fill(kafka: Kafka, topic: str, size: int) -> None:
    create_topic(kafka.confluent(), topic, PARTITIONS)
    count = size // len(VALUE)
    records = (Record(b"%08d" % number, VALUE, partition=number % PARTITIONS) for number in range(count))
    produce(kafka.confluent(), topic, records, config=SMALL_BATCHES)


def behind(engine: Engine) -> set[str]:
    """Topics all of whose partitions are history."""
    partitions = engine.coordinator.report().partitions
    live = {one.topic for one in partitions if not one.history}
    return {one.topic for one in partitions} - live


def sized(engine: Engine) -> tuple[object, ...]:
    sizes = engine.coordinator.report().sizes
    return tuple(sizes.get(name) for name in ("tasks", "history", "live"))


class Log:
    """The broker's own word on how many bytes its log of a topic has."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._client = Client(kafka.cluster())
        self._tps = [Partition(topic, partition) for partition in range(PARTITIONS)]

    def bytes(self) -> int:
        while True:
            sizes = list(self._client.log_sizes(self._tps).values())
            if all(isinstance(size, int) for size in sizes):  # a leader may be new to its partition for a moment
                return sum(size for size in sizes if isinstance(size, int))

    def close(self) -> None:
        self._client.close()


class Pulse:
    """One record at a time: the next is written when the last was read on the other side. Waits, in seconds."""

    def __init__(self, primary: Kafka, backup: Kafka, topic: str, remote: str) -> None:
        self.waits: list[float] = []
        self._producer = Producer({**primary.confluent(), "linger.ms": 0})
        self._topic = topic
        self._consumer = Consumer({**backup.confluent(), "group.id": "pulse", "fetch.wait.max.ms": 20})
        self._consumer.assign([TopicPartition(remote, 0, 0)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._producer.produce(self._topic, b"now", partition=0)
            self._producer.flush(10)
            while (message := self._consumer.poll(0.05)) is None or message.error():
                if self._stopping.is_set():
                    return
            self.waits.append(time.monotonic() - began)

    def stop(self) -> list[float]:
        self._stopping.set()
        self._thread.join(20)
        self._consumer.close()
        return self.waits


def test_a_cap_is_one_figure_for_all_tasks_and_live_records_overtake_history(
    primary: Kafka, backup: Kafka, new_topic: Callable[[], str]
) -> None:
    old, live = new_topic(), new_topic()
    fill(primary, old, int(CAP * (WINDOW_S + 4)))
    create_topic(primary.confluent(), live, 1)
    source = primary.cluster(f"from-{old}")
    flow = one_flow(source, backup.cluster("to"), old, live, tasks_max=2, caps=(Cap(CAP),))
    remote = f"{source.alias}.{old}"
    with Engine(flow, epoch_seconds=3) as engine:
        engine.wait(lambda: (engine.status().bytes or 0) > CAP, what="a second's worth")
        pulse = Pulse(primary, backup, live, f"{source.alias}.{live}")
        log = Log(backup, remote)
        wait_until(lambda: pulse.waits, what="the first live record")
        engine.wait(lambda: behind(engine) == {old}, what="history told from what is live")
        engine.wait(lambda: sized(engine) == (2, PARTITIONS, 1), what="what both tasks say of it")
        epochs, began, first = engine.status().epoch, time.monotonic(), log.bytes()
        engine.wait(lambda: time.monotonic() > began + WINDOW_S, what="the window")
        last, ended = log.bytes(), time.monotonic()
        report, turned = engine.coordinator.report(), engine.status().epoch - epochs
        waits = pulse.stop()
        log.close()
        engine.wait_copied(old, live)
    per_second = (last - first) / (ended - began)
    print(f"{per_second / MB:.2f} MB/s of {CAP / MB:g}, {turned} epochs; {len(waits)} live, longest {max(waits):.3f} s")
    assert turned >= 1
    # From above what buckets allow for and no more, from below what a machine allows that others use. The 5 % of half
    # a minute are measured by `python -m bench cap`.
    assert 0.8 * CAP * WINDOW_S < last - first < 1.02 * CAP * (ended - began + BURST_S)
    assert len(waits) > 5 * WINDOW_S, "a live record goes by while a megabyte of history does"
    assert sorted(waits)[int(len(waits) * 0.95)] < 1.0
    (cap,) = report.status.caps
    assert 0.7 * CAP < cap.bytes_per_s < 1.15 * CAP
    assert cap.words.startswith("capped at 8 MB/s, using ")
    assert_same(primary, backup, old, remote)
    assert_same(primary, backup, live, f"{source.alias}.{live}")


def test_a_cap_for_some_topics_holds_them_and_nobody_else(
    primary: Kafka, backup: Kafka, new_topic: Callable[[], str]
) -> None:
    slow, fast = new_topic(), new_topic()
    fill(primary, slow, 8 * MB)
    fill(primary, fast, 40 * MB)
    source = primary.cluster(f"from-{slow}")
    limit = 2 * MB
    log = Log(backup, f"{source.alias}.{slow}")
    began = time.monotonic()
    with Engine(one_flow(source, backup.cluster("to"), slow, fast, caps=(Cap(limit, slow),))) as engine:
        engine.wait_copied(fast)
        allowed = limit * (time.monotonic() - began) * 1.05 + 64 * 1024 * PARTITIONS
        assert log.bytes() <= allowed, "the others did not wait for it, and it was held"
        assert engine.reached(Partition(slow, 0)) < 8 * MB // len(VALUE) // PARTITIONS
        engine.wait_copied(slow)
        log.close()
    assert time.monotonic() - began > 3.5, "8 MB at 2 MB/s"
    assert_same(primary, backup, slow, f"{source.alias}.{slow}")

"""Kafka's classes, loaded once and kept: a JVM class archive that halves the time in which an embedded broker starts.

Most of a broker's start is reading, checking and linking classes. Java can write them to a file when it ends and map
that file at the next start. `heliograph warm --kafka` makes it, once per Java and Kafka release on a machine; without
it everything works, later. Only the quick JVM settings of demos and tests use it: benchmarks start Kafka as Kafka does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from heliograph.embedded.java import find_java
from heliograph.errors import EmbeddedError

DUMP_S = 120.0  # writing an archive takes some three seconds on a small machine
WAIT_S = 30.0


def path(jars: Sequence[Path]) -> Path:
    """Where the archive of this Java and these jars is kept: beside them. Java refuses one whose jars were touched."""
    files = [find_java().executable.resolve(), *jars]
    key = " ".join(f"{file} {stat.st_size} {stat.st_mtime_ns}" for file in files for stat in (file.stat(),))
    return jars[0].parent / f"classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def options(jars: Sequence[Path]) -> tuple[str, ...]:
    """What a JVM is told so that it uses the archive, if there is one."""
    known = path(jars)
    return (f"-XX:SharedArchiveFile={known}",) if known.exists() else ()


def make(jars: Sequence[Path]) -> Path:
    """Run a broker that does a little of everything and writes its classes when it ends."""
    from heliograph.embedded.broker import QUICK_JVM
    from heliograph.embedded.kafka import Kafka

    wanted = path(jars)
    draft = wanted.with_suffix(f".{os.getpid()}.tmp")
    recording = (*QUICK_JVM, f"-XX:ArchiveClassesAtExit={draft}")
    try:
        with Kafka("classes", security=("PLAINTEXT", "SASL_SSL"), jvm=recording) as kafka:
            _use(kafka.confluent())
            _use(kafka.confluent(security="SASL_SSL"))
            kafka.brokers[0].stop(DUMP_S)
            if not draft.exists():
                raise EmbeddedError("Java wrote no class archive of Kafka", fix="brokers start slower, nothing else")
        draft.rename(wanted)
    finally:
        draft.unlink(missing_ok=True)
    return wanted


def _use(client: dict[str, str]) -> None:
    """A topic, a transaction, a group: the classes that nearly every test or demo has need of."""
    topic = f"classes-{client.get('security.protocol', 'plain').lower()}"
    admin = AdminClient({**client})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(WAIT_S)
    producer = Producer({**client, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"value", b"key")
    producer.commit_transaction(WAIT_S)
    consumer = Consumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        consumer.poll(WAIT_S)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()

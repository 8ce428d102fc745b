"""A connector's life by a client library of others, for tests: against a real worker and against ours.

`talk` makes the calls (tests/data/java/ConnectClient.java) and says what each came to; `expected` is what a real worker
of the pinned release answers, which `test_connect_worker` holds against one.
"""

from __future__ import annotations

from heliograph.embedded import Kafka
from tests.broker.conversation import prepare
from tests.broker.java import DATA, SOURCES, java

MIRROR = "org.apache.kafka.connect.mirror"
CLASSES = [f"{MIRROR}.Mirror{kind}Connector" for kind in ("Checkpoint", "Heartbeat", "Source")]
RUNS = "RUNNING [RUNNING]"


def talk(url: str, primary: Kafka, backup: Kafka, topic_name: str) -> dict[str, str]:
    """Call -> what it came to. The connector is called as the topic is."""
    config = {
        "connector.class": CLASSES[-1],
        "topics": prepare(primary.confluent(), topic_name),
        "tasks.max": "2",
        "source.cluster.alias": "primary",
        "source.cluster.bootstrap.servers": primary.bootstrap,
        "target.cluster.alias": "backup",
        "target.cluster.bootstrap.servers": backup.bootstrap,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
    }
    pairs = [f"{key}={value}" for key, value in config.items()]
    out = java(str(SOURCES / "ConnectClient.java"), url, topic_name, *pairs, lock=DATA / "connect" / "client.lock")
    return dict(line.split(": ", 1) for line in out.splitlines())


def expected(topic: str) -> dict[str, str]:
    kept = "connector.class name offset-syncs.topic.replication.factor replication.factor source.cluster.alias"
    kept += " source.cluster.bootstrap.servers target.cluster.alias target.cluster.bootstrap.servers tasks.max topics"
    return {
        "version": "4.3.1",
        "plugins": " ".join(CLASSES),
        "validate": f"{CLASSES[-1]} 0",
        "validate what is wrong": f"{CLASSES[-1]} 2",
        "add": topic,
        "add again": f"ConcurrentConfigModificationException Connector {topic} already exists",
        "running": RUNS,
        "of all, its status": RUNS,
        "of all, its definition": f"[{kept.replace(' ', ', ')}]",
        "of all, both": RUNS,
        "itself": "source 1",
        "its config": "true",
        "its topics": f"[primary.{topic}]",
        "its tasks": "1",
        "a task": "RUNNING",
        "no such task": f"ResourceNotFoundException No status found for task {topic}-9",
        "pause": "true PAUSED [PAUSED]",
        "resume": f"true {RUNS}",
        "restart": f"true {RUNS}",
        "restart with tasks": f"true {RUNS}",
        "restart a task": f"true {RUNS}",
        "update": "20",
        "forget its topics": "true",
        "no such connector": "ResourceNotFoundException Connector nobody not found",
        "delete": "true",
        "delete again": f"ResourceNotFoundException Connector {topic} not found",
    }

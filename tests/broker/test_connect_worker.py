"""A real Kafka Connect worker with MirrorMaker 2's connectors: it answers, and as was written down.

The recording is what our own API is compared with, so a test that needs no Java is only as good as this one.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest

from heliograph.embedded import ConnectWorker, Kafka, connect_properties
from tests.broker import library
from tests.broker.conversation import play, prepare, recorded, unjustified


@pytest.fixture(scope="module")
def worker(backup: Kafka) -> Iterator[ConnectWorker]:
    with ConnectWorker(connect_properties(backup.cluster(), "conversation")) as worker:
        yield worker


def test_it_answers(worker: ConnectWorker, backup: Kafka) -> None:
    with urllib.request.urlopen(worker.url, timeout=10) as answer:
        about = json.load(answer)
    assert about["version"] == "4.3.1"
    assert about["kafka_cluster_id"] == backup.cluster_id


def test_it_answers_as_was_recorded(worker: ConnectWorker, primary: Kafka, backup: Kafka, topic_name: str) -> None:
    topic = prepare(primary.confluent(), topic_name)
    answers = play(worker.url, source=primary.bootstrap, target=backup.bootstrap, topic=topic)
    assert unjustified(recorded(), answers, reasons=[]) == []


def test_a_client_library_of_others(worker: ConnectWorker, primary: Kafka, backup: Kafka, topic_name: str) -> None:
    """What `test_connect_clients` expects of our own worker."""
    assert library.talk(worker.url, primary, backup, topic_name) == library.expected(topic_name)


def test_it_ends_in_order(worker: ConnectWorker) -> None:
    assert worker.stop()
    assert not worker.running

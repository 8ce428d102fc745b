"""The embedded clusters themselves: they come up, hold data, survive restarts and leave nothing behind."""

from __future__ import annotations

from heliograph.embedded import Kafka
from tests.kit import Record, contents, create_topic, produce, read_all


def test_the_shared_clusters_hold_what_is_produced(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    assert primary.cluster_id != backup.cluster_id
    records = [
        Record(None, b"no key", (("h", b"1"), ("h", None)), 1_700_000_000_000, partition=0),
        Record(b"k", None, (), 1_700_000_000_001, partition=1),
    ]
    keep = {"retention.ms": "-1"}
    create_topic(primary.confluent(), topic_name, 2, config=keep)
    produce(primary.confluent(), topic_name, records)
    assert contents(read_all(primary.confluent(), topic_name)) == {0: [records[0].content], 1: [records[1].content]}

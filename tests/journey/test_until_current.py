"""`heliograph run --until-current`, the last step of a migration: what is there is copied and checked, and it ends."""

from __future__ import annotations

import time
from pathlib import Path

from heliograph.embedded import Kafka
from tests.broker.processes import Feed, Run
from tests.journey.test_cli_run import write
from tests.kit import Record, create_topic, produce, read_all


def test_it_copies_what_is_there_checks_it_and_ends(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path
) -> None:
    """Also while the source goes on: only what was there when it began is waited for."""
    create_topic(primary.confluent(), topic_name, 2)
    now_ms = int(time.time() * 1000)
    produce(primary.confluent(), topic_name, [Record(b"k%d" % n, b"v", (), now_ms, n % 2) for n in range(1000)])
    only = (f"topics = {topic_name}", "heartbeats.replication.enabled = false")
    file = Path(write(tmp_path, primary.cluster("us"), backup.cluster("eu"), *only))
    feed = Feed(primary.confluent(), topic_name, 2, 50)
    try:
        with Run(file, tmp_path / "run", "--until-current", "--compare") as process:
            assert process.wait_ended(300) == 0, process.words()
    finally:
        feed.stop()
    told = process.lines()[-1]["until_current"]["us->eu"]
    assert (told["complete"], told["topics"], told["partitions"], told["problems"]) == (True, 1, 2, [])
    assert told["records"] >= 1000
    ours, theirs = read_all(backup.confluent(), f"us.{topic_name}"), read_all(primary.confluent(), topic_name)
    assert sum(map(len, ours.values())) == told["records"]  # the broker's count, the positions' and confluent-kafka's
    assert 1000 <= told["compared"] <= told["records"]  # what came while it ended is copied, and was not asked for
    for partition, copied in ours.items():
        assert [one.content for one in copied] == [one.content for one in theirs[partition][: len(copied)]]


def test_what_could_not_be_copied_is_code_1_with_the_reason(
    primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path
) -> None:
    create_topic(primary.confluent(), topic_name, 1)
    create_topic(primary.confluent(), f"{topic_name}-large", 1, config={"max.message.bytes": "2000000"})
    create_topic(backup.confluent(), f"us.{topic_name}-large", 1, config={"max.message.bytes": "1000"})
    produce(primary.confluent(), topic_name, [Record(b"k", b"v") for _ in range(100)])
    produce(primary.confluent(), f"{topic_name}-large", [Record(b"k", b"v" * 5000)])
    only = (
        f"topics = {topic_name}.*",
        "heartbeats.replication.enabled = false",
        "config.properties.exclude = max.message.bytes",
    )
    file = Path(write(tmp_path, primary.cluster("us"), backup.cluster("eu"), *only))
    with Run(file, tmp_path / "run", "--until-current") as process:
        assert process.wait_ended(300) == 1, process.words()
    told = process.lines()[-1]["until_current"]["us->eu"]
    (problem,) = told["problems"]
    assert problem.startswith(f"{topic_name}-large-0: ")
    assert "the target refused 1 records" in problem
    assert "the target takes 1,000" in problem
    assert f"us->eu: {problem}" in process.said()
    assert [r.value for r in read_all(backup.confluent(), f"us.{topic_name}")[0]] == [b"v"] * 100

"""`heliograph messages` shows what confluent-kafka reads, whatever a real log is made of, and leaves no trace;
`heliograph events` writes what was asked for, as confluent-kafka reads it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from heliograph.batch import Record as BatchRecord
from heliograph.batch import encode
from heliograph.cli.main import run
from heliograph.embedded import Kafka
from heliograph.messages.sample import Recipe, event
from heliograph.types import TopicPartition
from heliograph.wire import Client
from tests.broker.engine import Engine, one_flow, topics_of
from tests.broker.processes import COMMAND
from tests.kit import Record, create_topic, produce, read_all, wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOUR_MS = 3_600_000
JUNK = bytes(range(256))

Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def file(primary: Kafka, backup: Kafka, tmp_path: Path) -> str:
    path = tmp_path / "mm2.properties"
    servers = [
        f"{name}.bootstrap.servers = {kafka.bootstrap}" for name, kafka in (("glass", primary), ("backup", backup))
    ]
    path.write_text("\n".join(["clusters = glass, backup", "glass->backup.enabled = true", *servers]) + "\n")
    return str(path)


@pytest.fixture
def ask(file: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    def call(topic: str, *options: str, cluster: str = "glass", code: int = 0) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert run(["messages", topic, file, "--cluster", cluster, "-o", "json", *options]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return call


def back(text: Any) -> bytes | None:
    if isinstance(text, dict):
        return base64.b64decode(text["base64"])
    return None if text is None else text.encode()


def as_record(one: dict[str, Any]) -> Record:
    headers = tuple(((back(name) or b"").decode(), back(value)) for name, value in one["headers"])
    return Record(back(one["key"]), back(one["value"]), headers, one["timestamp_ms"], one["partition"], one["offset"])


def by_partition(lines: list[dict[str, Any]]) -> dict[int, list[Record]]:
    found = defaultdict(list)
    for line in lines:
        found[line["partition"]].append(as_record(line))
    return dict(found)


def varied(count: int, partitions: int, codec: str = "") -> list[Record]:
    """Every shape of key, value and headers, times that do not rise, and bytes that are no text."""
    now_ms = int(time.time() * 1000) - 10 * HOUR_MS
    keys = (b"key-%d", None, b"", b"\xff\xfe%d")
    values = (b"%d" + codec.encode(), None, b"", JUNK + b"%d", "漢字 \x1b[2J\n%d".encode())
    found = []
    for n in range(count):
        key, value = keys[n % 4], values[n % 5]
        headers: tuple[tuple[str, bytes | None], ...] = (("n", b"%d" % n),)
        if n % 3 == 0:
            headers += (("n", None), ("n", JUNK), ("", b""), ("é", b"x" * (n % 50)))
        found.append(
            Record(
                None if key is None else key.replace(b"%d", b"%d" % n),
                None if value is None else value.replace(b"%d", b"%d" % n),
                headers,
                now_ms + n * 1000 - (n * 7919 % 600_000),
                n % partitions,
            )
        )
    return found


def test_everything_as_confluent_reads_it_in_every_codec(primary: Kafka, topic_name: str, ask: Ask) -> None:
    create_topic(primary.confluent(), topic_name, 3)
    for codec in CODECS:
        produce(primary.confluent(), topic_name, varied(300, 3, codec), config={"compression.type": codec})
    theirs = read_all(primary.confluent(), topic_name)
    ours = ask(topic_name, "--from", "beginning")
    assert by_partition(ours) == theirs
    assert {(one["cluster"], one["topic"], one["timestamp_type"]) for one in ours} == {
        ("glass", topic_name, "CreateTime")
    }

    # Merged: whatever comes is not younger than what comes next of another partition.
    heads = {number: iter(records) for number, records in theirs.items()}
    nexts = {number: next(records, None) for number, records in heads.items()}
    for one in ours:
        waiting = [record.timestamp_ms for record in nexts.values() if record is not None]
        assert one["timestamp_ms"] == min(waiting)
        nexts[one["partition"]] = next(heads[one["partition"]], None)

    everything = [record for records in theirs.values() for record in records]
    assert len(ask(topic_name, "--last", "17")) == 17
    assert by_partition(ask(topic_name, "--partition", "1", "--last", "5")) == {1: theirs[1][-5:]}
    assert by_partition(ask(topic_name, "--partition", "2", "--from", "41", "--limit", "3")) == {2: theirs[2][41:44]}
    found = ask(topic_name, "--from", "beginning", "--header", "n==42")
    assert sorted(map(as_record, found)) == sorted(one for one in everything if ("n", b"42") in one.headers)
    assert len(found) == len(CODECS)
    found = ask(topic_name, "--last", "1000", "--tombstones", "--key", "/^key-/")
    wanted = [one for one in everything if one.value is None and (one.key or b"").startswith(b"key-")]
    assert sorted(map(as_record, found), key=str) == sorted(wanted, key=str)

    since, until = (sorted(one.timestamp_ms for one in everything)[at] for at in (300, 900))
    moments = [f"timestamp:{since}", "--until", f"timestamp:{until}"]
    window = by_partition(ask(topic_name, "--from", *moments))
    assert window == {p: [one for one in theirs[p] if since <= one.timestamp_ms < until] for p in theirs}


def test_a_compacted_topic_with_holes(primary: Kafka, topic_name: str, ask: Ask) -> None:
    settings = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.0001"}
    create_topic(primary.confluent(), topic_name, config=settings)
    for turn in range(4):
        records = [Record(b"%d" % (n % 90), b"turn %d, %d" % (turn, n)) for n in range(300) if not turn or n % 3]
        produce(primary.confluent(), topic_name, records, config={"compression.type": "lz4", "batch.num.messages": 50})

    def cleaned() -> bool:
        produce(primary.confluent(), topic_name, [Record(b"roll", b"%d" % time.time_ns())])  # closes the segment
        return len(read_all(primary.confluent(), topic_name)[0]) < 300

    wait_until(cleaned, what="the cleaner")
    # It goes on cleaning meanwhile: what both saw is compared.
    before = read_all(primary.confluent(), topic_name)[0]
    ours = [as_record(one) for one in ask(topic_name, "--from", "beginning")]
    after = read_all(primary.confluent(), topic_name)[0]
    assert set(after) <= set(ours) <= set(before)
    assert ours[-1].offset - ours[0].offset + 1 > len(ours)
    last = [as_record(one) for one in ask(topic_name, "--last", "25")]
    assert len(last) == 25
    assert set(last) <= set(before)


def test_transactions_aborted_committed_and_open(primary: Kafka, topic_name: str, ask: Ask) -> None:
    create_topic(primary.confluent(), topic_name)
    producer = Producer({**primary.confluent(), "transactional.id": topic_name, "linger.ms": 0, "log_level": 3})
    producer.init_transactions(30)

    def send(word: str) -> None:
        for n in range(40):
            producer.produce(topic_name, f"{word} {n}", partition=0)
        producer.flush(30)

    for turn, word in enumerate(["kept", "gone", "kept too", "gone as well"]):
        producer.begin_transaction()
        send(word)
        produce(primary.confluent(), topic_name, [Record(None, b"plain %d" % turn)])
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)(30)
    producer.begin_transaction()
    send("open")
    committed, all_ = (
        read_all(primary.confluent(), topic_name)[0],
        read_all(primary.confluent(), topic_name, isolation="read_uncommitted")[0],
    )
    assert by_partition(ask(topic_name, "--from", "beginning")) == {0: committed}
    assert by_partition(ask(topic_name, "--from", "beginning", "--uncommitted")) == {0: all_}
    assert len(committed) == 84
    assert len(all_) == 204
    last = [as_record(one) for one in ask(topic_name, "--last", "60")]  # over markers and the aborted
    assert last == committed[-60:]
    inside = committed[20].offset  # an offset in the middle of a batch
    assert by_partition(ask(topic_name, "--from", str(inside), "--limit", "5")) == {0: committed[20:25]}
    producer.commit_transaction(30)
    # The marker is written a moment after the commit is acknowledged.
    wait_until(lambda: len(read_all(primary.confluent(), topic_name)[0]) == 124, what="the commit's marker")
    assert by_partition(ask(topic_name, "--from", "beginning")) == read_all(primary.confluent(), topic_name)


def test_the_time_of_the_append(primary: Kafka, topic_name: str, ask: Ask) -> None:
    create_topic(primary.confluent(), topic_name, config={"message.timestamp.type": "LogAppendTime"})
    produce(primary.confluent(), topic_name, varied(50, 1), config={"compression.type": "gzip"})
    lines = ask(topic_name, "--from", "-1m")
    assert by_partition(lines) == read_all(primary.confluent(), topic_name)
    assert {one["timestamp_type"] for one in lines} == {"LogAppendTime"}


def test_names_of_headers_that_no_client_reads_and_large_values(primary: Kafka, topic_name: str, ask: Ask) -> None:
    create_topic(primary.confluent(), topic_name)
    name = b"\xff\xfe".decode(errors="surrogateescape")
    with Client(primary.cluster()) as client:
        batch = encode([BatchRecord(0, 5, b"k", b"v" * 900_000, ((name, b"x"),))])
        client.produce(TopicPartition(topic_name, 0), batch)
    (one,) = ask(topic_name)
    assert one["headers"] == [[{"base64": base64.b64encode(b"\xff\xfe").decode()}, "x"]]
    assert len(one["value"]) == 900_000


def test_what_a_flow_writes_beside_the_records_is_decoded(
    primary: Kafka, backup: Kafka, topic_name: str, ask: Ask
) -> None:
    create_topic(primary.confluent(), topic_name)
    produce(primary.confluent(), topic_name, varied(50, 1))
    beats = {
        "emit_heartbeats_s": 0.2,
        "emit_offset_syncs": True,
        "heartbeats_replication": False,
        "offset_flush_s": 0.2,
    }
    alias = topic_name.replace("-", "_")
    syncs = "mm2-offset-syncs.backup.internal"
    with Engine(one_flow(primary.cluster(alias), backup.cluster("backup"), topic_name, **beats)) as engine:
        engine.wait_copied(topic_name)
        engine.wait(lambda: syncs in topics_of(primary.confluent()), what=syncs)
        engine.wait(lambda: ask(syncs, "--key", topic_name), what="an offset sync")

    positions = [one["decoded"] for one in ask(f"mm2-offsets.{alias}.internal", "--last", "50", cluster="backup")]
    mine = [one for one in positions if one.get("topic") == topic_name]
    assert (mine[-1]["cluster"], mine[-1]["next_offset"], mine[-1]["target_offset"]) == (alias, 50, 50)
    assert any(one.get("connector") == "HeliographProcess" for one in positions)
    mapped = [one["decoded"] for one in ask(f"mm2-offset-map.{alias}.internal", cluster="backup")]
    runs = [run for one in mapped for run in one.get("runs", ())]
    assert runs[0][:2] == [0, 0]
    beat = ask("heartbeats", "--key", alias, "--last", "1", cluster="backup")[0]["decoded"]
    assert (beat["source"], beat["target"]) == (alias, "backup")
    sync = ask(syncs, "--key", topic_name, "--last", "1")[0]["decoded"]
    assert (sync["kind"], sync["topic"]) == ("offset sync", topic_name)


def test_it_leaves_no_trace(primary: Kafka, topic_name: str, ask: Ask) -> None:
    create_topic(primary.confluent(), topic_name)
    produce(primary.confluent(), topic_name, varied(5, 1))

    def traces() -> tuple[set[str], set[str]]:
        admin = AdminClient(primary.confluent())
        groups = admin.list_consumer_groups().result(30)
        return topics_of(primary.confluent()), {one.group_id for one in groups.valid}

    before = traces()
    assert len(ask(topic_name, "--from", "beginning")) == 5
    ask(f"{topic_name}-that-is-not-there", code=2)
    assert traces() == before


def test_following_a_topic_that_grows_until_ctrl_c(primary: Kafka, topic_name: str, file: str, tmp_path: Path) -> None:
    create_topic(primary.confluent(), topic_name)
    produce(primary.confluent(), topic_name, [Record(None, b"before %d" % n) for n in range(30)])
    out = tmp_path / "out"
    with out.open("wb") as stdout:
        command = [str(COMMAND), "messages", topic_name, file, "--cluster", "glass", "--follow", "--last", "2"]
        process = subprocess.Popen(command, stdout=stdout, env=os.environ)
    try:

        def seen() -> list[str]:
            return [json.loads(line)["value"] for line in out.read_text().splitlines()]

        wait_until(lambda: seen() == ["before 28", "before 29"], what="the last two")
        for n in range(3):
            produce(primary.confluent(), topic_name, [Record(None, b"after %d" % n)])
            began = time.monotonic()
            wait_until(lambda n=n: seen()[-1] == f"after {n}", what=f"after {n}")  # type: ignore[misc]
            assert time.monotonic() - began < 5
        grown = AdminClient(primary.confluent())
        grown.create_partitions([NewPartitions(topic_name, 2)])[topic_name].result(30)
        wait_until(
            lambda: grown.list_topics(topic_name, timeout=10).topics[topic_name].partitions.get(1), what="partition 1"
        )
        produce(primary.confluent(), topic_name, [Record(None, b"elsewhere", partition=1)])
        wait_until(lambda: seen()[-1] == "elsewhere", what="the new partition's message")
        assert seen() == ["before 28", "before 29", "after 0", "after 1", "after 2", "elsewhere"]
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert time.monotonic() - began < 4
    finally:
        process.kill()
        process.wait(10)


# ---------------------------------------------------------------- events


def test_events_in_every_codec_are_what_the_seed_says(
    primary: Kafka, topic_name: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["events", topic_name, file, "--cluster", "glass", "--size", "10-3000", "--headers", "2", "--seed", "7"]
    command += ["--tombstones", "10", "--keys", "9", "--create", "--partitions", "3", "--replication-factor", "1"]
    for turn, codec in enumerate(CODECS):
        assert run([*command, "--count", "400", "--first", str(turn * 400), "--codec", codec]) == 0
    theirs = read_all(primary.confluent(), topic_name)
    recipe = Recipe(7, (10, 3000), 9, 2, (), "json", 0.1)
    expected = [event(recipe, n) for n in range(2000)]
    found = sorted((one.key, one.value, one.headers) for one in [r for rs in theirs.values() for r in rs] if one.value)
    assert found == sorted(tuple(one) for one in expected if one.value)
    assert sum(map(len, theirs.values())) == 2000
    for records in theirs.values():
        numbers = [json.loads(one.value)["event"] for one in records if one.value]
        assert numbers == sorted(numbers)

    # Keys lie where librdkafka's own murmur2 puts them.
    elsewhere = create_topic(primary.confluent(), f"{topic_name}-keys", 3)
    producer = Producer({**primary.confluent(), "partitioner": "murmur2", "log_level": 3})
    keys = {one.key for records in theirs.values() for one in records}
    for key in keys:
        producer.produce(elsewhere, b"", key)
    producer.flush(30)
    homes = {one.key: one.partition for records in read_all(primary.confluent(), elsewhere).values() for one in records}
    assert {one.key: one.partition for records in theirs.values() for one in records} == homes
    assert len(keys) == 9


def test_events_at_a_rate_into_a_topic_of_small_batches(
    primary: Kafka, topic_name: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["events", topic_name, file, "--cluster", "glass", "--create", "--config", "max.message.bytes=2500"]
    command += ["--replication-factor", "1", "--values", "binary", "--size", "700", "-o", "json"]
    began = time.monotonic()
    assert run([*command, "--count", "300", "--rate", "300"]) == 0
    assert time.monotonic() - began > 0.95  # the 300th is due 299 / 300 s after the first
    assert json.loads(capsys.readouterr().out)["offsets"] == {"0": [0, 300]}
    assert run([*command, "--count", "600", "--first", "300"]) == 0  # in parts, until they fit
    records = read_all(primary.confluent(), topic_name)[0]
    assert [int.from_bytes((one.value or b"")[:8], "big") for one in records] == list(range(900))
    assert run([*command, "--count", "1", "--size", "5000"]) == 1
    said = capsys.readouterr().err
    assert f"MESSAGE_TOO_LARGE (cluster glass, topic {topic_name}, partition 0)" in said
    assert "Raise max.message.bytes" in said

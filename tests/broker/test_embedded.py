"""The embedded clusters themselves: they come up, hold data, survive restarts and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from heliograph.embedded import Kafka, Links, archive
from heliograph.embedded.jars import fetch_jars
from heliograph.embedded.ports import is_free
from heliograph.errors import EmbeddedError
from tests.kit import SOON_BACK, Record, contents, create_topic, produce, read_all, wait_until

RECORDS = [Record(b"k%d" % number, b"v%d" % number, (("n", b"%d" % number),)) for number in range(100)]


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [record.value for record in read_all(kafka.confluent(), topic)[0]]


def test_the_shared_clusters_hold_what_is_produced(primary: Kafka, backup: Kafka, topic_name: str) -> None:
    assert primary.cluster_id != backup.cluster_id
    records = [
        Record(None, b"no key", (("h", b"1"), ("h", None)), 1_700_000_000_000, partition=0),
        Record(b"k", None, (), 1_700_000_000_001, partition=1),
    ]
    create_topic(primary.confluent(), topic_name, 2, config={"retention.ms": "-1"})
    produce(primary.confluent(), topic_name, records)
    assert contents(read_all(primary.confluent(), topic_name)) == {0: [records[0].content], 1: [records[1].content]}


def test_a_class_archive_is_used_if_it_fits(primary: Kafka, tmp_path: Path) -> None:
    """It belongs to these very files: Java refuses one whose jars were touched since, and so do we."""
    jars = fetch_jars()
    known = archive.path(jars)
    said = [word for word in psutil.Process(primary.brokers[0].pid).cmdline() if "SharedArchiveFile" in word]
    assert said == ([f"-XX:SharedArchiveFile={known}"] if known.exists() else [])
    mine = tmp_path / jars[0].name
    mine.write_bytes(jars[0].read_bytes())
    before = archive.path([mine])
    assert archive.options([mine]) == ()
    before.touch()
    assert archive.options([mine]) == (f"-XX:SharedArchiveFile={before}",)
    os.utime(mine, (1, 1))
    assert archive.options([mine]) == ()


def test_a_stopped_cluster_leaves_no_process_no_folder_and_no_port() -> None:
    with Kafka("brief") as kafka:
        pid, folder, port = kafka.brokers[0].pid, kafka.brokers[0].folder, kafka.brokers[0].port
        assert psutil.pid_exists(pid)
        assert folder.exists()
    assert not psutil.pid_exists(pid)
    assert not folder.parent.exists()
    assert is_free(port)


STARTER = """
import signal, threading
from heliograph.embedded import Kafka
signal.signal(signal.SIGINT, signal.default_int_handler)  # started in a shell's background, it would be ignored
kafka = Kafka("orphan").start()
print(kafka.brokers[0].pid, kafka.brokers[0].folder.parent, flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_brokers_end_with_the_process_that_started_them(end: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as starter:
        assert starter.stdout is not None
        pid, folder = starter.stdout.readline().split()
        assert psutil.pid_exists(int(pid))
        starter.send_signal(end)
        starter.wait(30)
    wait_until(lambda: not psutil.pid_exists(int(pid)), what="the broker's end")
    wait_until(lambda: not Path(os.fsdecode(folder)).exists(), what="the folder's end")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restarted_broker_keeps_its_data_and_its_port(how: str, topic_name: str) -> None:
    with Kafka("restarted", config=SOON_BACK) as kafka:
        create_topic(kafka.confluent(), topic_name)
        produce(kafka.confluent(), topic_name, RECORDS)
        broker, port, pid = kafka.brokers[0], kafka.brokers[0].port, kafka.brokers[0].pid
        getattr(broker, how)()
        assert not broker.running
        broker.start()
        assert (broker.port, broker.pid == pid) == (port, False)
        assert values(kafka, topic_name) == [record.value for record in RECORDS]


def test_a_paused_broker_keeps_connections_and_answers_nothing() -> None:
    with Kafka("paused") as kafka:
        admin = AdminClient({**kafka.confluent(), "socket.timeout.ms": 1000})
        admin.list_topics(timeout=10)
        kafka.brokers[0].pause()
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        kafka.brokers[0].resume()
        assert admin.list_topics(timeout=20).brokers


def test_leaders_move_when_one_of_three_brokers_dies(topic_name: str) -> None:
    with Kafka("trio", brokers=3, config=SOON_BACK) as kafka:
        create_topic(kafka.confluent(), topic_name, 3, replication_factor=3)
        admin = AdminClient(kafka.confluent())
        victim = kafka.brokers[0]
        assert set(admin.list_topics(timeout=10).brokers) == {1, 2, 3}
        victim.kill()

        def leaders() -> set[int]:
            partitions = admin.list_topics(topic_name, timeout=10).topics[topic_name].partitions
            return {one.leader for one in partitions.values()}

        wait_until(lambda: leaders() == {2, 3}, what="leaders on the living brokers")
        victim.start()
        wait_until(lambda: set(admin.list_topics(timeout=10).brokers) == {1, 2, 3}, what="the third broker")


def test_a_broker_that_cannot_start_shows_the_end_of_its_log() -> None:
    kafka = Kafka("wrong", config={"log.segment.bytes": "one"})
    with pytest.raises(EmbeddedError) as caught:
        kafka.start()
    assert "log.segment.bytes" in str(caught.value)
    assert kafka.brokers == []
    assert not [one for one in psutil.process_iter(["cmdline"]) if f"wrong-{os.getpid()}" in str(one.info["cmdline"])]


def test_clients_stay_behind_the_links_that_brokers_advertise(topic_name: str) -> None:
    with Links() as links, Kafka("linked", advertised=links.advertise) as kafka:
        assert kafka.bootstrap == links[1].address != f"127.0.0.1:{kafka.brokers[0].port}"
        create_topic(kafka.confluent(), topic_name)
        before = links[1].counts().bytes
        produce(kafka.confluent(), topic_name, [Record(None, bytes(100_000))])
        assert links[1].counts().bytes > before + 100_000
        admin = AdminClient(kafka.confluent())

        def cut() -> bool:
            """Its connection, unless it is between two: it leaves the first for the broker's own."""
            return bool(admin.list_topics(timeout=10).brokers) and links[1].cut().cuts > 0

        wait_until(cut, what="a connection that was cut")
        assert admin.list_topics(timeout=20).topics  # a new connection, through the link again


def test_the_command_runs_until_it_is_told_to_end() -> None:
    words = ["-c", "from heliograph.cli.kafka import command; command()", "start", "played", "-o", "json"]
    words += ["--security", "PLAINTEXT", "--security", "SASL_PLAINTEXT", "--config", "num.partitions=7"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert command.stdout is not None
        said = b""
        while not said.endswith(b"\n}\n"):
            said += command.stdout.readline()
        about = json.loads(said)
        client = {"bootstrap.servers": about["listeners"]["PLAINTEXT"]["bootstrap.servers"]}
        assert len(AdminClient(client).list_topics(timeout=10).brokers) == 1
        assert "ScramLoginModule" in about["listeners"]["SASL_PLAINTEXT"]["sasl.jaas.config"]
        command.send_signal(signal.SIGINT)
        assert command.wait(20) == 0
    assert not psutil.pid_exists(about["pids"][0])


def test_a_port_can_be_asked_for_and_is_refused_when_taken() -> None:
    with Kafka("first") as kafka, pytest.raises(EmbeddedError, match=r"port \d+ is in use"):
        Kafka("second", port=kafka.brokers[0].port)

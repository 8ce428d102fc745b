"""A running `heliograph run` steered from outside, under load: paused, resumed, stopped, its file changed, taken over.

One story told in order, since a start of Spark is most of what it costs: each test goes on where the last one ended.
Two flows run, one each way; whatever is done to the one, the other's epochs and tasks are counted. At the end every
topic is compared record by record.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from heliograph.cli.main import run as heliograph
from heliograph.embedded import Kafka, running
from tests.broker.processes import Feed, Run, assert_copied, records_in, write_file
from tests.broker.site import Site
from tests.kit import Record, alter_topic, create_topic, end_offsets, produce, wait_until

FLOW, BACK = "west->east", "east->west"
PARTITIONS, PER_SECOND = 4, 2_000
COPIED_S = 30  # a bound for waits: how soon it is, under load, is measured by the benchmark's `growth`


@dataclass
class Scene:
    west: Kafka
    east: Kafka
    file: Path
    folder: Path
    run: Run
    site: Site
    feed: Feed
    back: Feed

    def write(self, **more: str) -> None:
        """The file, with these keys of the flow besides."""
        properties = {
            "clusters": "west,east",
            "west.bootstrap.servers": self.west.bootstrap,
            "east.bootstrap.servers": self.east.bootstrap,
            "replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "emit.heartbeats.enabled": "false",
            "heartbeats.replication.enabled": "false",
            f"{FLOW}.enabled": "true",
            f"{FLOW}.topics": "ahead",
            f"{BACK}.enabled": "true",
            f"{BACK}.topics": "back",
            **{f"{FLOW}.{key}": value for key, value in more.items()},
        }
        write_file(self.file, properties)

    def status(self, flow: str = FLOW) -> dict[str, Any]:
        """As of now. (The command's last JSON line may be older than what the test did before.)"""
        flows = json.loads(self.site.get("/status")[1])["flows"]
        return next(dict(one) for one in flows if one["name"] == flow)

    def epochs(self) -> tuple[int, int]:
        return int(self.status(FLOW)["epoch"]), int(self.status(BACK)["epoch"])

    def copies(self, topic: str = "west.ahead") -> Mapping[int, int]:
        return end_offsets(self.east.confluent(), topic)

    def partition(self, number: int) -> dict[str, Any]:
        return self.site.partitions("ahead")[number]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("steering")
    # Where processes are found: a place of this test's own, and short, as a socket's path must be.
    place = tempfile.TemporaryDirectory(prefix="hs", dir="/tmp")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", place.name)
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the command goes on to ignore it where we were told to
    config = {"auto.create.topics.enable": "false"}
    with running(Kafka("west", config=config), Kafka("east", config=config)) as (west, east):
        create_topic(west.confluent(), "ahead", PARTITIONS)
        create_topic(east.confluent(), "back", 1)
        file = folder / "mm2.properties"
        made = Scene(west, east, file, folder, None, None, None, None)  # type: ignore[arg-type]
        made.write()
        with Run(file, folder / "run", "--http", "0", "--epoch-seconds", "3600") as made.run:
            said: list[str] = []
            made.run.wait(
                lambda: said.extend(re.findall(r"serving (http://\S+?)/metrics", made.run.said())) or said,
                what="address",
            )
            made.site = Site(said[0])
            made.feed = Feed(west.confluent(), "ahead", PARTITIONS, PER_SECOND)
            made.back = Feed(east.confluent(), "back", 1, 200)
            made.run.wait_for("records", PER_SECOND)
            made.run.wait(lambda: int(made.status(BACK).get("records") or 0) >= 100, what="records of the way back")
            yield made
    signal.signal(signal.SIGHUP, hangup)
    monkeypatch.undo()
    place.cleanup()


def test_a_paused_partition_rests_within_a_second_and_the_others_go_on(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    before = scene.epochs()
    assert heliograph(["pause", FLOW, "ahead:1", "--file", str(scene.file)]) == 0
    assert "ahead-1: paused by " in capsys.readouterr().out
    scene.feed.wait_sent(PER_SECOND)  # a second
    first = scene.copies()
    scene.feed.wait_sent(PER_SECOND)
    second = scene.copies()
    assert second[1] == first[1]
    assert all(second[p] > first[p] for p in (0, 2, 3)), (first, second)
    scene.run.wait(lambda: scene.partition(1)["state"] == "paused", what="the state")
    assert "paused by " in scene.partition(1)["reason"]
    code, health = scene.site.health()
    assert (code, health["state"]) == (200, "running")
    assert "ahead-1: paused by " in health["ordered"][0]
    assert scene.epochs() == before


def test_resumed_it_goes_on_where_it_stood(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before, stood = scene.epochs(), scene.copies()[1]
    assert heliograph(["resume", FLOW, "ahead:1"]) == 0  # no file: there is one process
    assert "goes on, was ahead-1: paused" in capsys.readouterr().out
    wait_until(lambda: scene.copies()[1] > stood, what="records of partition 1", timeout_seconds=COPIED_S)
    assert heliograph(["resume", FLOW]) == 0
    assert "nothing was paused" in capsys.readouterr().out
    assert scene.epochs() == before
    assert scene.status()["duplicates_refused"] == 0


def test_a_flow_that_is_stopped_rests_as_a_whole_and_the_other_goes_on(scene: Scene) -> None:
    back = scene.epochs()[1]
    assert heliograph(["stop", FLOW]) == 0
    scene.run.wait(lambda: scene.status()["state"] == "stopped" and not scene.status()["tasks"], what="its end")
    assert scene.site.health()[0] == 200
    first, other = sum(scene.copies().values()), records_in(scene.west.confluent(), "east.back")
    scene.back.wait_sent(200)
    assert sum(scene.copies().values()) == first
    wait_until(lambda: records_in(scene.west.confluent(), "east.back") > other, what="the other flow's records")
    assert scene.epochs()[1] == back
    assert heliograph(["resume", FLOW]) == 0
    assert not scene.status()["orders"]
    wait_until(lambda: sum(scene.copies().values()) > first, what="records after the stop", timeout_seconds=COPIED_S)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pause", "west->mars"], "runs west->mars on this machine: process"),
        (["pause", FLOW, "ahed"], "did you mean 'ahead'?"),
        (["pause", FLOW, "ahead:9"], "its partitions are 0 to 3"),
        (["pause", FLOW, "ahead:x"], "'ahead:x' is not TOPIC or TOPIC:PARTITION"),
        (["pause", FLOW, "--file", "other.properties"], "no process that runs other.properties"),
        (["apply", "other.properties"], "no process of yours runs other.properties"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_fix(
    scene: Scene, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heliograph(arguments) == 2
    assert words in capsys.readouterr().err
    assert not scene.status()["orders"]


def test_a_topic_added_to_the_file_is_copied_and_nobody_else_notices(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(scene.west.confluent(), "new", 2)
    produce(scene.west.confluent(), "new", [Record(None, b"%d" % n, partition=n % 2) for n in range(100)])
    assert heliograph(["apply", str(scene.file)]) == 0
    assert "nothing to do, generation 1 stays" in capsys.readouterr().out
    workers, back = {one.pid for one in scene.run.workers()}, scene.epochs()[1]
    scene.write(topics="ahead,new")
    assert heliograph(["apply", str(scene.file)]) == 0
    said = capsys.readouterr().out
    assert "taken up as generation 2" in said
    assert "west->east: changed: topics are looked at again now" in said
    assert "topics: ahead -> ahead, new" in said or "topics: ahead -> ahead,new" in said
    assert BACK not in said
    assert_copied(scene.west.confluent(), scene.east.confluent(), "new", "west.new", expected=100)
    assert scene.epochs()[1] == back
    assert {one.pid for one in scene.run.workers()} >= workers
    figures = scene.status()
    assert (figures["duplicates_refused"], figures["retries"], figures["generation"]) == (0, 0, 2)


def test_a_policy_changes_without_an_epoch(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.epochs()
    scene.write(**{"topics": "ahead,new", "on.refused": "skip"})
    assert heliograph(["apply", str(scene.file)]) == 0
    said = capsys.readouterr().out
    assert "tasks go by the new policies" in said
    assert "on.refused: quarantine -> skip" in said
    # A record that the target refuses is passed over by the new policy, and not kept.
    limit(scene.east, "west.new", 2_000)
    produce(scene.west.confluent(), "new", [Record(b"large", b"x" * 5_000), Record(b"small", b"x")])
    scene.run.wait(lambda: scene.status()["refused_records"] == 1, what="the refused record")
    topics = AdminClient(scene.east.confluent()).list_topics(timeout=10).topics
    assert not [name for name in topics if "quarantine" in name]
    scene.run.wait_copied(PER_SECOND)
    assert scene.epochs() == before


def test_a_bad_file_changes_nothing(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    good, before = scene.file.read_text(), scene.epochs()
    scene.file.write_text(good + f"{FLOW}.on.gap = perhaps\nwest->mars.enabled = true\n")
    assert heliograph(["apply", str(scene.file)]) == 2
    said = capsys.readouterr().err
    assert "on.gap" in said
    assert "west->mars" in said  # every problem at once
    scene.run.process.send_signal(signal.SIGHUP)
    scene.run.wait(lambda: configuration(scene)["refused"] == 2, what="the second refusal")
    assert "the edited file is not taken up" in scene.run.said()
    assert configuration(scene)["count"] == 3
    scene.run.wait_copied(PER_SECOND)
    assert scene.epochs() == before
    scene.file.write_text(good)


def test_sighup_takes_up_an_interval_by_which_topics_and_partitions_are_found(scene: Scene) -> None:
    """By MM2's default of ten minutes neither would be found here. Tasks of the epoch that ends lose nothing."""
    scene.write(**{"topics": "ahead,new,later", "refresh.topics.interval.seconds": "1"})
    scene.run.process.send_signal(signal.SIGHUP)
    scene.run.wait(lambda: configuration(scene)["count"] == 4, what="the fourth generation")
    metric = scene.site.metrics()["heliograph_configuration_generation"]
    assert metric.value() == 4
    west, back = scene.west.confluent(), scene.epochs()[1]
    create_topic(west, "later")
    assert_found(scene, "later", 0)
    admin = AdminClient(west)
    admin.create_partitions([NewPartitions("new", 3)])["new"].result(10)
    wait_until(lambda: 2 in end_offsets(west, "new"), what="the new partition")
    assert_found(scene, "new", 2)
    assert_copied(west, scene.east.confluent(), "later", "west.later", expected=10)
    scene.run.wait_copied(PER_SECOND)
    figures = scene.status()
    assert (figures["state"], figures["duplicates_refused"], figures["parked"]) == ("running", 0, [])
    assert scene.epochs()[1] == back


def assert_found(scene: Scene, topic: str, partition: int) -> None:
    """Ten records, and their copies; the partitions that were there before go on meanwhile."""
    admin = AdminClient(scene.east.confluent())
    before = scene.copies()
    produce(scene.west.confluent(), topic, [Record(None, b"%d" % n, partition=partition) for n in range(10)])

    def there() -> bool:
        topics = admin.list_topics(timeout=10).topics
        return f"west.{topic}" in topics and scene.copies(f"west.{topic}").get(partition) == 10

    wait_until(there, what=f"the copy of {topic}-{partition}", timeout_seconds=COPIED_S)
    wait_until(lambda: all(end > before[p] for p, end in scene.copies().items()), what="records of the others")


def test_another_file_is_refused_and_takes_over_when_told(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert heliograph(["pause", FLOW, "ahead:2"]) == 0
    first_file, other = scene.file, scene.folder / "other.properties"
    scene.file = other
    scene.write(topics="ahead")
    with Run(other, scene.folder / "refused") as refused:
        assert refused.wait_ended(60) == 2
        said = refused.said()
    for word in (f"process {scene.run.process.pid} on {socket.gethostname()}", str(first_file), "--take-over"):
        assert word in said
    scene.run.require_running()
    with Run(other, scene.folder / "second", "--take-over", "--epoch-seconds", "3600") as second:
        assert scene.run.wait_ended(60) == 0, scene.run.words()
        assert "taken over by process" in scene.run.said()
        second.wait_for("records", PER_SECOND)
        assert "ahead-2 is paused by " in second.said()  # an order outlives who was given it
        assert second.status(FLOW)["orders"][0]["word"] == "paused"
        assert heliograph(["resume", FLOW]) == 0
        west, east = scene.west.confluent(), scene.east.confluent()
        assert_copied(west, east, "ahead", "west.ahead", expected=scene.feed.stop())
        assert_copied(east, west, "back", "east.back", expected=scene.back.stop())
        assert second.stop() == 0, second.words()


def limit(kafka: Kafka, topic: str, size: int) -> None:
    alter_topic(kafka.confluent(), topic, {"max.message.bytes": str(size)})


def configuration(scene: Scene) -> dict[str, Any]:
    return dict(json.loads(scene.site.get("/status")[1])["configuration"])

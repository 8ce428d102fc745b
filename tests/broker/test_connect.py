"""`heliograph connect` as a user meets it: a worker's file of the field, three connectors by REST, a steady load.

One story told in order, since a start of Spark is most of what it costs: each test goes on where the last one ended. At
the end every record is compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heliograph.embedded import Kafka
from heliograph.embedded.ports import claim_port
from tests.broker.api import Api
from tests.broker.processes import Feed, Run, assert_copied, records_in, write_file
from tests.kit import Record, create_topic, produce, read_all, wait_until

PARTITIONS, PER_SECOND = 5, 1_000
MIRROR = "org.apache.kafka.connect.mirror.Mirror"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
MSC, CPC, HBC = "mm2-msc-source-0", "mm2-cpc-source-0", "mm2-hbc-source-0"


@dataclass
class Scene:
    primary: Kafka
    backup: Kafka
    file: Path
    folder: Path
    topic: str
    feed: Feed
    run: Run
    api: Api

    def config(self, name: str) -> dict[str, Any]:
        kind = {MSC: "Source", CPC: "Checkpoint", HBC: "Heartbeat"}[name]
        shared = {
            "name": name,
            "connector.class": f"{MIRROR}{kind}Connector",
            "key.converter": BYTES,
            "value.converter": BYTES,
            "source.cluster.alias": "source-0",
            "source.cluster.bootstrap.servers": self.primary.bootstrap,
            "target.cluster.alias": "target-0",
            "target.cluster.bootstrap.servers": self.backup.bootstrap,
        }
        ones = {"checkpoints.topic.replication.factor": "1", "heartbeats.topic.replication.factor": "1"}
        if name != MSC:
            return {**shared, **ones}
        return {
            **shared,
            "topics": self.topic,
            "heartbeats.replication.enabled": False,  # the source may have those of other tests
            "sync.topic.acls.enabled": False,
            "sync.topic.configs.enabled": False,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "tasks.max": "2",
        }

    def copied(self) -> int:
        return records_in(self.backup.confluent(), self.topic)

    def wait_copying(self, more: int = 500) -> None:
        goal = self.copied() + more
        self.run.wait(lambda: self.copied() >= goal, what=f"{goal} records copied", timeout_seconds=60)


@pytest.fixture(scope="module")
def scene(primary: Kafka, backup: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("connect")
    port = claim_port()
    file = write_file(
        folder / "connect-distributed.properties",
        {
            "bootstrap.servers": backup.bootstrap,
            "group.id": f"connect-cluster-{port.number}",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.topic": f"connect-offsets-{port.number}",
            "offset.storage.replication.factor": "1",
            "config.storage.topic": f"connect-configs-{port.number}",
            "config.storage.replication.factor": "1",
            "status.storage.topic": f"connect-status-{port.number}",
            "status.storage.replication.factor": "1",
            "offset.flush.interval.ms": "10000",
            "rest.port": str(port.number),
        },
    )
    topic = create_topic(primary.confluent(), f"connect-{port.number}", PARTITIONS)
    api = Api(f"http://127.0.0.1:{port.number}")
    feed = Feed(primary.confluent(), topic, PARTITIONS, PER_SECOND)
    with Run(file, folder / "first", verb="connect") as run:
        run.wait(api.up, what="health")
        scene = Scene(primary, backup, file, folder, topic, feed, run, api)
        yield scene
        scene.run.__exit__(None, None, None)  # it may be another by then
    feed.stop()
    port.release()


def test_three_connectors_are_deployed_and_copy(scene: Scene) -> None:
    for name in (CPC, HBC, MSC):
        answer = scene.api("PUT", f"/connectors/{name}/config", scene.config(name))
        assert answer.code == 201
        assert answer.headers["Location"] == f"{scene.api.url}/connectors/{name}"
        assert answer.body["name"] == name
        assert answer.body["type"] == "source"
    for name in (CPC, HBC, MSC):
        tasks = {MSC: 2, HBC: 1, CPC: 0}[name]
        assert len(scene.api.wait_state(name, "RUNNING", least_tasks=tasks)["tasks"]) == tasks
    scene.wait_copying()
    assert scene.api("GET", "/connectors").body == sorted([CPC, HBC, MSC])
    wait_until(lambda: records_in(scene.backup.confluent(), "heartbeats") > 0, what="heartbeats")
    wait_until(lambda: scene.api("GET", f"/connectors/{MSC}/topics").body == {MSC: {"topics": [scene.topic]}})
    tasks = scene.api("GET", f"/connectors/{MSC}/tasks").body
    assert [len(one["config"]["task.assigned.partitions"].split(",")) for one in tasks] == [3, 2]


def test_the_topics_are_as_connect_would_have_written_them(scene: Scene) -> None:
    port = scene.api.url.rpartition(":")[2]
    written = [one for some in read_all(scene.backup.confluent(), f"connect-configs-{port}").values() for one in some]
    by_key = {(one.key or b"").decode(): json.loads(one.value or b"null") for one in written}
    config = {k: str(v).lower() if isinstance(v, bool) else v for k, v in scene.config(MSC).items()}
    assert by_key[f"connector-{MSC}"] == {"properties": config}
    assert by_key[f"commit-{MSC}"] == {"tasks": 2}
    assert by_key[f"task-{MSC}-1"]["properties"]["task.class"] == f"{MIRROR}SourceTask"
    said = [one for some in read_all(scene.backup.confluent(), f"connect-status-{port}").values() for one in some]
    states = {(one.key or b"").decode(): json.loads(one.value or b"null") for one in said}
    assert states[f"status-connector-{MSC}"].items() >= {"state": "RUNNING", "trace": None}.items()
    assert f"status-topic-{scene.topic}:connector-{MSC}" in states


@pytest.mark.parametrize(("verb", "code", "state"), [("pause", 202, "PAUSED"), ("stop", 204, "STOPPED")])
def test_it_stands_within_a_second_and_its_neighbours_go_on(scene: Scene, verb: str, code: int, state: str) -> None:
    beats = records_in(scene.backup.confluent(), "heartbeats")
    began = time.monotonic()
    assert scene.api("PUT", f"/connectors/{MSC}/{verb}").code == code
    scene.api.wait_state(MSC, state, 5)
    print(f"{state} after {time.monotonic() - began:.2f} s")
    assert scene.api("PUT", f"/connectors/{MSC}/{verb}").code == code
    wait_until(lambda: time.monotonic() > began + 1)
    stood = scene.copied()
    scene.feed.wait_sent(PER_SECOND)
    assert scene.copied() == stood
    wait_until(lambda: records_in(scene.backup.confluent(), "heartbeats") > beats, what="another heartbeat")
    assert scene.api("PUT", f"/connectors/{MSC}/resume").code == 202
    scene.api.wait_state(MSC, "RUNNING")
    scene.wait_copying()


def test_restarted_it_goes_on(scene: Scene) -> None:
    assert scene.api("POST", f"/connectors/{MSC}/restart?includeTasks=true&onlyFailed=true").code == 202
    answer = scene.api("POST", f"/connectors/{MSC}/restart?includeTasks=true")
    assert answer.code == 202
    assert answer.body["connector"]["state"] == "RESTARTING"
    assert [one["state"] for one in answer.body["tasks"]] == ["RESTARTING", "RESTARTING"]
    assert scene.api("POST", f"/connectors/{HBC}/restart").code == 204
    assert scene.api("POST", f"/connectors/{MSC}/tasks/0/restart").code == 204
    assert scene.api("POST", f"/connectors/{MSC}/tasks/7/restart").code == 404
    scene.wait_copying()
    scene.api.wait_state(MSC, "RUNNING")


def test_configured_anew_it_copies_the_other_topic_too(scene: Scene) -> None:
    other = create_topic(scene.primary.confluent(), f"{scene.topic}-other", 1)
    produce(scene.primary.confluent(), other, [Record(None, b"%d" % n) for n in range(100)])
    began = scene.run.said().count("query ended")
    answer = scene.api("PATCH", f"/connectors/{MSC}/config", {"topics": f"{scene.topic}.*"})
    assert answer.code == 200
    wait_until(lambda: records_in(scene.backup.confluent(), other) == 100, what="the other topic", timeout_seconds=60)
    assert "changed as it goes" in scene.run.said()
    assert scene.run.said().count("query ended") == began
    scene.api.wait_state(MSC, "RUNNING", least_tasks=2)
    assert scene.api("PUT", f"/connectors/{MSC}/config", scene.config(MSC)).code == 200
    scene.wait_copying()


def test_a_cluster_that_is_not_there_fails_its_connector_alone(scene: Scene) -> None:
    config = {**scene.config(MSC), "name": "lost", "source.cluster.bootstrap.servers": "127.0.0.1:1"}
    assert scene.api("POST", "/connectors", {"name": "lost", "config": config}).code == 201
    wait_until(lambda: scene.api.state("lost") == "FAILED", what="FAILED", timeout_seconds=40)
    assert "127.0.0.1:1" in scene.api("GET", "/connectors/lost/status").body["connector"]["trace"]
    scene.wait_copying()
    assert scene.api("DELETE", "/connectors/lost").code == 204
    wait_until(lambda: scene.api("GET", "/connectors/lost/status").code == 404)


def test_undeployed_and_deployed_again_no_record_comes_twice(scene: Scene) -> None:
    for name in (CPC, HBC, MSC):
        assert scene.api("DELETE", f"/connectors/{name}").code == 204
        assert scene.api("DELETE", f"/connectors/{name}").code == 404
        assert scene.api("PUT", f"/connectors/{name}/config", scene.config(name)).code == 201
    scene.api.wait_state(MSC, "RUNNING")
    scene.wait_copying()


def test_killed_and_started_again_it_has_its_connectors(scene: Scene) -> None:
    scene.run.kill()
    scene.run = Run(scene.file, scene.folder / "second", verb="connect").__enter__()
    scene.run.wait(scene.api.up, what="health")
    for name in (CPC, HBC, MSC):
        scene.api.wait_state(name, "RUNNING")
    scene.wait_copying()


def test_offsets_are_seen_and_changed_only_when_it_is_stopped(scene: Scene) -> None:
    assert scene.api("DELETE", f"/connectors/{MSC}/offsets").code == 400
    assert scene.api("PUT", f"/connectors/{MSC}/stop").code == 204
    scene.api.wait_state(MSC, "STOPPED")
    listed = scene.api("GET", f"/connectors/{MSC}/offsets").body["offsets"]
    places = [(scene.topic, n) for n in range(PARTITIONS)]
    places.append((f"{scene.topic}-other", 0))  # it was copied for a while: Connect keeps where that came to, too
    expected = [{"cluster": "source-0", "partition": n, "topic": topic} for topic, n in places]
    assert sorted((one["partition"] for one in listed), key=str) == sorted(expected, key=str)
    assert all(one["offset"]["offset"] > 0 for one in listed)
    # The process that was killed a few seconds ago has said that it runs this: waited for until it is forgotten.
    said = scene.api("PATCH", f"/connectors/{MSC}/offsets", {"offsets": listed})
    assert said.code == 200, said.body
    assert "altered successfully" in said.body["message"]
    assert scene.api("GET", f"/connectors/{MSC}/offsets").body["offsets"] == listed
    assert scene.api("PUT", f"/connectors/{MSC}/resume").code == 202
    scene.api.wait_state(MSC, "RUNNING")
    scene.wait_copying()


def test_in_the_end_every_record_is_there_once(scene: Scene) -> None:
    expected = scene.feed.stop()
    assert_copied(scene.primary.confluent(), scene.backup.confluent(), scene.topic, scene.topic, expected=expected)
    assert scene.run.stop() == 0

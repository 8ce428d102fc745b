"""`heliograph spoke` beside a running hub: one story, told in order, since a start of Spark is most of what it costs.

A spoke is dead when the hub starts, one is added and refused while it runs, one is removed with records in its shared
topic. Judged by what confluent-kafka reads at the hub: every record once, and nobody else disturbed.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.main import run as heliograph
from heliograph.embedded import Kafka, running
from tests.broker.processes import Run
from tests.kit import Record, alter_topic, create_topic, end_offsets, own_settings, produce, read_all

NAMES = ("spoke1", "spoke2", "spoke3")
TOPIC, PARTITIONS = "topic", 2
DEMUX = "hub->hub.demux"
COMMENT = "# Ask Kim before you touch this.\n"


@dataclass
class Scene:
    hub: Kafka
    spokes: dict[str, Kafka]
    file: Path
    run: Run
    sent: dict[str, int]
    capture: pytest.CaptureFixture[str] | None = None

    def send(self, name: str, count: int) -> None:
        """Records that say whose they are and which."""
        begin = self.sent.get(name, 0)
        some = [
            Record(None, f"{name}-{n}".encode(), (), 1_700_000_000_000, n % PARTITIONS)
            for n in range(begin, begin + count)
        ]
        produce(self.spokes[name].confluent(), TOPIC, some)
        self.sent[name] = begin + count

    def at_hub(self, name: str) -> int:
        return sum(end_offsets(self.hub.confluent(), f"{name}.{TOPIC}").values())

    def arrived(self, name: str) -> bool:
        try:
            return self.at_hub(name) == self.sent[name]
        except KeyError:
            return False

    def spoke(self, *arguments: str) -> tuple[int, str, str]:
        """The code, and what it said."""
        assert self.capture is not None
        self.capture.readouterr()
        code = heliograph(["spoke", arguments[0], str(self.file), *arguments[1:]])
        return code, *self.capture.readouterr()

    def listed(self) -> dict[str, dict[str, Any]]:
        code, out, said = self.spoke("list", "-o", "json")
        assert code == 0, said
        return {one["spoke"]: one for one in json.loads(out)}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("spokes")
    # Where processes are found: a place of this test's own, and short, as a socket's path must be.
    with tempfile.TemporaryDirectory(prefix="hs", dir="/tmp") as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", place)
        config = {"auto.create.topics.enable": "false"}
        hub, *spokes = (Kafka(name, config=config) for name in ("hub", *NAMES))
        with running(hub, *spokes):
            for spoke in spokes:
                create_topic(spoke.confluent(), TOPIC, PARTITIONS, config={"retention.ms": "-1"})
            scene = Scene(hub, dict(zip(NAMES, spokes, strict=True)), folder / "mm2.properties", None, {})  # type: ignore[arg-type]
            for name in NAMES:
                scene.send(name, 300)
            _write(scene)
            scene.spokes["spoke2"].brokers[0].kill()
            with Run(scene.file, folder / "run") as scene.run:
                yield scene
                assert scene.run.stop() == 0, scene.run.words()


@pytest.fixture
def scene(story: Scene, capsys: pytest.CaptureFixture[str]) -> Scene:
    story.capture = capsys
    return story


def _write(scene: Scene) -> None:
    lines = ["clusters = spoke1, spoke2, hub", "emit.heartbeats.enabled = false", "tasks.max = 1"]
    lines += ["sync.topic.configs.interval.seconds = 1"]
    factors = ("", "offset.storage.", "offset-syncs.topic.", "checkpoints.topic.")
    lines += [f"{one}replication.factor = 1" for one in factors]
    lines += [f"{name}.bootstrap.servers = {scene.spokes[name].bootstrap}" for name in NAMES[:2]]
    lines += [f"hub.bootstrap.servers = {scene.hub.bootstrap}"]
    for name, via in zip(NAMES[:2], ("straight", "intermediate"), strict=True):
        pair = f"{name}->hub"
        lines += [f"{pair}.enabled = true", f"{pair}.mux.topics = {TOPIC}", f"{pair}.mux.via = {via}"]
        lines += [f"{pair}.demux = prefixed"]
    scene.file.write_text(COMMENT + "\n".join(lines) + "\n")


def test_a_hub_begins_without_a_spoke_that_is_dead_which_is_shown_as_dead_and_nothing_else(scene: Scene) -> None:
    scene.run.wait(lambda: scene.arrived("spoke1"), what="the living spoke's records")
    found = scene.listed()
    assert (found["spoke2"]["state"], found["spoke2"]["waiting_records"]) == ("dead", None)
    assert scene.spokes["spoke2"].bootstrap in found["spoke2"]["reason"]
    scene.run.wait(lambda: scene.listed()["spoke1"]["waiting_records"] == 0, what="positions of all that is put back")
    assert scene.listed()["spoke1"]["state"] in ("running", "idle")


def test_one_that_cannot_be_reached_is_not_added_and_the_file_stays(scene: Scene) -> None:
    before = scene.file.read_bytes()
    code, _, said = scene.spoke("add", "ghost", "--bootstrap-servers", "127.0.0.1:1", "--topics", TOPIC, "--yes")
    assert code == 2, said
    assert "127.0.0.1:1" in said
    assert scene.file.read_bytes() == before
    assert set(scene.listed()) == {"spoke1", "spoke2"}


def test_a_spoke_is_added_beside_a_dead_one_with_a_weight_and_a_cap(scene: Scene) -> None:
    wish = ("add", "spoke3", "--bootstrap-servers", scene.spokes["spoke3"].bootstrap, "--topics", TOPIC)
    wish += ("--demux", "prefixed", "--weight", "3", "--max-bytes-per-second", "5000000")
    before = scene.file.read_bytes()
    code, out, said = scene.spoke(*wish)
    assert (code, scene.file.read_bytes()) == (0, before), said
    assert "+spoke3->hub.demux.weight = 3" in out
    code, out, said = scene.spoke(*wish, "--yes")
    assert code == 0, said
    assert "spoke3->hub.mux: added" in out
    assert scene.file.read_text().startswith(COMMENT + "clusters = spoke1, spoke2, hub, spoke3\n")
    scene.run.wait(lambda: scene.arrived("spoke3"), what="the new spoke's records", timeout_seconds=90)
    found = scene.listed()
    assert (found["spoke3"]["weight"], found["spoke3"]["cap_bytes_per_s"]) == (3, 5_000_000)
    assert found["spoke2"]["state"] == "dead"


def test_a_spoke_that_comes_to_life_is_taken_up(scene: Scene) -> None:
    scene.spokes["spoke2"].brokers[0].start()
    scene.run.wait(lambda: scene.arrived("spoke2"), what="its records", timeout_seconds=150)
    # Its health follows when tasks have said where they stand, a second later.
    scene.run.wait(lambda: scene.listed()["spoke2"]["state"] in ("running", "idle"), what="it shown as living")


def test_settings_of_what_is_put_back_follow_the_spokes(scene: Scene) -> None:
    assert own_settings(scene.hub.confluent(), f"spoke2.{TOPIC}") == {"retention.ms": "-1"}, "as it was made"
    alter_topic(scene.spokes["spoke3"].confluent(), TOPIC, {"segment.bytes": "20000000"})
    wanted = {"retention.ms": "-1", "segment.bytes": "20000000"}
    hub = scene.hub.confluent()
    scene.run.wait(lambda: own_settings(hub, f"spoke3.{TOPIC}") == wanted, what="its settings at the hub")
    assert own_settings(scene.hub.confluent(), f"spoke1.{TOPIC}") == {"retention.ms": "-1"}, "nobody else's"


def test_a_spoke_with_records_in_its_shared_topic_is_drained_before_it_is_removed(scene: Scene) -> None:
    assert heliograph(["pause", DEMUX, "--file", str(scene.file)]) == 0
    time.sleep(1)  # within a second, as it is promised: until then some may still be put back
    scene.send("spoke1", 200)
    shared = "mux-replication_spoke1"
    scene.run.wait(lambda: sum(end_offsets(scene.hub.confluent(), shared).values()) == 500, what="them in its topic")
    before = scene.file.read_bytes()
    code, _, said = scene.spoke("remove", "spoke1", "--drain-seconds", "2", "--yes")
    assert code == 1, said
    assert "200 records of mux-replication_spoke1 wait to be put back" in said
    assert scene.file.read_bytes() == before
    found = scene.listed()["spoke1"]
    assert (found["state"], found["waiting_records"]) == ("stopped", 200)
    assert heliograph(["resume", DEMUX, "--file", str(scene.file)]) == 0
    code, out, said = scene.spoke("remove", "spoke1", "--yes")
    assert code == 0, said
    assert "spoke1->hub: drained" in out
    assert "spoke1->hub.mux: removed" in out
    assert scene.arrived("spoke1"), "all of it was put back before"
    assert "spoke1" not in scene.file.read_text()
    assert scene.file.read_text().startswith(COMMENT)
    assert set(scene.listed()) == {"spoke2", "spoke3"}


def test_one_that_died_can_be_removed_and_is_told_what_is_not_known(scene: Scene) -> None:
    scene.spokes["spoke2"].brokers[0].kill()
    code, out, said = scene.spoke("remove", "spoke2", "--yes")
    assert code == 0, said
    assert "spoke2 is dead" in said
    assert "what spoke2 still holds cannot be known" in out + said
    assert set(scene.listed()) == {"spoke3"}
    scene.send("spoke3", 100)
    scene.run.wait(lambda: scene.arrived("spoke3"), what="the other's records")


def test_one_that_comes_back_goes_on_where_it_stood_each_record_once(scene: Scene) -> None:
    scene.send("spoke1", 100)
    wish = ("add", "spoke1", "--bootstrap-servers", scene.spokes["spoke1"].bootstrap, "--topics", TOPIC)
    code, out, said = scene.spoke(*wish, "--demux", "prefixed", "--yes")
    assert code == 0, said
    assert "spoke1->hub.mux: was stopped when it was removed, and goes on" in out
    scene.run.wait(lambda: scene.arrived("spoke1"), what="what came meanwhile", timeout_seconds=90)
    for name in NAMES:
        found = read_all(scene.hub.confluent(), f"{name}.{TOPIC}")
        for partition, some in found.items():
            wanted = [f"{name}-{n}".encode() for n in range(partition, scene.sent[name], PARTITIONS)]
            assert [one.value for one in some] == wanted

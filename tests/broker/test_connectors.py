"""`heliograph connectors` against a real Connect worker with MirrorMaker 2: files as users have them, deployed,
steered, taken away; what it says is what the worker and the target's log say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.documents import document
from heliograph.cli.main import run
from heliograph.embedded import ConnectWorker, Kafka, connect_properties
from tests.broker.java import SOURCES, java
from tests.broker.processes import records_in
from tests.kit import Record, contents, create_topic, produce, read_all, wait_until

PACKAGE = "org.apache.kafka.connect.mirror"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
KINDS = {"cpc": "MirrorCheckpointConnector", "hbc": "MirrorHeartbeatConnector", "msc": "MirrorSourceConnector"}
PARTITIONS, RECORDS = 5, 1000

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def worker(backup: Kafka) -> Iterator[ConnectWorker]:
    # Positions once a minute, as Connect does unless it is told otherwise: every redeploy here comes between.
    properties = connect_properties(backup.cluster(), "deck", offset_flush_interval_ms="60000")
    with ConnectWorker(properties) as worker:
        yield worker


@pytest.fixture
def call(worker: ConnectWorker, capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*arguments: str) -> tuple[int, str, str]:
        code = run(["connectors", *arguments, "--url", worker.url])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return called


def write_files(folder: Path, cluster: str, primary: Kafka, backup: Kafka, topic: str) -> Path:
    """Three files: a flat object each, texts and booleans mixed, every connector told both clusters."""
    folder.mkdir(exist_ok=True)
    for kind, connector in KINDS.items():
        name = f"mm2-{kind}-{cluster}"
        config: dict[str, Any] = {
            "name": name,
            "connector.class": f"{PACKAGE}.{connector}",
            "key.converter": BYTES,
            "value.converter": BYTES,
            "source.cluster.alias": cluster,
            "source.cluster.bootstrap.servers": primary.bootstrap,
            "target.cluster.alias": "target-0",
            "target.cluster.bootstrap.servers": backup.bootstrap,
            "offset-syncs.topic.replication.factor": 1,
            "checkpoints.topic.replication.factor": 1,
            "heartbeats.topic.replication.factor": 1,
        }
        if kind == "msc":
            config |= {"topics": topic, "tasks.max": "2", "replication.factor": "1"}
            config |= {"sync.topic.acls.enabled": False, "sync.topic.configs.enabled": False}
            config["replication.policy.class"] = f"{PACKAGE}.IdentityReplicationPolicy"
        (folder / f"{name}.json").write_text(json.dumps(config, indent=2))
    return folder


def edit(folder: Path, name: str, **values: str) -> None:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key.replace("_", "."): v for key, v in values.items()}))


def test_deploy_status_redeploy_undeploy(
    call: Call, worker: ConnectWorker, primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path
) -> None:
    source, target = primary.confluent(), backup.confluent()
    create_topic(source, topic_name, PARTITIONS)
    produced = 0

    def copied(more: int) -> None:
        nonlocal produced
        numbers = range(produced, produced + more)
        produced += more
        produce(source, topic_name, [Record(b"k%d" % n, b"v%d" % n, partition=n % PARTITIONS) for n in numbers])
        wait_until(lambda: records_in(target, topic_name) >= produced, what="the copy")

    files = write_files(tmp_path / "mm2", "source-0", primary, backup, topic_name)
    where = ("source-0", "--dir", str(files))
    names = [f"mm2-{kind}-source-0" for kind in ("msc", "cpc", "hbc")]

    code, out, err = call("deploy", *where, "-o", "json")
    assert code == 0, err
    deployed = json.loads(out)
    assert [deployed[name]["did"] for name in names] == ["created"] * 3
    assert deployed[names[0]]["tasks"] == ["RUNNING", "RUNNING"]
    copied(RECORDS)

    code, out, _ = call("status", "source-0")
    assert code == 0
    assert out.count("RUNNING") == 3

    code, out, _ = call("deploy", *where, "-o", "json")  # again: nothing to do
    assert code == 0
    assert {one["did"] for one in json.loads(out).values()} == {"unchanged"}

    code, out, err = call("redeploy", *where)
    assert code == 0, err
    assert err.count(": deleted") == 3
    assert out.count("created") == 3
    copied(PARTITIONS)

    code, out, _ = call("undeploy", "source-0")
    assert code == 0
    assert out.count("deleted") == 3
    code, out, _ = call("undeploy", "source-0")
    assert code == 0
    assert out.count("absent") == 3
    assert call("status", "source-0")[0] == 1
    assert call("get")[1] == "no connectors\n"
    theirs, ours = read_all(source, topic_name), read_all(target, topic_name)
    assert contents(ours) == contents(theirs)  # each once, over the redeploy
    assert sum(map(len, ours.values())) == produced


def test_what_is_wrong_is_told_and_the_others_run(
    call: Call, primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path
) -> None:
    create_topic(primary.confluent(), topic_name)
    files = write_files(tmp_path / "mm2", "source-1", primary, backup, topic_name)
    where = ("source-1", "--dir", str(files))
    edit(files, "mm2-msc-source-1", tasks_max="many", refresh_topics_enabled="perhaps")
    edit(files, "mm2-cpc-source-1", emit_checkpoints_enabled="false")
    for verb in ("validate", "deploy"):
        code, _, err = call(verb, *where)
        assert code == 2
        assert "mm2-msc-source-1.json: Invalid value many for configuration tasks.max" in err
        assert "mm2-msc-source-1.json: Invalid value perhaps for configuration refresh.topics.enabled" in err
        assert "mm2-cpc-source-1.json: " in err
    assert call("get")[1] == "no connectors\n"

    edit(files, "mm2-msc-source-1", tasks_max="1", refresh_topics_enabled="true")
    edit(files, "mm2-msc-source-1", source_cluster_bootstrap_servers="nowhere.invalid:9092")
    edit(files, "mm2-cpc-source-1", emit_checkpoints_enabled="true")
    code, out, err = call("deploy", *where)
    assert code == 1, err
    assert "warning: source.cluster.bootstrap.servers is not the same" in err
    (failed,) = [line for line in out.splitlines() if line.startswith("mm2-msc-source-1")]
    assert failed.split()[1:3] == ["created", "FAILED"]
    assert "No resolvable bootstrap urls given in bootstrap.servers" in failed
    assert out.count("RUNNING") == 2

    edit(files, "mm2-msc-source-1", source_cluster_bootstrap_servers=primary.bootstrap)
    code, out, err = call("deploy", *where, "-o", "json")
    assert code == 0, out + err
    assert [one["did"] for one in json.loads(out).values()] == ["updated", "unchanged", "unchanged"]
    assert call("undeploy", "source-1")[0] == 0


def test_one_is_steered_and_its_offsets_altered(
    call: Call, primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path
) -> None:
    source, target = primary.confluent(), backup.confluent()
    create_topic(source, topic_name)
    produce(source, topic_name, [Record(None, b"%d" % n) for n in range(10)])
    files = write_files(tmp_path / "mm2", "source-2", primary, backup, topic_name)
    assert call("deploy", "source-2", "--dir", str(files))[0] == 0
    name = "mm2-msc-source-2"
    wait_until(lambda: records_in(target, topic_name) == 10, what="the copy")

    assert call("pause", name)[:2] == (0, f"{name}: PAUSED\n")
    assert call("resume", name)[0] == 0
    assert call("restart", name, "--tasks")[0] == 0
    assert call("restart", name, "--task", "0")[0] == 0
    file = tmp_path / "offsets.json"
    wanted = {"partition": {"cluster": "source-2", "partition": 0, "topic": topic_name}, "offset": {"offset": 6}}
    file.write_text(json.dumps({"offsets": [wanted]}))
    code, _, err = call("offsets", name, "--alter", str(file))
    assert code == 1
    assert "STOPPED state" in err
    assert call("stop", name)[0] == 0
    code, out, _ = call("offsets", name, "--alter", str(file), "-o", "json")
    assert code == 0
    assert json.loads(out)["offsets"] == [wanted]
    assert call("resume", name)[0] == 0
    wait_until(lambda: records_in(target, topic_name) == 13, what="7, 8 and 9 once more")  # 6 is the last one copied

    about = json.loads(call("describe", name, "-o", "json")[1])
    assert about["topics"] == [topic_name]
    assert about["status"]["connector"]["state"] == "RUNNING"
    assert f"topics = {topic_name}" in call("describe", name)[1]
    assert "MirrorSourceConnector" in call("get", name, "-o", "wide")[1]
    assert call("delete", name)[0] == 0
    assert call("describe", name)[0] == 2
    assert call("undeploy", "source-2")[0] == 0


def test_the_yaml_is_what_other_readers_read(tmp_path: Path) -> None:
    """By the reader that comes with Kafka's jars."""
    odd = [
        "yes",
        "1",
        "0x1F",
        "1:30",
        "2026-11-16",
        "~",
        "=",
        "<<",
        "- a",
        "a: b",
        "a #b",
        "*a",
        "!x",
        "ü",
        "\x85\u2028\x07",
    ]
    trace = "org.Error: no\n\tat a.b(C.java:1)\n\n  more\n"
    value = {"odd": odd, "trace": trace, "nested": [[], {}, [{"a": None, "b": [True, -1, 2.5]}]], "": {"x y": "z"}}
    file = tmp_path / "document.yaml"
    file.write_text(document(value, "yaml") + "\n")
    assert json.loads(java(str(SOURCES / "YamlToJson.java"), str(file))) == value

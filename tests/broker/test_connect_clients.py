"""`heliograph connect` as its clients meet it: the conversation that a real worker was recorded with, Java's client
library of others, a script of curl and jq, `heliograph connectors`. One process for all, since a start of Spark is most
of what it costs."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliograph.cli.main import run as command
from heliograph.embedded import Kafka, connect_properties
from heliograph.embedded.ports import claim_port
from tests.broker import library
from tests.broker.conversation import DATA, play, prepare, recorded, unjustified
from tests.broker.processes import Run, records_in, write_file
from tests.broker.test_connectors import write_files
from tests.kit import Record, contents, create_topic, produce, read_all, wait_until

PARTITIONS, RECORDS = 5, 1000


@dataclass(frozen=True)
class Node:
    url: str
    run: Run


@pytest.fixture(scope="module")
def node(backup: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    port = claim_port()
    url = f"http://127.0.0.1:{port.number}"
    properties = connect_properties(backup.cluster(), f"clients-{port.number}", listeners=url)
    properties |= {"rest.advertised.host.name": "127.0.0.1", "rest.advertised.port": str(port.number)}
    file = write_file(folder / "connect-distributed.properties", properties)
    with Run(file, folder / "run", verb="connect") as run:
        run.wait(lambda: healthy(url), what="health")
        yield Node(url, run)
        assert run.stop() == 0
    port.release()


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


class Copy:
    """A topic that is copied under its own name: fed, awaited, compared."""

    def __init__(self, primary: Kafka, backup: Kafka, topic: str) -> None:
        self.source, self.target, self.topic = primary.confluent(), backup.confluent(), topic
        self.produced = 0
        create_topic(self.source, topic, PARTITIONS)

    def feed(self, count: int) -> None:
        numbers = range(self.produced, self.produced + count)
        self.produced += count
        produce(self.source, self.topic, [Record(b"k%d" % n, b"v%d" % n, partition=n % PARTITIONS) for n in numbers])

    def wait(self, node: Node) -> None:
        node.run.wait(lambda: records_in(self.target, self.topic) >= self.produced, what="the copy", timeout_seconds=60)

    def assert_each_once(self) -> None:
        theirs, ours = read_all(self.source, self.topic), read_all(self.target, self.topic)
        assert sum(map(len, ours.values())) == self.produced
        assert contents(ours) == contents(theirs)


def test_the_conversation(node: Node, primary: Kafka, backup: Kafka, topic_name: str) -> None:
    topic = prepare(primary.confluent(), topic_name)
    # Spark starts with the first connector, which takes a while where others use the machine as well.
    answers = play(node.url, source=primary.bootstrap, target=backup.bootstrap, topic=topic, until_s=120)
    found = unjustified(recorded(), answers)
    assert not found, "\n".join(found)


def test_a_client_library_of_others(node: Node, primary: Kafka, backup: Kafka, topic_name: str) -> None:
    """As it meets a real worker, which `test_connect_worker` shows."""
    assert library.talk(node.url, primary, backup, topic_name) == library.expected(topic_name)


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")
def test_a_script_of_curl_and_jq(node: Node, primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path) -> None:
    copy = Copy(primary, backup, topic_name)
    files = write_files(tmp_path / "mm2", "hand-0", primary, backup, topic_name)

    def script(action: str) -> list[list[str]]:
        words = [DATA / "by-hand.sh", action, node.url, files, "hand-0"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        return [line.split(" ", 1) for line in done.stdout.splitlines()]

    def all_run() -> bool:
        return {state for _, state in script("status")} == {"RUNNING"}

    copy.feed(RECORDS)
    assert {did for _, did in script("status")} == {"null"}
    assert {did for _, did in script("deploy")} == {"deployed"}
    wait_until(all_run, what="all three running", timeout_seconds=60)
    copy.wait(node)
    assert {did for _, did in script("deploy")} == {"was there"}
    copy.feed(RECORDS)
    copy.wait(node)
    redeployed = [did for _, did in script("redeploy")]  # at once after the copy: no position is old enough
    assert redeployed == ["deleted"] * 3 + ["deployed"] * 3
    wait_until(all_run, what="all three running again", timeout_seconds=60)
    copy.feed(PARTITIONS)
    copy.wait(node)
    assert {did for _, did in script("undeploy")} == {"deleted"}
    assert {did for _, did in script("undeploy")} == {"was not there"}
    copy.assert_each_once()


def test_heliograph_connectors(
    node: Node, primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Copy(primary, backup, topic_name)
    files = write_files(tmp_path / "mm2", "deck-0", primary, backup, topic_name)

    def call(*words: str) -> str:
        capsys.readouterr()
        code = command(["connectors", *words, "--url", node.url])
        said = capsys.readouterr()
        assert code == 0, said.out + said.err
        return said.out

    copy.feed(RECORDS)
    for verb in ("validate", "deploy"):
        call(verb, "deck-0", "--dir", str(files))
    copy.wait(node)
    unchanged = json.loads(call("deploy", "deck-0", "--dir", str(files), "-o", "json"))
    assert {one["did"] for one in unchanged.values()} == {"unchanged"}
    copy.feed(RECORDS)
    copy.wait(node)
    assert call("redeploy", "deck-0", "--dir", str(files)).count("created") == 3
    copy.feed(PARTITIONS)
    copy.wait(node)
    name = "mm2-msc-deck-0"
    for verb in ("pause", "resume", "stop"):
        call(verb, name)
    assert len(json.loads(call("offsets", name, "-o", "json"))["offsets"]) == PARTITIONS
    call("resume", name)
    call("restart", name, "--tasks")
    assert topic_name in call("describe", name)
    call("status", "deck-0")
    assert call("undeploy", "deck-0").count("deleted") == 3
    copy.assert_each_once()

"""Files from the field as they stand, on clusters of the size they were written for: `heliograph run` and `connect`.

Two clusters of one broker each, copied both ways by two different files; a Connect worker with three connectors between
two clusters of two brokers; a hub and two spokes of one broker each. None of them sets all replication factors, and
Kafka's defaults (2 and 3) do not fit the brokers. Every record comes over once, heartbeats and checkpoints are there,
nothing goes round, and what has fewer replicas is said once, with topics and keys.

Each stand is tested with the seed itself where that is at hand (`tests/seeds.py`), else with a configuration in our own
words (`tests/data/seeds`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from heliograph.cli.main import run as heliograph
from heliograph.embedded import Kafka
from heliograph.embedded.ports import claim_port
from tests.broker.api import Api
from tests.broker.processes import START_SECONDS, Run, assert_copied, records_in
from tests.broker.site import Site
from tests.broker.test_both_ways import Side
from tests.kit import Record, create_topic, produce, read_all, wait_until
from tests.seeds import OWN, block, seeds_or, text_of

pytestmark = pytest.mark.timeout(900)

RECORDS = 300
BEGAN_MS = int(time.time() * 1000)  # not long ago: retention goes by the time in the records
FEWER = "topics have fewer replicas than wanted"


def some_records(partitions: int, word: str) -> list[Record]:
    return [
        Record(b"k%d" % (n % 17), f"{word}-{n}".encode(), (("n", b"%d" % n),), BEGAN_MS + n, n % partitions)
        for n in range(RECORDS)
    ]


def replicas(kafka: Kafka) -> dict[str, int]:
    found = AdminClient({**kafka.confluent(), "log_level": "0"}).list_topics(timeout=30).topics
    return {
        name: min(len(part.replicas) for part in topic.partitions.values())
        for name, topic in found.items()
        if not name.startswith("__")
    }


def wait_copied(run: Run, kafka: Kafka, topic: str) -> None:
    """Spark starts in seconds, or in minutes on a machine that others use as well."""
    run.wait(lambda: records_in(kafka.confluent(), topic) >= RECORDS, what=f"{RECORDS} records in {topic}")


def fewer_said(run: Run) -> str:
    """The one warning about replicas."""
    (line,) = [line for line in run.said().splitlines() if FEWER in line]
    return line


# ---------------------------------------------------------------- both ways, one broker each


@dataclass(frozen=True)
class BothWays:
    """A file that copies two clusters to each other."""

    text: str
    aliases: tuple[str, str]
    addresses: tuple[str, str]
    topic: str
    lowered: tuple[str, ...]  # keys of factors that it does not set

    def at(self, sides: Iterable[Side], path: Path) -> Path:
        text = self.text
        for address, side in zip(self.addresses, sides, strict=True):
            assert text.count(address) == 1
            text = text.replace(address, side.kafka.bootstrap)
        path.write_text(text)
        return path


EVERY = ("offset.storage.", "offset-syncs.topic.", "checkpoints.topic.", "heartbeats.topic.")


def both_ways(name: str) -> BothWays:
    if name == "both-ways":
        own = (OWN / "both-ways.properties").read_text()
        addresses = "north-broker:9092", "south-broker:9092"
        return BothWays(own, ("north", "south"), addresses, "products", EVERY[:1])
    if name == "recovery":
        own = (OWN / "recovery.properties").read_text()
        return BothWays(own, ("live", "spare"), ("live-broker:9092", "spare-broker:9092"), "greetings", EVERY)
    if name == "seed 001":
        cut = block(text_of("001"), "clusters = source, target")
        return BothWays(cut, ("source", "target"), ("localhost:9093", "localhost:9095"), "ProductA", EVERY[:1])
    cut = block(text_of("003"), "clusters = cluster-a, cluster-b")
    addresses = "kafka-01:29092", "kafka-02:29093"
    return BothWays(cut, ("cluster-a", "cluster-b"), addresses, "hello-kafka", EVERY)


@contextmanager
def up(*clusters: Kafka) -> Iterator[tuple[Kafka, ...]]:
    """As `running`, with the patience that a machine needs on which others work."""
    try:
        for one in clusters:
            one.launch()
        for one in clusters:
            one.wait_ready(START_SECONDS)
        yield clusters
    finally:
        for one in clusters:
            one.stop()


@pytest.fixture(scope="module")
def singles() -> Iterator[tuple[Kafka, ...]]:
    """Two clusters of one broker each."""
    with up(*(Kafka(name) for name in ("one", "two"))) as both:
        yield both


@pytest.fixture(scope="module")
def third() -> Iterator[Kafka]:
    with up(Kafka("three")) as (kafka,):
        yield kafka


@pytest.mark.parametrize("name", seeds_or("both-ways", "recovery", seeds=("seed 001", "seed 003")))
def test_both_ways_on_one_broker_each(
    name: str, singles: tuple[Kafka, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A topic under the same name on both sides. The second start writes checkpoints at once: records are there."""
    given = both_ways(name)
    first, second = given.aliases
    sides = Side(singles[0], first, second), Side(singles[1], second, first)
    file = given.at(sides, tmp_path / "mm2.properties")
    try:
        for side in sides:
            create_topic(side.kafka.confluent(), given.topic)
            produce(side.kafka.confluent(), given.topic, some_records(1, side.alias))
            wait_until(lambda s=side: s.commits(given.topic), what="a commit")  # type: ignore[misc]
        assert heliograph(["plan", str(file)]) == 3
        assert capfd.readouterr().out.count("Fewer replicas than wanted") >= 2
        _run_both_ways(file, sides, given, tmp_path / "first")
        _run_both_ways(file, sides, given, tmp_path / "second", checkpoints=True)
        for side in sides:
            assert set(side.topics()) == side.due([given.topic])
            assert set(replicas(side.kafka).values()) == {1}
    finally:
        for side in sides:
            side.clear()


def _run_both_ways(
    file: Path, sides: tuple[Side, Side], given: BothWays, folder: Path, *, checkpoints: bool = False
) -> None:
    port = claim_port()
    with Run(file, folder, "--http", str(port.number)) as run:
        for side, other in (sides, sides[::-1]):
            here, there = side.kafka.confluent(), other.kafka.confluent()
            wait_copied(run, other.kafka, f"{side.alias}.{given.topic}")
            assert_copied(here, there, given.topic, f"{side.alias}.{given.topic}", expected=RECORDS)
            due = ["heartbeats", *([f"{side.alias}.checkpoints.internal"] if checkpoints else [])]
            for topic in due:
                run.wait(lambda t=topic, c=there: records_in(c, t), what=topic)  # type: ignore[misc]
        said = fewer_said(run)
        assert all(f"{one}replication.factor" in said for one in given.lowered)
        assert all(f"mm2-offsets.{side.alias}.internal" in said for side in sides)
        assert "heliograph replicas raise" in said
        for flow in json.loads(Site(f"http://127.0.0.1:{port.number}").get("/status")[1])["flows"]:
            assert any("heliograph replicas raise" in one for one in flow["fewer_replicas"])
        assert run.stop() == 0, run.words()
    port.release()


# ---------------------------------------------------------------- Connect, two brokers each


@dataclass(frozen=True)
class Connectors:
    """A worker's file and its three connectors."""

    worker: str
    configs: dict[str, dict[str, Any]]  # by name: source, checkpoint, heartbeat
    addresses: tuple[str, str]  # of source and target
    topic: str
    alias: str
    target: str

    def with_addresses(self, text: str, kafkas: Iterable[Kafka]) -> str:
        for address, kafka in zip(self.addresses, kafkas, strict=True):
            text = text.replace(address, kafka.bootstrap)
        return text


def connectors(name: str) -> Connectors:
    if name == "own":
        jsons = [json.loads((OWN / f"{one}.json").read_text()) for one in ("source", "checkpoint", "heartbeat")]
        worker = (OWN / "worker.properties").read_text()
        addresses = "source-1:9092,source-2:9092", "target-1:9092,target-2:9092"
    else:
        seed = text_of("004")
        kinds = ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
        jsons = [json.loads(block(seed, '"connector.class"', f'.{kind}"')) for kind in kinds]
        worker = block(seed, "config.storage.topic", "group.id")
        addresses = "kafka-source-0:9092,kafka-source-1:9092", "kafka-target-0:9092,kafka-target-1:9092"
    source = jsons[0]
    aliases = source["source.cluster.alias"], source["target.cluster.alias"]
    return Connectors(worker, {one["name"]: one for one in jsons}, addresses, source["topics"], *aliases)


@pytest.fixture(scope="module")
def doubles() -> Iterator[tuple[Kafka, ...]]:
    """Two clusters of two brokers each."""
    with up(*(Kafka(name, brokers=2) for name in ("source", "target"))) as both:
        yield both


@pytest.mark.parametrize("name", seeds_or("own", seeds=("seed 004",)))
def test_connectors_on_two_brokers_each(
    name: str, doubles: tuple[Kafka, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = connectors(name)
    source, target = doubles
    sides = Side(source, given.alias, ""), Side(target, "target", given.alias)
    port = claim_port()
    file = tmp_path / "connect-distributed.properties"
    worker = re.sub(r"^rest\.port=8083$", f"rest.port={port.number}", given.worker, flags=re.MULTILINE)
    assert worker != given.worker
    file.write_text(given.with_addresses(worker, doubles))
    try:
        create_topic(source.confluent(), given.topic, 5, replication_factor=2)
        produce(source.confluent(), given.topic, some_records(5, "line"))
        committed = Side(source, given.alias, "")
        wait_until(lambda: committed.commits(given.topic), what="a commit")
        with Run(file, tmp_path / "run", verb="connect") as run:
            api = Api(f"http://127.0.0.1:{port.number}")
            run.wait(api.up, what="health")
            for one, config in given.configs.items():
                body = json.loads(given.with_addresses(json.dumps(config), doubles))
                assert api("PUT", f"/connectors/{one}/config", body).code == 201
            kinds = dict(zip(("source", "checkpoint", "heartbeat"), given.configs, strict=True))
            for one in given.configs:
                api.wait_state(one, "RUNNING", 300)
            wait_copied(run, target, given.topic)
            assert_copied(source.confluent(), target.confluent(), given.topic, given.topic, expected=RECORDS)
            # What was not there when it began is written when it begins anew, or in a minute.
            assert api("POST", f"/connectors/{kinds['checkpoint']}/restart").code == 204
            for topic in ("heartbeats", f"{given.alias}.checkpoints.internal"):
                run.wait(lambda t=topic: records_in(target.confluent(), t), what=topic)  # type: ignore[misc]
            for one in given.configs:
                api.wait_state(one, "RUNNING")
            assert run.stop() == 0, run.words()
        found = replicas(target)
        assert (found["heartbeats"], found[f"{given.alias}.checkpoints.internal"]) == (2, 2)
        assert found[given.topic] == 1  # as the connector says
        assert replicas(source)[f"mm2-offset-syncs.{given.target}.internal"] == 2
        said = run.said()
        for key in ("checkpoints", "heartbeats", "offset-syncs"):
            assert f"{key}.topic.replication.factor" in said
        assert sum(map(len, read_all(target.confluent(), given.topic).values())) == RECORDS
        capfd.readouterr()
        assert heliograph(["replicas", "list", str(file), "--json"]) == 0  # of the worker, and of its connectors
        listed = {one["topic"]: (one["replicas"], one["wanted"]) for one in json.loads(capfd.readouterr().out)}
        assert listed["heartbeats"] == (2, 3)
        assert (1, 1) in listed.values()
    finally:
        for side in sides:
            side.clear()
        port.release()


# ---------------------------------------------------------------- a hub and two spokes, one broker each

HEADERS = (
    *("MUX_SOURCE_TOPIC", "MUX_SOURCE_TOPIC_PARTITION", "MUX_SOURCE_TIMESTAMP", "MUX_SOURCE_BOOTSTRAP_SERVERS"),
    *("MUX_INTERMEDIATE_TOPIC", "MUX_SOURCE_IDENTIFIER", "MUX_SOURCE_CLUSTER_ID"),
)


@pytest.mark.parametrize("name", seeds_or("own", seeds=("seed 000",)))
def test_a_hub_and_two_spokes_on_one_broker_each(
    name: str, singles: tuple[Kafka, ...], third: Kafka, tmp_path: Path
) -> None:
    """Two topics of each spoke travel in one and are put back at the hub, a third stays where it is."""
    left, carried, shared, headers = "stays", ("calls", "clicks"), "mux-replication_{}", HEADERS
    if name != "own":
        seed = text_of("000")
        (left,) = re.findall(r"unreplicated topic \(`(\w+)`\)", seed)
        carried = re.findall(r"two replicated topics \(`(\w+)` & `(\w+)`\)", seed)[0]
        assert "`mux-replication_spoke1` & `mux-replication_spoke2`" in seed
        headers = tuple(re.findall(r"^\| (MUX_\w+)", seed, re.MULTILINE))
    hub, *spokes = (third, *singles)
    lines = ["clusters = spoke1, spoke2, hub", f"hub.bootstrap.servers = {hub.bootstrap}", "tasks.max = 1"]
    for alias, spoke in zip(("spoke1", "spoke2"), spokes, strict=True):
        lines += [f"{alias}.bootstrap.servers = {spoke.bootstrap}", f"{alias}->hub.enabled = true"]
        lines += [f"{alias}->hub.mux.topics = {', '.join(carried)}", f"{alias}->hub.mux.via = intermediate"]
        lines += [f"{alias}->hub.demux = original"]
    file = tmp_path / "mm2.properties"
    file.write_text("\n".join(lines) + "\n")
    sides = [Side(kafka, "", "") for kafka in (hub, *spokes)]
    try:
        for alias, spoke in zip(("spoke1", "spoke2"), spokes, strict=True):
            for topic in (left, *carried):
                create_topic(spoke.confluent(), topic)
                produce(spoke.confluent(), topic, some_records(1, f"{alias}-{topic}"))
        with Run(file, tmp_path / "run") as run:
            for topic in carried:
                run.wait(lambda t=topic: records_in(hub.confluent(), t) >= 2 * RECORDS, what=topic)  # type: ignore[misc]
            run.wait(lambda: records_in(hub.confluent(), "heartbeats"), what="heartbeats")
            assert "offset.storage.replication.factor" in fewer_said(run)
            assert run.stop() == 0, run.words()
        for topic in carried:
            (found,) = read_all(hub.confluent(), topic).values()
            wanted = {one.value for alias in ("spoke1", "spoke2") for one in some_records(1, f"{alias}-{topic}")}
            assert len(found) == len(wanted)
            assert {one.value for one in found} == wanted
            assert set(headers) <= {key for key, _ in found[0].headers}
        there = replicas(hub)
        assert not [topic for topic in there if left in topic]
        assert {f"{alias}.{shared.format(alias)}" for alias in ("spoke1", "spoke2")} <= there.keys()
        assert set(there.values()) == {1}
    finally:
        for side in sides:
            side.clear()

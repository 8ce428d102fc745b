"""`heliograph run` and `connect` that are started before their clusters: they wait, say for what, and go on; or they
end with the code that says "try again". A wrong factor is bad input all the same.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.embedded import Kafka
from heliograph.embedded.ports import claim_port
from tests.broker.api import Api
from tests.broker.engine import topics_of
from tests.broker.processes import Run, records_in, write_file
from tests.kit import SOON_BACK, Record, create_topic, produce

UNREACHABLE = 75
RECORDS = 100


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that refuses connections for sure: bound, and not listening."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def a_file(folder: Path, us: str, eu: str, *lines: str) -> Path:
    file = folder / "mm2.properties"
    addresses = (f"us.bootstrap.servers = {us}", f"eu.bootstrap.servers = {eu}")
    file.write_text("\n".join(["clusters = us, eu", *addresses, "us->eu.enabled = true", *lines]) + "\n")
    return file


def waiting(run: Run, *words: str) -> bool:
    """Whether it said that it waits, and these words of it."""
    return any('"waiting"' in line and all(word in line for word in words) for line in run.said().splitlines())


def test_clusters_that_come_later_are_waited_for(tmp_path: Path) -> None:
    """Ten seconds later, or as long as a broker takes to start. Then the source's broker restarts while the process
    does: the worker of Connect, whose topics are there, waits as well."""
    us, eu = Kafka("us", config=SOON_BACK), Kafka("eu", config=SOON_BACK)
    try:
        file = a_file(tmp_path, us.bootstrap, eu.bootstrap, "topics = orders", "refresh.topics.interval.seconds = 1")
        with Run(file, tmp_path / "run", "--wait", "300", verbose=False) as run:
            run.wait(lambda: waiting(run, us.bootstrap, eu.bootstrap, "refused"), what="its word that it waits")
            run.wait(lambda: "waiting: " in run.status().get("reason", ""), what="the same of its flow")
            us.launch()
            eu.launch()
            us.wait_ready()
            eu.wait_ready()
            create_topic(us.confluent(), "orders")
            produce(us.confluent(), "orders", [Record(b"k", b"%d" % n) for n in range(RECORDS)])
            run.wait(lambda: records_in(eu.confluent(), "us.orders") == RECORDS, what="the copy")
            assert run.stop() == 0, run.words()
        _connect_waits(eu, tmp_path)
    finally:
        us.stop()
        eu.stop()


def _connect_waits(eu: Kafka, folder: Path) -> None:
    port = claim_port()
    names = {f"{one}.storage.topic": f"own-{one}" for one in ("config", "offset", "status")}
    worker = {"bootstrap.servers": eu.bootstrap, "group.id": "own", "rest.port": str(port.number), **names}
    file = write_file(folder / "connect-distributed.properties", worker)
    eu.brokers[0].kill()
    api = Api(f"http://127.0.0.1:{port.number}")
    with Run(file, folder / "connect", "--wait", "300", verb="connect", verbose=False) as run:
        run.wait(lambda: waiting(run, eu.bootstrap, "refused"), what="its word that it waits")
        eu.brokers[0].start()
        run.wait(api.up, what="health")
        assert "config.storage.replication.factor" in run.said()  # three by default, on one broker
        assert run.stop() == 0, run.words()
    port.release()


@pytest.mark.parametrize("verb", ["run", "connect"])
@pytest.mark.parametrize(("wait", "words"), [("0", 0), ("2", 1)])
def test_one_that_never_comes_is_told_by_the_code(
    nobody: str, tmp_path: Path, verb: str, wait: str, words: int
) -> None:
    file = a_file(tmp_path, nobody, nobody)
    if verb == "connect":
        port = claim_port()
        names = {f"{one}.storage.topic": one for one in ("config", "offset", "status")}
        worker = {"bootstrap.servers": nobody, "group.id": "own", "rest.port": str(port.number), **names}
        file = write_file(tmp_path / "connect-distributed.properties", worker)
    with Run(file, tmp_path / "run", "--wait", wait, verb=verb, verbose=False) as run:
        code = run.wait_ended(120)
    said = run.said()
    assert code == UNREACHABLE, said
    assert said.count("error [UNREACHABLE]") == 1
    assert f"{nobody}: refused" in said
    assert said.count('"waiting"') == words
    assert "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_waits_ends_when_it_is_told_to(nobody: str, tmp_path: Path, number: int) -> None:
    file = a_file(tmp_path, nobody, nobody)
    with Run(file, tmp_path / "run", "--wait", "3600", verbose=False) as run:
        run.wait(lambda: waiting(run, nobody), what="its word that it waits")
        began = time.monotonic()
        assert run.stop(number) == 0, run.words()
        assert time.monotonic() - began < 20  # one second, and what the machine takes


def test_a_refused_login_is_not_waited_for(primary: Kafka, guarded_pair: tuple[Kafka, Kafka], tmp_path: Path) -> None:
    west = guarded_pair[0].cluster("west", password="guess")
    lines = [f"eu.{key} = {value}" for key, value in west.properties.items() if key != "bootstrap.servers"]
    file = a_file(tmp_path, primary.bootstrap, west.bootstrap, *lines)
    with Run(file, tmp_path / "run", "--wait", "3600", verbose=False) as run:
        assert run.wait_ended(120) == 2, run.said()
    assert "LOGIN_FAILED" in run.said()
    assert '"waiting"' not in run.said()


def test_a_factor_of_the_file_above_the_brokers(primary: Kafka, backup: Kafka, tmp_path: Path) -> None:
    """All of them at once, each by the key as it stands there; those that the file does not set are no problem."""
    lines = ["topics = none-such", "us->eu.replication.factor = 2", "heartbeats.topic.replication.factor = 3"]
    file = a_file(tmp_path, primary.bootstrap, backup.bootstrap, *lines)
    before = topics_of(primary.confluent()), topics_of(backup.confluent())
    with Run(file, tmp_path / "run", verbose=False) as run:
        code = run.wait_ended(120)
    said = run.said()
    assert code == 2, said
    assert said.count("error [CONFIG]") == 1
    assert "us->eu.replication.factor = 2: eu has 1 broker, so new copies cannot be created" in said
    if "heartbeats" not in before[1]:  # other tests may have made it
        assert "heartbeats.topic.replication.factor = 3: eu has 1 broker, so heartbeats cannot be created" in said
    assert "offset.storage" not in said
    assert (topics_of(primary.confluent()), topics_of(backup.confluent())) == before

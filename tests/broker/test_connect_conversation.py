"""The conversation that a real Connect worker was recorded with, held with `heliograph connect`: the same codes, the
same shapes, the same values where it matters.
What differs is listed in tests/data/connect/differences.toml, with why."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from heliograph.cli.main import VERBS
from heliograph.embedded import Kafka, connect_properties
from heliograph.embedded.ports import claim_port
from tests.broker.conversation import play, prepare, recorded, unjustified
from tests.broker.processes import Run, write_file


@pytest.mark.skipif("connect" not in VERBS, reason="needs the verb `connect`")
def test_it_answers_as_a_real_worker_does(primary: Kafka, backup: Kafka, topic_name: str, tmp_path: Path) -> None:
    topic = prepare(primary.confluent(), topic_name)
    port = claim_port()
    url = f"http://127.0.0.1:{port.number}"
    properties = connect_properties(backup.cluster(), topic_name, listeners=url)
    properties |= {"rest.advertised.host.name": "127.0.0.1", "rest.advertised.port": str(port.number)}
    file = write_file(tmp_path / "connect-distributed.properties", properties)
    with Run(file, tmp_path / "run", verb="connect") as run:
        run.wait(lambda: _healthy(url), what="health")
        answers = play(url, source=primary.bootstrap, target=backup.bootstrap, topic=topic)
        assert run.stop() == 0
    port.release()
    assert unjustified(recorded(), answers) == []


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False

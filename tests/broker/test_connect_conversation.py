"""The same calls to a real Connect worker 4.3.1 (recorded) and to `heliograph connect`: same codes, same shapes, and what
differs is in tests/data/connect/differences.toml with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.embedded import Kafka
from heliograph.embedded.ports import claim_port
from tests.broker.api import Api
from tests.broker.processes import Run, write_file

conversation = pytest.importorskip("tests.broker.conversation", reason="the recorded conversation is not here yet")

pytestmark = pytest.mark.timeout(300)


def test_what_a_real_worker_answers_we_answer(primary: Kafka, backup: Kafka, tmp_path: Path, topic_name: str) -> None:
    port = claim_port()
    storage = {f"{kind}.storage.topic": f"talk-{kind}-{port.number}" for kind in ("config", "offset", "status")}
    single = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    listener = {"listeners": f"http://127.0.0.1:{port.number}"}
    group = {"bootstrap.servers": backup.bootstrap, "group.id": f"talk-{port.number}"}
    file = write_file(tmp_path / "worker.properties", {**group, **storage, **single, **listener})
    topic = conversation.prepare(primary.confluent(), topic_name)
    with Run(file, tmp_path / "run", verb="connect") as run:
        api = Api(f"http://127.0.0.1:{port.number}")
        run.wait(api.up, what="health")
        said = conversation.play(api.url, source=primary.bootstrap, target=backup.bootstrap, topic=topic)
        found = conversation.unjustified(conversation.recorded(), said)
        assert not found, "\n".join(found)
        assert run.stop() == 0
    port.release()

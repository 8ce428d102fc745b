"""A copy between two clusters that both want TLS and a login, by the real command: PEM stores on one side, PKCS12 on
the other."""

from __future__ import annotations

from pathlib import Path

from heliograph.embedded import Kafka, running
from tests.broker.engine import assert_same
from tests.broker.processes import Run, write_file
from tests.kit import Record, create_topic, end_offsets, produce

FLOWS = ("near->far", "far->near")


def test_both_ways_over_sasl_ssl_with_scram(tmp_path: Path, topic_name: str) -> None:
    config = {"auto.create.topics.enable": "false"}
    near = Kafka("near", security=("SASL_SSL",), config=config)
    far = Kafka("far", security=("SASL_SSL",), config=config)
    with running(near, far):
        create_topic(near.confluent(), topic_name, 4)
        create_topic(far.confluent(), f"{topic_name}-back", 2)
        for codec in ("lz4", "zstd", "none"):
            settings = {"compression.type": codec}
            records = [Record(b"k%d" % n, b"v" * (n % 300), (("h", None),), partition=n % 4) for n in range(20_000)]
            produce(near.confluent(), topic_name, records, config=settings)
        produce(far.confluent(), f"{topic_name}-back", [Record(None, b"%d" % n, partition=n % 2) for n in range(1000)])
        file = write_file(
            tmp_path / "mm2.properties",
            {
                "clusters": "near, far",
                "topics": f"{topic_name}.*",
                "replication.factor": "1",
                "offset.storage.replication.factor": "1",
                **{f"{flow}.enabled": "true" for flow in FLOWS},
                **{f"near.{k}": v for k, v in near.cluster(user="alice", store="PEM").properties.items()},
                **{f"far.{k}": v for k, v in far.cluster(user="alice", store="PKCS12").properties.items()},
            },
        )
        assert "SCRAM-SHA-512" in file.read_text()
        with Run(file, tmp_path / "run") as run:
            run.wait(lambda: run.status(FLOWS[0]).get("records") == 60_000, what="there")
            run.wait(lambda: run.status(FLOWS[1]).get("records") == 1000, what="back")
            assert run.stop() == 0
        assert assert_same(near, far, topic_name, f"near.{topic_name}") == dict.fromkeys(range(4), 15_000)
        assert assert_same(far, near, f"{topic_name}-back", f"far.{topic_name}-back") == {0: 500, 1: 500}
        # The words of the process and what it wrote hold no secret.
        assert "alice-secret" not in run.said()
        assert sum(end_offsets(far.confluent(), f"near.{topic_name}").values()) == 60_000

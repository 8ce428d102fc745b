"""A real Kafka Connect worker and `heliograph connect` take turns on one file and the same topics: each finds the
other's connectors, in the states they were left in, and goes on from the other's positions. (MirrorMaker 2 may copy
again what it had not written down when it ended; Heliograph adds nothing to that.)"""

from __future__ import annotations

from pathlib import Path

from heliograph.embedded import ConnectWorker, Kafka, connect_properties
from heliograph.embedded.ports import claim_port
from tests.broker.api import Api
from tests.broker.processes import Run, records_in, write_file
from tests.kit import Record, create_topic, produce, wait_until

MIRROR = "org.apache.kafka.connect.mirror.Mirror"
RECORDS, PARTITIONS = 400, 2


def feed(kafka: Kafka, topic: str, mark: str) -> None:
    records = [Record(b"%d" % n, f"{mark}-{n}".encode(), partition=n % PARTITIONS) for n in range(RECORDS)]
    produce(kafka.confluent(), topic, records)


def test_a_real_worker_and_ours_take_turns(primary: Kafka, backup: Kafka, tmp_path: Path, topic_name: str) -> None:
    remote = f"source-0.{topic_name}"
    create_topic(primary.confluent(), topic_name, PARTITIONS)
    clusters = {
        "source.cluster.alias": "source-0",
        "source.cluster.bootstrap.servers": primary.bootstrap,
        "target.cluster.alias": "target-0",
        "target.cluster.bootstrap.servers": backup.bootstrap,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
    }
    source = {**clusters, "connector.class": f"{MIRROR}SourceConnector", "topics": topic_name, "tasks.max": "2"}
    source["heartbeats.replication.enabled"] = "false"  # the source may have those of other tests
    beats = {**clusters, "connector.class": f"{MIRROR}HeartbeatConnector"}
    group = f"swap-{topic_name}"
    properties = connect_properties(backup.cluster(), group=group)

    def copied() -> int:
        return records_in(backup.confluent(), remote)

    with ConnectWorker(properties) as worker:
        api = Api(worker.url)
        assert api("PUT", "/connectors/msc/config", source).code == 201
        assert api("PUT", "/connectors/hbc/config", beats).code == 201
        api.wait_state("msc", "RUNNING", least_tasks=2)
        feed(primary, topic_name, "first")
        wait_until(lambda: copied() >= RECORDS, what="the first records", timeout_seconds=60)
        assert api("PUT", "/connectors/hbc/pause").code == 202
        api.wait_state("hbc", "PAUSED")
        last = [{"offset": RECORDS // PARTITIONS - 1}] * PARTITIONS  # written down: what it had not it would copy again
        wait_until(lambda: [one["offset"] for one in api("GET", "/connectors/msc/offsets").body["offsets"]] == last)
    port = claim_port()
    file = write_file(tmp_path / "worker.properties", {**properties, "listeners": f"http://127.0.0.1:{port.number}"})
    with Run(file, tmp_path / "ours", verb="connect") as run:
        api = Api(f"http://127.0.0.1:{port.number}")
        run.wait(api.up, what="health")
        assert api("GET", "/connectors/msc/config").body == {**source, "name": "msc"}
        api.wait_state("msc", "RUNNING", least_tasks=2)
        api.wait_state("hbc", "PAUSED")
        before = copied()
        feed(primary, topic_name, "second")
        run.wait(lambda: copied() >= before + RECORDS, what="the second records", timeout_seconds=60)
        assert copied() == before + RECORDS, "from where the real worker stood"
        assert api("PUT", "/connectors/hbc/resume").code == 202
        api.wait_state("hbc", "RUNNING", least_tasks=1)
        assert run.stop() == 0
    port.release()
    with ConnectWorker(properties) as worker:
        api = Api(worker.url)
        api.wait_state("msc", "RUNNING", least_tasks=2)
        api.wait_state("hbc", "RUNNING", least_tasks=1)
        before = copied()
        assert before == 2 * RECORDS
        feed(primary, topic_name, "third")
        wait_until(lambda: copied() >= before + RECORDS, what="the third records", timeout_seconds=60)
        assert copied() == before + RECORDS, "from where we stood"

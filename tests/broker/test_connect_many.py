"""A hundred connectors over twenty topics on one worker: what a listing with everything in it costs, and what they cost
when nothing is to be copied. A measurement of minutes: HELIOGRAPH_CONNECTORS=100 runs it, `-s` shows the figures."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import psutil
import pytest

from heliograph.embedded import Kafka, connect_properties
from heliograph.embedded.ports import claim_port
from tests.broker.api import Api
from tests.broker.processes import Run, write_file
from tests.kit import create_topic

CONNECTORS = int(os.environ.get("HELIOGRAPH_CONNECTORS", "0"))
TOPICS, LISTINGS = 20, 50
LISTED_S, IDLE_S = 0.2, 20.0

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not CONNECTORS, reason="takes minutes: HELIOGRAPH_CONNECTORS=100 runs it"),
]


def test_listing_with_expand(primary: Kafka, backup: Kafka, tmp_path: Path, topic_name: str) -> None:
    topics = [create_topic(primary.confluent(), f"{topic_name}-{n}", 1) for n in range(TOPICS)]
    port = claim_port()
    url = f"http://127.0.0.1:{port.number}"
    file = write_file(
        tmp_path / "worker.properties", connect_properties(backup.cluster(), f"many-{port.number}", listeners=url)
    )
    with Run(file, tmp_path / "run", verb="connect", verbose=False) as run:
        api = Api(url)
        run.wait(api.up, what="health")
        for n in range(CONNECTORS):
            answer = api("PUT", f"/connectors/many-{n}/config", _config(primary, backup, n, topics[n % TOPICS]))
            assert answer.code == 201, answer
        began, meanwhile = time.monotonic(), [0.0]
        run.wait(
            lambda: _running(api, meanwhile) == CONNECTORS,
            what="all running",
            timeout_seconds=1200,
            every_seconds=0.5,  # as a page that is looked at would: fifty listings a second held up what they look at
        )
        median_s = statistics.median(meanwhile)
        print(
            f"all ran after {time.monotonic() - began:.0f} s; listings meanwhile: median {median_s:.3f} s, "
            f"longest {max(meanwhile):.3f} s"
        )
        assert median_s < LISTED_S
        _print_idle(run)
        took = sorted(_listing_s(api) for _ in range(LISTINGS))
        print(f"listing {CONNECTORS}: median {statistics.median(took):.3f} s, longest {took[-1]:.3f} s")
        assert statistics.median(took) < LISTED_S
        assert run.stop() == 0
    port.release()


def _config(primary: Kafka, backup: Kafka, n: int, topic: str) -> dict[str, str]:
    """An alias each: several copy one topic, each to a name of its own."""
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": f"source-{n}",
        "source.cluster.bootstrap.servers": primary.bootstrap,
        "target.cluster.alias": "target",
        "target.cluster.bootstrap.servers": backup.bootstrap,
        "topics": topic,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
    }


def _running(api: Api, took: list[float]) -> int:
    began = time.perf_counter()
    listed = api("GET", "/connectors?expand=status").body
    took.append(time.perf_counter() - began)
    return sum(one.get("status", {}).get("connector", {}).get("state") == "RUNNING" for one in listed.values())


def _listing_s(api: Api) -> float:
    began = time.perf_counter()
    answer = api("GET", "/connectors?expand=status&expand=info")
    took = time.perf_counter() - began
    assert answer.code == 200
    assert len(answer.body) == CONNECTORS
    return took


def _print_idle(run: Run) -> None:
    """Of the command and everything it started, while nothing is to be copied."""
    family = [run.process, *run.process.children(recursive=True)]
    before = {one.pid: _cpu_s(one) for one in family}
    time.sleep(IDLE_S)  # what is measured is time that passes
    used_s = sum(_cpu_s(one) - before[one.pid] for one in family if one.is_running())
    rss = sum(one.memory_info().rss for one in family if one.is_running())
    threads = run.process.num_threads()
    print(f"idle: {used_s / IDLE_S:.2f} cores, {rss >> 20:,} MiB in {len(family)} processes, {threads} threads")


def _cpu_s(one: psutil.Process) -> float:
    try:
        times = one.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)

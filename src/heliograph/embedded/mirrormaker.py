"""The real MirrorMaker 2 of the pinned release, as a process: what tests take over from and benchmarks compare with.

    with MirrorMaker(mm2_properties(primary.cluster(), backup.cluster(), topics="orders")) as mm2:
        ...
        mm2.stop()      # SIGTERM: flushes, commits its offsets

Nothing of Heliograph's own mirroring is here.
"""

from __future__ import annotations

from heliograph.embedded.program import PROGRAM_JVM, QUICK_PROGRAM_JVM, Program
from heliograph.types import Cluster

MM2_JVM = PROGRAM_JVM
QUICK_MM2_JVM = QUICK_PROGRAM_JVM

# Of everything MM2 makes: for clusters of one broker.
SINGLE_COPIES = {
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
}


def mm2_properties(source: Cluster, target: Cluster, **more: str) -> dict[str, str]:
    """An mm2.properties for one flow, single copies of everything; `more` with _ for . (`topics`, `tasks_max` …)."""
    flow = f"{source.alias}->{target.alias}"
    properties = {
        "clusters": f"{source.alias},{target.alias}",
        f"{flow}.enabled": "true",
        f"{target.alias}->{source.alias}.enabled": "false",
        **SINGLE_COPIES,
    }
    for cluster in (source, target):
        properties |= {f"{cluster.alias}.{key}": value for key, value in cluster.properties.items()}
    return properties | {f"{flow}.{key.replace('_', '.')}": value for key, value in more.items()}


class MirrorMaker(Program):
    """One MirrorMaker 2 process."""

    name = "MirrorMaker"
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    short = "mm2"

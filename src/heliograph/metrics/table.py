"""Every metric, declared once: /metrics is rendered from this table, and so is docs/metrics.md. Pure.

A figure that is not in the table cannot be shown (`exposition` refuses it), and one that is in the table and never
shown makes a test fail. Names follow Prometheus' customs: base units, `_total` for what only grows. MM2's own figures
stand beside ours under the names that the usual JMX exporter rules give them, so that dashboards made for MM2 go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    COUNTER = "counter"  # counts from the start of the process
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"  # always 1: what matters is in the labels


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    unit: str = ""  # the name ends with it (before `_total`)
    mm2: str = ""  # MM2's own name of the same figure: type and attribute of its MBean


FLOW = ("source", "target")
TOPIC = (*FLOW, "topic")
PARTITION = (*TOPIC, "partition")
GROUP = (*FLOW, "group", "topic", "partition")

SOURCE_CONNECTOR = "kafka_connect_mirror_mirrorsourceconnector_"
CHECKPOINT_CONNECTOR = "kafka_connect_mirror_mirrorcheckpointconnector_"

_C, _G, _H, _I = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, Kind.INFO

PROCESS = (
    Metric("heliograph_build_info", _I, ("version",), "The version that runs."),
    Metric(
        "heliograph_start_time_seconds", _G, (), "When this process began to serve figures, in Unix time.", "seconds"
    ),
    Metric(
        "heliograph_configuration_generation",
        _G,
        (),
        "Which file the flows go by: 1 at the start, one more each time an edited one is taken up.",
    ),
    Metric("heliograph_configuration_info", _I, ("file", "digest"), "The file, and a digest of its bytes as taken up."),
    Metric("heliograph_configuration_applied_time_seconds", _G, (), "When it was taken up, in Unix time.", "seconds"),
    Metric("heliograph_configuration_refused_total", _C, (), "Edited files that were not taken up for their problems."),
)

OF_FLOWS = (
    Metric("heliograph_flow_healthy", _G, FLOW, "1 while every partition is idle or moves and the query runs, else 0."),
    Metric("heliograph_flow_state", _G, (*FLOW, "state"), "1 for the state the flow is in, 0 for the others."),
    Metric(
        "heliograph_flow_problem_info",
        _I,
        (*FLOW, "state", "reason"),
        "Present while the flow is not healthy: why, in words.",
    ),
    Metric("heliograph_topics", _G, FLOW, "Topics that the flow copies or should copy."),
    Metric("heliograph_partitions", _G, (*FLOW, "state"), "Partitions by their state."),
    Metric(
        "heliograph_history_partitions", _G, FLOW, "Partitions far behind their source, which give way to the others."
    ),
    Metric("heliograph_tasks", _G, FLOW, "Tasks that are connected now."),
    Metric("heliograph_epoch", _G, FLOW, "The epoch that runs; counts from 1 again when the query is started again."),
    Metric("heliograph_epochs_total", _C, FLOW, "Epochs planned."),
    Metric("heliograph_query_restarts_total", _C, FLOW, "How often the streaming query ended and was started again."),
    Metric(
        "heliograph_heartbeat_age_seconds",
        _G,
        FLOW,
        "Since the last heartbeat was acknowledged by the target.",
        "seconds",
    ),
    Metric(
        "heliograph_checkpoint_latency_seconds",
        _H,
        FLOW,
        "From reading a group's offset on the source to its checkpoint being acknowledged by the target.",
        "seconds",
    ),
)

OF_CAPS = (
    Metric(
        "heliograph_cap_bytes_per_second",
        _G,
        (*FLOW, "topics"),
        "Most that may be copied in a second (`max.bytes.per.second`), by pattern of topics; empty: of the whole flow.",
        "bytes_per_second",
    ),
    Metric(
        "heliograph_capped_bytes_per_second",
        _G,
        (*FLOW, "topics"),
        "What is copied under that cap, over the last 5 s.",
        "bytes_per_second",
    ),
)

OF_INCIDENTS = (
    Metric(
        "heliograph_incidents_total",
        _C,
        (*FLOW, "kind"),
        "What went wrong with records on their way, by kind. Counted from the incidents topic: goes on over restarts.",
    ),
)

OF_TOPICS = (
    Metric(
        "heliograph_replication_latency_seconds",
        _H,
        TOPIC,
        "From a record's timestamp to its acknowledgement by the target. Each record counts with the newest timestamp "
        "of its batch.",
        "seconds",
    ),
    Metric("heliograph_topic_lag_records", _G, TOPIC, "Records not copied yet, of all partitions."),
    Metric("heliograph_topic_lag_bytes", _G, TOPIC, "Their size, estimated as for partitions.", "bytes"),
    Metric("heliograph_topic_lag_seconds", _G, TOPIC, "Of the partition that is farthest behind in time.", "seconds"),
)

OF_PARTITIONS = (
    Metric("heliograph_partition_healthy", _G, PARTITION, "1 while the source is idle or the copy moves, else 0."),
    Metric(
        "heliograph_partition_stalled_seconds",
        _G,
        PARTITION,
        "How long it has been neither level with its source nor moving; 0 while it is healthy.",
        "seconds",
    ),
    Metric("heliograph_source_end_offset", _G, PARTITION, "The source's end (of committed records), as seen last."),
    Metric("heliograph_position_offset", _G, PARTITION, "The source offset before which everything is on the target."),
    Metric("heliograph_lag_records", _G, PARTITION, "Source offsets between the position and the source's end."),
    Metric(
        "heliograph_lag_bytes",
        _G,
        PARTITION,
        "An estimate: lag in records × the mean size of this partition's records so far (of the flow's, before any).",
        "bytes",
    ),
    Metric(
        "heliograph_lag_seconds",
        _G,
        PARTITION,
        "The age of the oldest record that is not copied, 0 when there is none: by its timestamp once it is fetched, "
        "before that since when the copy was level or from the newest record copied, whichever is less.",
        "seconds",
    ),
    Metric("heliograph_records_total", _C, PARTITION, "Records acknowledged by the target."),
    Metric(
        "heliograph_bytes_total",
        _C,
        PARTITION,
        "Their bytes as appended: whole batches, compressed as they are.",
        "bytes",
    ),
    Metric("heliograph_batches_total", _C, PARTITION, "Batches acknowledged by the target."),
    Metric(
        "heliograph_skipped_batches_total",
        _C,
        PARTITION,
        "Source batches with nothing to copy: transaction markers, aborted or emptied ones.",
    ),
    Metric(
        "heliograph_gap_offsets_total",
        _C,
        PARTITION,
        "Source offsets that retention took before they could be read, as the incidents topic says.",
    ),
    Metric(
        "heliograph_refused_records_total",
        _C,
        PARTITION,
        "Records passed over because the target refuses them, as the incidents topic says; in quarantine unless "
        "`on.refused = skip`.",
    ),
    Metric(
        "heliograph_duplicates_refused_total",
        _C,
        PARTITION,
        "Records found on the target already after a crash or a change of tasks, and not sent again.",
    ),
    Metric("heliograph_retries_total", _C, PARTITION, "Batches sent again."),
    Metric(
        "heliograph_resyncs_total", _C, PARTITION, "How often a task lost track and asked the target what it holds."
    ),
)


def _mm2(prefix: str, mbean: str, labels: tuple[str, ...], attribute: str, help: str) -> Metric:
    return Metric(prefix + attribute.replace("-", "_"), _G, labels, help, mm2=f"{mbean} {attribute}")


def _sampled(prefix: str, mbean: str, labels: tuple[str, ...], attribute: str, help: str) -> tuple[Metric, ...]:
    return (
        _mm2(prefix, mbean, labels, attribute, f"{help}: the last."),
        _mm2(prefix, mbean, labels, f"{attribute}-min", f"{help}: the least of the last 30 to 60 s."),
        _mm2(prefix, mbean, labels, f"{attribute}-max", f"{help}: the most of the last 30 to 60 s."),
        _mm2(prefix, mbean, labels, f"{attribute}-avg", f"{help}: the mean of the last 30 to 60 s."),
    )


_SOURCE = (SOURCE_CONNECTOR, "MirrorSourceConnector", PARTITION)
_CHECKPOINT = (CHECKPOINT_CONNECTOR, "MirrorCheckpointConnector", GROUP)

OF_MM2 = (
    _mm2(*_SOURCE, "record-count", "Records acknowledged by the target; `topic` is the remote topic, as MM2 has it."),
    _mm2(*_SOURCE, "record-rate", "The same a second, over the last 30 to 60 s."),
    _mm2(*_SOURCE, "byte-count", "Bytes as appended; MM2 counts the values alone, uncompressed."),
    _mm2(*_SOURCE, "byte-rate", "The same a second, over the last 30 to 60 s."),
    *_sampled(*_SOURCE, "record-age-ms", "Newest timestamp in a fetch answer to its arrival"),
    *_sampled(*_SOURCE, "replication-latency-ms", "Newest timestamp in a batch to its acknowledgement"),
    *_sampled(*_CHECKPOINT, "checkpoint-latency-ms", "A group's offset read to its checkpoint acknowledged"),
)

SECTIONS = {
    "Of the process": PROCESS,
    "Of flows": OF_FLOWS,
    "Of caps": OF_CAPS,
    "Of incidents": OF_INCIDENTS,
    "Of topics": OF_TOPICS,
    "Of partitions": OF_PARTITIONS,
    "MirrorMaker 2's own": OF_MM2,
}
METRICS = {metric.name: metric for section in SECTIONS.values() for metric in section}

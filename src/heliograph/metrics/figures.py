"""What flows report, as figures of the table: which number is which metric, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heliograph import __version__
from heliograph.health.status import STATES, FlowReport, Generation, PartitionStatus
from heliograph.health.verdict import Health
from heliograph.metrics.exposition import Buckets, Page, Values
from heliograph.metrics.table import CHECKPOINT_CONNECTOR, SOURCE_CONNECTOR
from heliograph.mirror.incidents import Kind
from heliograph.mirror.timing import BOUNDS_MS, Histogram, Spread

BOUNDS_S = tuple(bound / 1000 for bound in BOUNDS_MS)

# metric -> the tally's counter
COUNTERS = {
    "heliograph_records_total": "records",
    "heliograph_bytes_total": "bytes",
    "heliograph_batches_total": "batches",
    "heliograph_skipped_batches_total": "skipped",
    "heliograph_gap_offsets_total": "lost",
    "heliograph_refused_records_total": "held",
    "heliograph_duplicates_refused_total": "repeated",
    "heliograph_retries_total": "retries",
    "heliograph_resyncs_total": "resyncs",
}


@dataclass(slots=True)
class Behind:
    """A topic's lag, from its partitions'. What is not known of one is not known of all."""

    records: int | None = 0
    bytes: int | None = 0
    seconds: float | None = 0.0

    def add(self, one: PartitionStatus) -> None:
        self.records = None if self.records is None or one.lag_records is None else self.records + one.lag_records
        self.bytes = None if self.bytes is None or one.lag_bytes is None else self.bytes + one.lag_bytes
        self.seconds = None if self.seconds is None or one.lag_seconds is None else max(self.seconds, one.lag_seconds)


def page(reports: Iterable[FlowReport], started_at: float, generation: Generation | None = None) -> Page:
    found = Page()
    _configuration(found, generation or Generation())
    found.add("heliograph_build_info", (__version__,), 1)
    found.add("heliograph_start_time_seconds", (), round(started_at, 3))
    for report in reports:
        _flow(found, report)
        _topics(found, report)
        for one in report.partitions:
            _partition(found, (report.source, report.target, one.topic, one.partition), one)
            _as_mm2(found, (report.source, report.target, one.remote_topic, one.partition), one)
        for (group, topic, partition), spread in report.checkpoint_latencies.items():
            labels = (report.source, report.target, group, topic, partition)
            _sampled(found, f"{CHECKPOINT_CONNECTOR}checkpoint_latency_ms", labels, spread)
    return found


def _configuration(found: Page, generation: Generation) -> None:
    found.add("heliograph_configuration_generation", (), generation.count)
    found.add("heliograph_configuration_info", (generation.file, generation.digest), 1)
    found.add("heliograph_configuration_applied_time_seconds", (), generation.at_ms / 1000)
    found.add("heliograph_configuration_refused_total", (), generation.refused)


def _flow(found: Page, report: FlowReport) -> None:
    labels, status = (report.source, report.target), report.status
    found.add("heliograph_flow_healthy", labels, int(report.healthy))
    for state in STATES:
        found.add("heliograph_flow_state", (*labels, state), int(state == status.state))
    if not report.healthy:
        found.add("heliograph_flow_problem_info", (*labels, status.state, report.because), 1)
    for health in Health:
        count = sum(one.state == health.value for one in report.partitions)
        found.add("heliograph_partitions", (*labels, health.value), count)
    for kind in Kind:
        found.add("heliograph_incidents_total", (*labels, str(kind)), status.incidents.get(str(kind), 0))
    for cap in status.caps:
        found.add("heliograph_cap_bytes_per_second", (*labels, cap.topics or ""), cap.limit_bytes_per_s)
        found.add("heliograph_capped_bytes_per_second", (*labels, cap.topics or ""), round(cap.bytes_per_s, 1))
    found.add("heliograph_topics", labels, status.topics)
    found.add("heliograph_history_partitions", labels, sum(one.history for one in report.partitions))
    found.add("heliograph_tasks", labels, status.tasks)
    found.add("heliograph_epoch", labels, status.epoch)
    found.add("heliograph_epochs_total", labels, report.epochs)
    found.add("heliograph_query_restarts_total", labels, report.restarts)
    age = report.heartbeat_age_s
    found.add("heliograph_heartbeat_age_seconds", labels, None if age is None else round(age, 3))
    if report.checkpoint_latency is not None:
        found.add("heliograph_checkpoint_latency_seconds", labels, _buckets(report.checkpoint_latency))


def _topics(found: Page, report: FlowReport) -> None:
    lags: dict[str, Behind] = {}
    for one in report.partitions:
        lags.setdefault(one.topic, Behind()).add(one)
    for topic, lag in lags.items():
        labels = (report.source, report.target, topic)
        found.add("heliograph_topic_lag_records", labels, lag.records)
        found.add("heliograph_topic_lag_bytes", labels, lag.bytes)
        found.add("heliograph_topic_lag_seconds", labels, _seconds(lag.seconds))
        found.add("heliograph_replication_latency_seconds", labels, _buckets(report.latency.get(topic, Histogram())))


def _partition(found: Page, labels: Values, one: PartitionStatus) -> None:
    found.add("heliograph_partition_healthy", labels, int(one.healthy))
    found.add("heliograph_partition_stalled_seconds", labels, _seconds(one.stalled_s))
    found.add("heliograph_source_end_offset", labels, one.source_end)
    found.add("heliograph_position_offset", labels, one.position)
    found.add("heliograph_lag_records", labels, one.lag_records)
    found.add("heliograph_lag_bytes", labels, one.lag_bytes)
    found.add("heliograph_lag_seconds", labels, _seconds(one.lag_seconds))
    for name, counter in COUNTERS.items():
        found.add(name, labels, one.counters.get(counter, 0))


def _as_mm2(found: Page, labels: Values, one: PartitionStatus) -> None:
    found.add(f"{SOURCE_CONNECTOR}record_count", labels, one.counters["records"])
    found.add(f"{SOURCE_CONNECTOR}record_rate", labels, round(one.records_per_s, 3))
    found.add(f"{SOURCE_CONNECTOR}byte_count", labels, one.counters["bytes"])
    found.add(f"{SOURCE_CONNECTOR}byte_rate", labels, round(one.bytes_per_s, 3))
    _sampled(found, f"{SOURCE_CONNECTOR}record_age_ms", labels, one.age)
    _sampled(found, f"{SOURCE_CONNECTOR}replication_latency_ms", labels, one.latency)


def _sampled(found: Page, name: str, labels: Values, spread: Spread) -> None:
    """MM2's sensors say NaN when nothing went by in their window."""
    nothing = float("nan")
    some = spread.count > 0
    found.add(name, labels, spread.last if some else nothing)
    found.add(f"{name}_min", labels, spread.least if some else nothing)
    found.add(f"{name}_max", labels, spread.most if some else nothing)
    found.add(f"{name}_avg", labels, round(spread.sum / spread.count, 3) if some else nothing)


def _buckets(histogram: Histogram) -> Buckets:
    return Buckets(BOUNDS_S, tuple(histogram.counts), histogram.sum / 1000)


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)

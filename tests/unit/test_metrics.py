"""The table of metrics, and the page it becomes, read by a strict parser that shares no code with the writer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.cli.metrics import page as documentation
from heliograph.flow.tally import COUNTERS
from heliograph.health.status import CapStatus, FlowReport, FlowStatus, PartitionStatus
from heliograph.metrics.exposition import Buckets, Page, accepts_openmetrics
from heliograph.metrics.figures import page
from heliograph.metrics.table import METRICS, Kind
from heliograph.mirror.timing import BOUNDS_MS, Histogram, Spread
from heliograph.sync.windows import Window
from tests.exposition import parse

ROOT = Path(__file__).parent.parent.parent


def a_partition(partition: int = 0, **more: object) -> PartitionStatus:
    values: dict[str, object] = {
        "topic": "orders", "partition": partition, "remote_topic": "us.orders", "state": "moving", "reason": "",
        "because": "", "stalled_s": 0.0, "task": 0, "position": 90, "source_end": 100, "lag_records": 10,
        "lag_bytes": 1_000, "lag_seconds": 2.5, "counters": dict.fromkeys(COUNTERS, 7), "records_per_s": 1.5,
        "bytes_per_s": 150.0, "latency": Spread(3, 60, 10, 30, 20), "age": Spread(3, 30, 5, 15, 10),
    }  # fmt: skip
    return PartitionStatus(**{**values, **more})  # type: ignore[arg-type]


def a_report(**more: object) -> FlowReport:
    latency = Histogram()
    latency.note(15, 100)
    latency.note(10**9, 1)
    values: dict[str, object] = {
        "source": "us", "target": "eu", "status": FlowStatus(
            "us->eu", "running", topics=1, partitions=2, tasks=1, caps=(CapStatus("orders", 10_000_000, 9_912_345.6),)
        ),
        "partitions": (a_partition(0), a_partition(1, state="stalled", stalled_s=7.0, lag_seconds=9.0)),
        "latency": {"orders": latency}, "checkpoint_latency": latency, "heartbeat_age_s": 0.4, "epochs": 3,
        "checkpoint_latencies": {("billing", "us.orders", 0): Spread(1, 12, 12, 12, 12)},
    }  # fmt: skip
    return FlowReport(**{**values, **more})  # type: ignore[arg-type]


ILL = a_report(
    source='say "a\\b"\nc',
    status=FlowStatus("x->eu", "stalled", reason="for 7 s", topics=1, partitions=1),
    because='east broker "x"\\y:\nrefused',
)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_metric_of_the_table_is_in_a_scrape_and_no_other(openmetrics: bool) -> None:
    families = parse(page([a_report(), ILL], 1.5).render(openmetrics=openmetrics), openmetrics=openmetrics)
    expected = {
        name.removesuffix("_total").removesuffix("_info")
        if openmetrics and m.kind in (Kind.COUNTER, Kind.INFO)
        else name
        for name, m in METRICS.items()
    }
    assert set(families) == expected


@pytest.mark.parametrize("openmetrics", [False, True])
def test_labels_survive_whatever_stands_in_them(openmetrics: bool) -> None:
    families = parse(page([ILL], 0).render(openmetrics=openmetrics), openmetrics=openmetrics)
    (_, labels), value = next(iter(families["heliograph_flow_healthy"].samples.items()))
    assert dict(labels) == {"source": 'say "a\\b"\nc', "target": "eu"}
    assert value == 0
    problem = families["heliograph_flow_problem" if openmetrics else "heliograph_flow_problem_info"]
    ((_, labels),) = problem.samples
    assert dict(labels)["reason"] == 'east broker "x"\\y:\nrefused'


def test_figures_are_what_was_reported() -> None:
    families = parse(page([a_report()], 0).render())
    one = {"source": "us", "target": "eu", "topic": "orders", "partition": "0"}
    assert families["heliograph_lag_records"].value(**one) == 10
    assert families["heliograph_lag_seconds"].value(**one) == 2.5
    assert families["heliograph_records_total"].value(**one) == 7
    assert families["heliograph_topic_lag_records"].value(topic="orders") == 20
    assert families["heliograph_topic_lag_seconds"].value(topic="orders") == 9.0
    assert families["heliograph_partition_healthy"].value(partition="1") == 0
    assert families["heliograph_partitions"].value(state="stalled") == 1
    assert families["heliograph_flow_state"].value(state="running") == 1
    assert "heliograph_flow_problem_info" not in families
    latency = families["heliograph_replication_latency_seconds"]
    assert latency.value("_count", topic="orders") == 101
    assert latency.value("_bucket", le="0.01") == 0
    assert latency.value("_bucket", le="0.02") == 100
    assert latency.value("_bucket", le="3600.0") == 100
    mm2 = "kafka_connect_mirror_mirrorsourceconnector_"
    assert families[f"{mm2}record_count"].value(topic="us.orders", partition="0") == 7
    assert families[f"{mm2}replication_latency_ms_avg"].value(topic="us.orders", partition="0") == 20
    checkpoint = families["kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"]
    assert checkpoint.value(group="billing", topic="us.orders", partition="0", source="us", target="eu") == 12


def test_what_is_not_known_is_not_shown() -> None:
    unknown = a_partition(lag_records=None, lag_bytes=None, lag_seconds=None, position=None, source_end=None)
    families = parse(page([a_report(partitions=(unknown,), heartbeat_age_s=None)], 0).render())
    for name in ("heliograph_lag_records", "heliograph_topic_lag_bytes", "heliograph_heartbeat_age_seconds"):
        assert name not in families


def test_a_figure_that_is_not_declared_cannot_be_shown() -> None:
    with pytest.raises(KeyError):
        Page().add("heliograph_made_up", (), 1)
    with pytest.raises(ValueError):
        Page().add("heliograph_tasks", ("us",), 1)


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=5, unique=True), st.booleans())
def test_any_text_may_be_a_label(pairs: list[tuple[str, str]], openmetrics: bool) -> None:
    shown = Page()
    for number, pair in enumerate(pairs):
        shown.add("heliograph_tasks", pair, number)
        shown.add("heliograph_checkpoint_latency_seconds", pair, Buckets((0.5,), (1, number), 2.5))
    families = parse(shown.render(openmetrics=openmetrics), openmetrics=openmetrics)
    assert len(families["heliograph_tasks"].samples if pairs else ()) == len(pairs)
    for number, (source, target) in enumerate(pairs):
        assert families["heliograph_tasks"].value(source=source, target=target) == number


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text; version=1.0.0", True),
        ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=high, text/plain", False),
    ],
)
def test_openmetrics_only_if_it_is_asked_for(accept: str, wanted: bool) -> None:
    assert accepts_openmetrics(accept) is wanted


def test_names_and_units_follow_the_customs() -> None:
    for metric in METRICS.values():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.help.endswith(".")
        if metric.kind is Kind.COUNTER:
            assert metric.name.endswith("_total")
        if metric.unit:
            assert metric.name.removesuffix("_total").endswith(f"_{metric.unit}")
        assert bool(metric.mm2) == metric.name.startswith("kafka_connect_mirror_")


def test_the_metrics_page_is_the_table() -> None:
    """After a change of the table: heliograph metrics --markdown > docs/metrics.md"""
    assert (ROOT / "docs" / "metrics.md").read_text() == documentation()


# -------------------- how they are counted


def test_a_value_on_a_bound_is_in_its_bucket() -> None:
    histogram = Histogram()
    for bound in BOUNDS_MS:
        histogram.note(bound, 1)
    histogram.note(BOUNDS_MS[-1] + 1, 2)
    assert histogram.counts == [1] * len(BOUNDS_MS) + [2]


def test_a_window_forgets_within_a_minute() -> None:
    window = Window(0.0)
    window.add(Spread(1, 5, 5, 5, 5), 1.0)
    window.add(Spread(2, 20, 8, 12, 12), 29.0)
    seen = window.seen(59.0)
    assert (seen.count, seen.sum, seen.least, seen.most, seen.last) == (3, 25, 5, 12, 12)
    assert window.seconds(59.0) == 59.0
    window.add(Spread(1, 7, 7, 7, 7), 59.5)
    assert window.seen(61.0).count == 1
    assert window.seconds(61.0) == 31.0
    assert window.seen(1_000.0).count == 0

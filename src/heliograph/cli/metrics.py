"""`heliograph metrics`: the table of metrics. `--markdown` gives docs/metrics.md; a test compares."""

from __future__ import annotations

from collections.abc import Iterable

import click

from heliograph.cli.out import echo_document, echo_lines
from heliograph.metrics.table import METRICS, SECTIONS, Metric

INTRODUCTION = """\
# Metrics and health

Written by `heliograph metrics --markdown` from the table in `src/heliograph/metrics/table.py`; change it there.

`heliograph run FILE --http 8083` serves on loopback, `--http HOST:PORT` elsewhere (beyond this machine only with
`--users FILE`, or with `--insecure`: nobody is asked for a password), `--http https://HOST:PORT` over TLS with the
certificate that FILE names (`listeners.https.ssl.keystore.location` and its siblings). Who may, and under which names
the server is reached: docs/connect.md.

| path | answers |
| --- | --- |
| `/metrics` | the figures below, in Prometheus' text format, or OpenMetrics if the scraper accepts it |
| `/status` | `notices` for operators, every flow and every partition as JSON: state, reason, position, lag, counters |
| `/health` | 200 while every flow is healthy, otherwise 503 with the reasons in words |

## Health is progress

A partition is healthy when it was seen level with its source, or seen to move, within the last 5 seconds. Nothing else
makes it healthy: neither a task that runs nor a connection that stands.

| state of a partition | means |
| --- | --- |
| `idle` | level with its source, which does not move |
| `moving` | its position moves |
| `starting` | nothing was seen of it yet, for at most 5 s |
| `stalled` | the source moved and we did not, or the source cannot be seen; the reason says for how long and why |
| `parked` | it cannot go on until somebody acts; the reason says what. It is tried again every 10 s |

A flow is `stalled` or `parked` when one of its partitions is, `restarting` while its streaming query waits to be
started again (the reason says when), `starting` before its first task; `running`, `idle` (no topic matches yet)
and `standby` (another process copies the flow) are healthy.
While the process starts, `/health` answers 503.

Lag in bytes is an estimate: records times the mean size of this partition's records so far. Latencies are by this
machine's clock and the producers' timestamps, one measurement a batch, with the newest timestamp in it. Counters count
from the start of the process, those of incidents from the beginning of the incidents topic (docs/incidents.md); a
partition that is copied no more takes its figures with it.
"""


@click.command("metrics", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--markdown", is_flag=True, help="The page docs/metrics.md.")
def command(markdown: bool) -> None:
    """The metrics that `heliograph run --http` serves: names, labels, meaning."""
    if markdown:
        echo_document(page(), nl=False)
        return
    for metric in METRICS.values():
        labels = ", ".join(metric.labels) or "–"
        echo_lines([metric.name, f"    {metric.help}", f"    {metric.kind.value}; labels: {labels}"])


def page() -> str:
    parts = [INTRODUCTION]
    for heading, metrics in SECTIONS.items():
        parts.append(f"\n## {heading}\n\n" + (_mm2_table(metrics) if any(m.mm2 for m in metrics) else _table(metrics)))
    return "".join(parts)


def _table(metrics: Iterable[Metric]) -> str:
    rows = [f"| `{m.name}` | {m.kind.value} | {_labels(m)} | {m.unit or '–'} | {m.help} |\n" for m in metrics]
    return "".join(["| metric | kind | labels | unit | |\n", "| --- | --- | --- | --- | --- |\n", *rows])


def _mm2_table(metrics: Iterable[Metric]) -> str:
    introduction = (
        "Under the names that the usual rules of Prometheus' JMX exporter give to MM2's MBeans "
        "(`kafka.connect.mirror:type=…`),\nso that dashboards made for MM2 go on. "
        "NaN: nothing went by in that time.\n\n"
    )
    rows = [f"| `{m.name}` | {_labels(m)} | `{m.mm2}` | {m.help} |\n" for m in metrics]
    return "".join(
        [introduction, "| metric | labels | MM2's MBean and attribute | |\n", "| --- | --- | --- | --- |\n", *rows]
    )


def _labels(metric: Metric) -> str:
    return ", ".join(metric.labels) or "–"

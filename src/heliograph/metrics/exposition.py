"""Figures in Prometheus' text format 0.0.4, or in OpenMetrics 1.0 where it is asked for. Pure.

Answers for names, labels, escaping and order: a metric's lines stand together under its HELP and TYPE, a histogram's
buckets are cumulative and end with +Inf. Knows no flow: what the figures are is `figures`' business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.metrics.table import METRICS, Kind, Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Values = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram's state: (upper bound, how many in that bucket alone), the last bound infinite."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


@dataclass(slots=True)
class Page:
    """Samples by metric, in the order of the table."""

    _samples: dict[str, dict[Values, float | Buckets]] = field(default_factory=dict)

    def add(self, name: str, labels: Values, value: float | Buckets | None) -> None:
        """None is not known, and not shown. The labels' values come in the order of the table."""
        metric = METRICS[name]
        if len(labels) != len(metric.labels):
            raise ValueError(f"{name} has the labels {metric.labels}, not {len(labels)} of them")
        if value is not None:
            self._samples.setdefault(name, {})[labels] = value

    def render(self, *, openmetrics: bool = False) -> str:
        lines: list[str] = []
        for name, metric in METRICS.items():
            samples = self._samples.get(name)
            if samples:
                _render(metric, samples, openmetrics, lines)
        if openmetrics:
            lines.append("# EOF")
        return "".join(f"{line}\n" for line in lines)


def accepts_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers it. Prometheus sends both, with qualities."""
    best: dict[str, float] = {}
    for part in accept.lower().split(","):
        kind, *parameters = [word.strip() for word in part.split(";")]
        quality = next((p[2:].strip() for p in parameters if p.startswith("q=")), "1")
        try:
            best[kind] = max(best.get(kind, 0.0), float(quality))
        except ValueError:
            continue
    wanted = best.get("application/openmetrics-text", 0.0)
    return wanted > 0 and wanted >= max(best.get("text/plain", 0.0), best.get("*/*", 0.0))


def _render(metric: Metric, samples: Mapping[Values, float | Buckets], openmetrics: bool, lines: list[str]) -> None:
    family, suffix, kind = metric.name, "", metric.kind.value
    if metric.kind is Kind.INFO and not openmetrics:
        kind = "gauge"  # 0.0.4 knows no info
    if openmetrics and metric.kind in (Kind.COUNTER, Kind.INFO):
        suffix = "_total" if metric.kind is Kind.COUNTER else "_info"
        family = family.removesuffix(suffix)
    lines.append(f"# HELP {family} {_escape_help(metric.help, openmetrics)}")
    lines.append(f"# TYPE {family} {kind}")
    if openmetrics and metric.unit:
        lines.append(f"# UNIT {family} {metric.unit}")
    for values, value in samples.items():
        labels = [f'{name}="{_escape(str(one))}"' for name, one in zip(metric.labels, values, strict=True)]
        if isinstance(value, Buckets):
            _histogram(family, labels, value, lines)
        else:
            lines.append(f"{family}{suffix}{_braces(labels)} {_number(value)}")


def _histogram(name: str, labels: Sequence[str], value: Buckets, lines: list[str]) -> None:
    so_far = 0
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        so_far += count
        bucket = _braces([*labels, f'le="{_number(float(bound))}"'])
        lines.append(f"{name}_bucket{bucket} {so_far}")
    lines.append(f"{name}_sum{_braces(labels)} {_number(value.sum)}")
    lines.append(f"{name}_count{_braces(labels)} {so_far}")


def _braces(labels: Sequence[str]) -> str:
    return "{" + ",".join(labels) + "}" if labels else ""


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escape_help(text: str, openmetrics: bool) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if openmetrics else text


def _number(value: float) -> str:
    if isinstance(value, float):
        if math.isinf(value):
            return "+Inf" if value > 0 else "-Inf"
        if math.isnan(value):
            return "NaN"
    return repr(value)

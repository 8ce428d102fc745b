"""A flow's report in short, for whoever asks a running process: its state, its figures, and those of its topics. Pure.

Small whatever the number of partitions: a line on the control socket is bounded. `/status` has everything.
"""

from __future__ import annotations

from typing import Any

from heliograph.health.status import FlowReport, PartitionStatus


def outline(report: FlowReport) -> dict[str, Any]:
    status = report.status
    topics: dict[str, list[PartitionStatus]] = {}
    for one in report.partitions:
        topics.setdefault(one.topic, []).append(one)
    whole = next((order for order in status.orders if order.topic is None), None)
    return {
        "state": status.state,
        "reason": status.reason,
        "healthy": report.healthy,
        "ordered": "" if whole is None else whole.word,
        "lag_records": status.lag_records,
        "records_per_s": status.records_per_s,
        "bytes_per_s": status.bytes_per_s,
        "topics": {name: _topic(some) for name, some in topics.items()},
        "parked": {one.topic: one.reason for one in status.parked},
    }


def _topic(some: list[PartitionStatus]) -> dict[str, Any]:
    lags = [one.lag_records for one in some]
    ill = [one for one in some if not one.healthy]
    return {
        "lag_records": None if None in lags else sum(lag for lag in lags if lag is not None),
        "records_per_s": sum(one.records_per_s for one in some),
        "bytes_per_s": sum(one.bytes_per_s for one in some),
        "unhealthy": len(ill),
        "reason": ill[0].reason if ill else "",
    }

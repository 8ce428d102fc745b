"""What a running flow says about itself: the values between the coordinator, which fills them, and whoever shows them.

Answers for the shape only. The coordinator (`flow.runner`) counts and decides; `cli.show` draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

STATES = ("starting", "running", "idle", "restarting", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class ParkedPartition:
    """One partition (or, with `partition` None, a whole topic) that cannot go on while the rest of the flow does."""

    topic: str
    partition: int | None
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """One flow at one moment. Counters count from the start of this process, rates are of the last seconds."""

    name: str
    state: str  # one of STATES
    reason: str = ""  # why it is restarting, failed or idle
    topics: int = 0
    partitions: int = 0
    tasks: int = 0
    records: int = 0
    bytes: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag_records: int | None = None  # None: not known yet, which is not the same as 0
    duplicates_refused: int = 0
    retries: int = 0
    epoch: int = 0
    parked: tuple[ParkedPartition, ...] = ()


class Runner(Protocol):
    """What the verbs need of `heliograph.flow.runner.Runner`: all flows of one process, on one Spark session."""

    def start(self) -> None:
        """Checks the clusters (raises what is wrong with them) and starts every flow; does not wait for data."""

    def status(self) -> tuple[FlowStatus, ...]: ...

    def stop(self, timeout_s: float = 4.0) -> None: ...

    def wait(self, timeout_s: float) -> bool:
        """Waits until every flow has ended, at most so long. True when they have."""

"""How a connector stands, from its status as a worker tells it: in one word, in a line, and why it failed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = "ABSENT"  # our word for a connector that is not there
RUNNING, PAUSED, STOPPED, FAILED = "RUNNING", "PAUSED", "STOPPED", "FAILED"


@dataclass(frozen=True, slots=True)
class Standing:
    name: str
    state: str  # of the connector itself
    worker: str = ""
    tasks: tuple[str, ...] = ()  # their states
    reason: str = ""  # why it, or the first of its tasks that did, failed

    @property
    def running(self) -> bool:
        return self.state == RUNNING and all(task == RUNNING for task in self.tasks)

    @property
    def failed(self) -> bool:
        return FAILED in (self.state, *self.tasks)

    @property
    def tasks_running(self) -> int:
        return sum(task == RUNNING for task in self.tasks)

    @property
    def figure(self) -> str:
        """Tasks that run, of all."""
        return f"{self.tasks_running}/{len(self.tasks)}"

    @property
    def words(self) -> str:
        if not self.tasks:
            return self.state if self.state != RUNNING else f"{self.state}, no tasks"
        others = sorted({task for task in self.tasks if task != self.state})
        and_so = f" ({', '.join(others)})" if others else ""
        return f"{self.state}, {self.figure} tasks running{and_so}" if self.state == RUNNING else self.state + and_so


def standing(name: str, status: Any) -> Standing:
    """Of /connectors/NAME/status; None is a connector that has none."""
    if not isinstance(status, Mapping):
        return Standing(name, ABSENT)
    connector, tasks = _fields(status.get("connector")), [_fields(one) for one in status.get("tasks") or []]
    failed = [one for one in (connector, *tasks) if one.get("state") == FAILED]
    which = "" if not failed or failed[0] is connector else f"task {failed[0].get('id')}: "
    return Standing(
        name,
        str(connector.get("state", "UNKNOWN")),
        str(connector.get("worker_id", "")),
        tuple(str(task.get("state", "UNKNOWN")) for task in tasks),
        which + cause(str(failed[0].get("trace", ""))) if failed else "",
    )


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def cause(trace: str) -> str:
    """The first line of a Java trace, and its last cause: what stands between is the way from one to the other."""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    if not lines:
        return "it does not say why"
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first, last = _short(lines[0]), _short(causes[-1]) if causes else ""
    return f"{first}; caused by {last}" if last and last not in first else first


def _short(line: str) -> str:
    """`org.apache.kafka.common.KafkaException: text` without the package."""
    name, colon, text = line.partition(": ")
    return f"{name.rpartition('.')[2]}{colon}{text}" if " " not in name else line

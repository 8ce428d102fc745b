"""A flow as a PySpark data source: offsets are epochs, input partitions are assignments, rows are the flow's ledger.

The reader object lives in a process of its own beside the driver and only asks the coordinator (`flow.hub`), so that
all planning is in one place and testable without Spark. `read` runs on an executor and *is* the mirror task; payload
bytes never leave that process towards the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from heliograph.mirror import handshake
from heliograph.mirror.assignment import Assignment
from heliograph.mirror.protocol import AskLastEpoch, AskNextEpoch, AskPlan, PlannerHello, Question, encode

NAME = "heliograph"
CONNECT_S = 10.0
SCHEMA = (
    "flow string, topic string, partition int, remote_topic string, "
    "source_offset long, target_offset long, length long, bytes long"
)


class Share(InputPartition):
    """One task's partitions for one epoch."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment


class FlowReader(DataSourceStreamReader):
    """Must be picklable: the connection is made where it is used."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = dict(options)
        self._connection: Connection | None = None
        self._first: int | None = None

    def initialOffset(self) -> dict[str, int]:
        if self._first is None:  # Spark asks more than once
            self._first = self._ask(AskLastEpoch())
        return {"epoch": self._first}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"epoch": self._ask(AskNextEpoch(start["epoch"]))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start["epoch"] == end["epoch"]:
            return []
        return [Share(assignment) for assignment in self._ask(AskPlan(end["epoch"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from heliograph.mirror.task import Task

        assert isinstance(partition, Share)
        context = TaskContext.get()
        yield from Task(partition.assignment, attempt=context.attemptNumber() if context else 0).run()

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, question: Question) -> Any:
        if self._connection is None:
            host, port, key = self._options["host"], int(self._options["port"]), bytes.fromhex(self._options["token"])
            self._connection = handshake.connect(host, port, key, timeout_s=CONNECT_S, later_s=0)
            self._connection.send_bytes(encode(PlannerHello(self._options["flow"])))
        self._connection.send_bytes(encode(question))
        return self._connection.recv()


class FlowSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> FlowReader:
        return FlowReader(dict(self.options))

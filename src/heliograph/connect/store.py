"""The three topics of a Connect cluster: made as Connect makes them, read to their ends, written to.

Answers for bringing the board up to date and for records being in the log when a call returns. What they mean is
`connect.records`' and `connect.board`'s affair. Nonsense among them is counted, named once, and passed over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import structlog

from heliograph.config.worker import Topic, WorkerFile
from heliograph.connect.board import Board, Folding
from heliograph.connect.records import Condition, Pair
from heliograph.errors import ConfigError
from heliograph.mirror.positions import partition_for
from heliograph.state.compacted import CompactedLog
from heliograph.wire import Client

log = structlog.get_logger()

CALL_S = 10.0
BATCH_BYTES = 500_000  # half of what a broker takes by default


class Store:
    """Thread-safe: one lock for reading and folding; the board is replaced, never changed."""

    def __init__(self, file: WorkerFile) -> None:
        self._file = file
        self._reader, self._writer = (Client(file.cluster, timeout_s=CALL_S) for _ in range(2))
        self._configs = CompactedLog(self._reader, file.configs.name)
        self._statuses = CompactedLog(self._reader, file.statuses.name)
        self._configs_out = CompactedLog(self._writer, file.configs.name)
        self._statuses_out = CompactedLog(self._writer, file.statuses.name)
        self._folding = Folding()
        self._reading = threading.Lock()
        self._told = 0  # strangers that were named
        self.board = Board()
        self.cluster_id = ""

    def open(self) -> None:
        """Raises what is wrong with the cluster."""
        self.cluster_id = self._reader.cluster_id()
        for topic, own in ((self._file.configs, self._configs), (self._file.statuses, self._statuses)):
            own.ensure(topic.partitions, topic.replication_factor, topic.key)
        CompactedLog(self._reader, self._file.offsets.name).ensure(*_made(self._file.offsets))
        if self._configs.partitions != 1:
            name, count = self._file.configs.name, self._configs.partitions
            raise ConfigError(
                f"config.storage.topic: {name} has {count} partitions, and needs one: order is in one only"
            )
        self._configs_out.count()
        self._statuses_out.count()
        self.catch_up()

    def catch_up(self) -> Board:
        """Everything that is in the topics now."""
        with self._reading:
            news = False
            # Statuses first: one that is seen is then of a connector that is seen too, unless that was deleted. The
            # other way round a connector that is new would have a status and no configuration: somebody to forget.
            for _, record in self._statuses.news():
                news = self._folding.status(record) or news
            for _, record in self._configs.news(0):
                news = self._folding.config(record) or news
            if self._folding.strangers > self._told:
                count, self._told = self._folding.strangers - self._told, self._folding.strangers
                log.warning(
                    "records that are not Connect's are passed over", topic=self._file.configs.name, count=count
                )
            if news:
                self.board = self._folding.board()
            return self.board

    def write(self, pairs: Sequence[Pair], condition: Condition | None = None) -> None:
        """To the config topic, in order; in one batch, all or none, unless they are larger than one may be."""
        headers = condition.headers() if condition is not None else ()
        for part in _parted(pairs):
            self._configs_out.append(0, part, headers=headers)

    def was_overtaken(self, condition: Condition) -> bool:
        """Of what was written, once it was read again."""
        with self._reading:
            return self._folding.was_overtaken(condition)

    def tell(self, pairs: Sequence[Pair]) -> None:
        """To the status topic."""
        by_partition: dict[int, list[Pair]] = {}
        for key, value in pairs:
            partition = partition_for(key, self._statuses_out.partitions)
            by_partition.setdefault(partition, []).append((key, value))
        for partition, group in by_partition.items():
            self._statuses_out.append(partition, group)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def _parted(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    part: list[Pair] = []
    size = 0
    for key, value in pairs:
        own = len(key) + len(value or b"")
        if part and size + own > BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append((key, value))
        size += own
    if part:
        yield part


def _made(topic: Topic) -> tuple[int, int, str]:
    return topic.partitions, topic.replication_factor, topic.key

"""The three topics of a Connect cluster: made as Connect makes them, read to their ends, written to.

Answers for bringing the board up to date and for records being in the log when a call returns. What they mean is
`connect.records`' and `connect.board`'s affair. Nonsense among them is named once, by offset, and passed over.

Invariant: `board` is the fold of complete reads of both topics. Where one of them is read again from its start (it was
recreated, or lost its tail) so is the other, into a new fold that takes the place of the old one when it is complete.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import structlog

from heliograph.config.worker import WorkerFile
from heliograph.connect import validation
from heliograph.connect.board import Board, Folding
from heliograph.connect.records import Condition, Pair
from heliograph.connect.siblings import siblings_of
from heliograph.errors import ConfigError
from heliograph.mirror.positions import partition_for
from heliograph.state.compacted import CompactedLog
from heliograph.state.strangers import Strangers
from heliograph.types import Flow
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
        self._refolds = 0
        self._changed = False  # since `board` was made; a read that failed half-way may have left it so
        self._stale_since = 0.0  # monotonic; 0: no key is stale
        self._configs.on_refold, self._statuses.on_refold = self._refold, self._refold
        self._configs.on_repeat = lambda _, record: self._folding.repeated(record)
        self._strangers = [Strangers(file.group_id, topic.name) for topic in (file.configs, file.statuses)]
        self._reading = threading.Lock()
        self.board = Board()
        self.cluster_id = ""

    def open(self) -> None:
        """Raises what is wrong with the cluster."""
        self.cluster_id = self._reader.cluster_id()
        for topic, own in ((self._file.configs, self._configs), (self._file.statuses, self._statuses)):
            own.ensure(topic.partitions, topic.factor)
        offsets = self._file.offsets
        CompactedLog(self._reader, offsets.name).ensure(offsets.partitions, offsets.factor)
        if self._configs.partitions != 1:
            name, count = self._file.configs.name, self._configs.partitions
            raise ConfigError(
                f"config.storage.topic: {name} has {count} partitions, and needs one: order is in one only"
            )
        self._configs_out.count()
        self._statuses_out.count()
        self.catch_up()

    def find(self) -> bool:
        """Whether the topics are there; nothing is created."""
        return all(own.count() for own in (self._configs, self._statuses))

    def catch_up(self) -> Board:
        """Everything that is in the topics now."""
        with self._reading:
            before = -1
            while before != self._refolds:
                before = self._refolds
                self._read()
            if not self._folding.repairs():
                self._stale_since = 0.0
            elif not self._stale_since:
                self._stale_since = time.monotonic()
            if self._changed:
                self.board, self._changed = self._folding.board(), False
            elif self.board.seen != self._folding.seen:  # changes are decided on all that was read
                self.board = replace(self.board, seen=self._folding.seen)
            return self.board

    def _read(self) -> None:
        # Statuses first: one that is seen is then of a connector that is seen too, unless that was deleted. The
        # other way round a connector that is new would have a status and no configuration: a leftover.
        configs, statuses = self._strangers
        for partition, record in self._statuses.news():
            known = self._folding.strangers
            self._changed = self._folding.status(record) or self._changed
            if self._folding.strangers > known and not self._statuses.is_reread(partition, record.offset):
                statuses.add(partition, record.offset, "it is no status of a connector")
        for partition, record in self._configs.news(0):
            known = self._folding.strangers
            self._changed = self._folding.config(record) or self._changed
            if self._folding.strangers > known and not self._configs.is_reread(partition, record.offset):
                configs.add(partition, record.offset, "it is no record of a connector")
        for one in self._strangers:
            one.tell()

    def _refold(self) -> None:
        """One topic begins again, so the other does too. `board` stays as it is until both were read."""
        self._refolds += 1
        self._folding, self._changed = Folding(), True
        self._configs.restart()
        self._statuses.restart()

    def write(self, pairs: Sequence[Pair], condition: Condition | None = None) -> None:
        """To the config topic, in order; in one batch, all or none, unless they are larger than one may be."""
        headers = condition.headers() if condition is not None else ()
        for part in _parted(pairs):
            self._configs_out.append(0, part, headers=headers)

    def repair(self) -> bool:
        """Write again what counts under the keys whose last record does not count; whether there were any. As of the
        last `catch_up`: a change that came since makes the repair void, and the next one is about that change."""
        with self._reading:
            due = self._folding.repairs()
        for one in due:
            log.warning(
                "the last record of a key does not count: what counts is written again",
                topic=self._file.configs.name,
                key=one.pair[0].decode(errors="replace"),
                version=one.repair.version,
            )
            self._configs_out.append(0, [one.pair], headers=one.repair.headers())
        return bool(due)

    @property
    def stale_s(self) -> float:
        """For how long there has been something to repair."""
        return time.monotonic() - self._stale_since if self._stale_since else 0.0

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


def stored_flows(file: WorkerFile) -> list[Flow]:
    """Those of the connectors that the worker's topics hold. Nothing is created or written."""
    store = Store(file)
    try:
        board = store.catch_up() if store.find() else Board()
    finally:
        store.close()
    judged = [
        validation.judge(one.name, one.config, file.worker, siblings_of(board, one.config))
        for one in board.connectors.values()
    ]
    return [one.made.flow for one in judged if one.made.flow is not None]

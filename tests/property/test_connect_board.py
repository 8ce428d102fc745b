"""Nodes of a Connect cluster, their config topic compacted at any moment, some of them killed between a record and its
repair: in the end all of them, and any that starts then, show what a reader of the whole topic would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heliograph.batch import Record
from heliograph.connect import records
from heliograph.connect import store as stores
from heliograph.connect.board import Board
from heliograph.connect.records import Condition, Pair
from heliograph.connect.store import Store
from tests.unit.brokers import Brokers
from tests.unit.test_connect_repairs import CONFIGS, FILE

NODES = 3
WITNESS = 0  # lives, and reads what is written within a moment; compaction comes when it pleases
nodes = st.integers(0, NODES - 1)
steps = st.one_of(
    st.tuples(st.just("put"), nodes, st.integers(0, 4)),  # decided so many records ago
    st.tuples(st.just("post"), nodes, st.integers(0, 4)),  # the same, with a target state
    st.tuples(st.just("delete"), nodes, st.integers(0, 2)),  # so many repeats stored
    st.tuples(st.just("pause"), nodes, st.integers(0, 2)),
    st.tuples(st.just("resume"), nodes, st.integers(0, 2)),
    st.tuples(st.just("read"), nodes, st.just(0)),
    st.tuples(st.just("repair"), nodes, st.just(0)),
    st.tuples(st.just("restart"), nodes, st.just(0)),
    st.tuples(st.just("compact"), nodes, st.integers(0, 10)),  # so much of its end is left as it is
)


@contextmanager
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        brokers = Brokers()
        patch.setattr(stores, "Client", lambda *_, **__: brokers)
        yield brokers


def opened() -> Store:
    store = Store(FILE)
    store.open()
    return store


def shown(board: Board) -> dict[str, tuple[Any, str]]:
    return {name: (dict(one.config), one.target) for name, one in board.connectors.items()}


class History:
    """The same topic without compaction, and without repairs: these change nothing."""

    def __init__(self, brokers: Any) -> None:
        self._brokers = brokers
        self._records: dict[int, Record] = {}

    def note(self) -> None:
        found = [one for one in self._brokers.records(CONFIGS) if records.repair_of(one.headers) is None]
        self._records |= {record.offset: record for record in found}

    def board(self) -> Board:
        """As a node finds it that reads all of it."""
        with cluster() as brokers:
            store = opened()
            for offset in sorted(self._records):
                while brokers.logs[CONFIGS].end < offset:
                    brokers.append(CONFIGS, Record(0, 0, b"session-key", None))
                brokers.append(CONFIGS, self._records[offset])
            return store.catch_up()


def step(brokers: Any, alive: list[Store], what: str, node: int, number: int) -> None:
    store = alive[node]
    pairs: dict[str, list[Pair]] = {
        "put": [records.configured("x", {"n": str(brokers.sent)})],
        "post": [records.targeted("x", "PAUSED"), records.configured("x", {"n": str(brokers.sent)})],
        "delete": records.deleted("x"),
        "pause": [records.targeted("x", "PAUSED")],
        "resume": [records.targeted("x", "STARTED")],
    }
    match what:
        case "put" | "post":
            seen = max(store.board.seen - number, 0)
            store.write(pairs[what], Condition(seen, f"m{brokers.sent}"))
        case "delete" | "pause" | "resume":
            brokers.remembers_producers = False
            # Another node's change comes between the record and its repeat.
            brokers.lost_answers = [
                lambda: brokers.append(CONFIGS, Record(0, 0, *records.targeted("x", "STOPPED")))
            ] * number
            store.write(pairs[what])
        case "read":
            store.catch_up()
        case "repair":
            store.repair()
        case "restart":
            alive[node] = opened() if node != WITNESS else store
        case "compact":
            brokers.compact(CONFIGS, below=max(brokers.logs[CONFIGS].end - number, 0))


@settings(max_examples=100)
@given(st.lists(steps, max_size=20))
@example([("put", 0, 0), ("put", 0, 1), ("compact", 0, 0), ("put", 0, 0)])  # judged over a hole: invariant g
def test_what_counted_is_what_all_nodes_show_in_the_end(taken: list[tuple[str, int, int]]) -> None:
    with cluster() as brokers:
        alive = [opened() for _ in range(NODES)]
        history = History(brokers)
        for one in taken:
            step(brokers, alive, *one)
            history.note()
            alive[WITNESS].catch_up()
        while alive[WITNESS].repair():
            history.note()
            alive[WITNESS].catch_up()
        expected = shown(history.board())
        assert shown(alive[WITNESS].board) == expected
        for store in alive:
            assert shown(store.catch_up()) == expected
        assert shown(opened().board) == expected
        brokers.compact(CONFIGS, below=brokers.logs[CONFIGS].end, tombstones=True)
        assert shown(opened().board) == expected

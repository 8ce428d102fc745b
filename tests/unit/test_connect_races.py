"""Two nodes that are told about one connector in the same moment: the config topic's order decides, the other decides
again on what it finds, and whoever reads the topic later, also after compaction, finds what counted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.batch import Record
from heliograph.config import worker as worker_file
from heliograph.connect import records
from heliograph.connect.asking import Sight
from heliograph.connect.board import Board, Folding
from heliograph.connect.records import Condition, Pair, Repair
from heliograph.connect.service import TRIES, NodeBackend, Service
from heliograph.http.message import Request, Response
from heliograph.http.routing import Router
from tests.unit.test_config_connectors import FIELD
from tests.unit.test_connect_api import SOURCE

FILE = worker_file.parse(FIELD)


class Topic:
    """The config topic: what all nodes write to."""

    def __init__(self) -> None:
        self.log: list[Record] = []

    def append(self, pairs: Sequence[Pair], condition: Condition | Repair | None) -> None:
        headers = condition.headers() if condition is not None else ()
        self.log += [Record(len(self.log) + n, 0, key, value, headers) for n, (key, value) in enumerate(pairs)]

    def board(self, *, compacted: bool = False) -> Board:
        """As who reads it now for the first time."""
        last = {record.key: record.offset for record in self.log}
        folding = Folding()
        for record in self.log:
            if not compacted or last[record.key] == record.offset:
                folding.config(record)
        return folding.board()


class Store:
    """A node's sight of it. `before_write` is what happens elsewhere between its decision and its record."""

    def __init__(self, topic: Topic) -> None:
        self._topic, self._folding, self._read = topic, Folding(), 0
        self.board = Board()
        self.before_write: Callable[[], object] = lambda: None
        self.sends = 1  # 2: the answer to the first was lost

    def catch_up(self) -> Board:
        for record in self._topic.log[self._read :]:
            self._folding.config(record)
        self._read = len(self._topic.log)
        self.board = self._folding.board()
        return self.board

    def write(self, pairs: Sequence[Pair], condition: Condition | None = None) -> None:
        self.before_write()
        for _ in range(self.sends):
            self._topic.append(pairs, condition)

    def repair(self) -> bool:
        due = self._folding.repairs()
        for one in due:
            self.before_write()
            self._topic.append([one.pair], one.repair)
        return bool(due)

    def was_overtaken(self, condition: Condition) -> bool:
        return self._folding.was_overtaken(condition)


class Node:
    """As much of a node as its API needs."""

    def __init__(self, topic: Topic) -> None:
        self.store = Store(topic)
        self.router = Router(Service(NodeBackend(self)).routes())  # type: ignore[arg-type]

    def poke(self) -> None: ...

    def sight(self) -> Sight:
        return Sight(self.store.board, FILE.worker, "1", "abc", "h:1")

    def ask(self, method: str, path: str, body: object = None) -> Response:
        headers = {"content-type": "application/json"}
        return self.router.answer(Request(method, path, headers=headers, body=json.dumps(body).encode()))

    def once_before_write(self, happens: Callable[[], object]) -> None:
        def first() -> None:
            self.store.before_write = lambda: None
            happens()

        self.store.before_write = first


@pytest.fixture
def topic() -> Topic:
    return Topic()


def created(**more: Any) -> dict[str, Any]:
    return {"name": "x", "config": {**SOURCE, "name": "x", "topics": more.pop("topics", "t")}, **more}


def body(response: Response) -> Any:
    return json.loads(response.body)


def assert_stands(topic: Topic, topics: str, target: str = "STARTED") -> None:
    for compacted in (False, True):
        found = topic.board(compacted=compacted).connectors["x"]
        assert (found.config["topics"], found.target) == (topics, target)


def test_of_two_that_make_one_connector_one_is_told_that_it_is_there(topic: Topic) -> None:
    one, other = Node(topic), Node(topic)
    codes = []
    one.once_before_write(lambda: codes.append(other.ask("POST", "/connectors", created(topics="theirs")).status))
    answer = one.ask("POST", "/connectors", created(topics="ours", initial_state="STOPPED"))
    assert (answer.status, codes) == (409, [201])
    assert body(answer)["message"] == "Connector x already exists"
    assert_stands(topic, "theirs")


def test_of_two_that_put_a_new_name_one_made_it_and_the_other_configured_it_anew(topic: Topic) -> None:
    one, other = Node(topic), Node(topic)
    codes = []
    one.once_before_write(
        lambda: codes.append(other.ask("PUT", "/connectors/x/config", created(topics="theirs")["config"]).status)
    )
    assert (one.ask("PUT", "/connectors/x/config", created(topics="ours")["config"]).status, codes) == (200, [201])
    assert_stands(topic, "ours")


def test_no_change_of_a_key_is_lost(topic: Topic) -> None:
    one, other = Node(topic), Node(topic)
    assert one.ask("POST", "/connectors", created()).status == 201
    one.once_before_write(lambda: other.ask("PATCH", "/connectors/x/config", {"topics": "theirs"}))
    assert one.ask("PATCH", "/connectors/x/config", {"tasks.max": "7"}).status == 200
    assert_stands(topic, "theirs")
    assert topic.board(compacted=True).connectors["x"].config["tasks.max"] == "7"


def test_what_was_deleted_meanwhile_is_not_changed(topic: Topic) -> None:
    one, other = Node(topic), Node(topic)
    assert one.ask("POST", "/connectors", created()).status == 201
    one.once_before_write(lambda: other.ask("DELETE", "/connectors/x"))
    assert one.ask("PATCH", "/connectors/x/config", {"tasks.max": "7"}).status == 404
    assert not topic.board().connectors
    assert not topic.board(compacted=True).connectors


def test_who_is_overtaken_for_ever_is_told_to_ask_again(topic: Topic) -> None:
    one, other = Node(topic), Node(topic)
    count = [0]

    def again() -> None:
        count[0] += 1
        other.ask("PUT", "/connectors/x/config", created(topics=f"theirs-{count[0]}")["config"])

    one.store.before_write = again
    answer = one.ask("PUT", "/connectors/x/config", created(topics="ours")["config"])
    assert answer.status == 409
    assert "ask again" in body(answer)["message"]
    assert count[0] <= TRIES * (TRIES + 1)
    assert topic.board().connectors["x"].config["topics"] == f"theirs-{count[0]}"


def test_a_record_that_was_sent_twice_is_in_nobodys_way(topic: Topic) -> None:
    one = Node(topic)
    one.store.sends = 2
    assert one.ask("POST", "/connectors", created(topics="ours", initial_state="PAUSED")).status == 201
    assert_stands(topic, "ours", "PAUSED")


def test_neighbours_do_not_hinder_each_other(topic: Topic) -> None:
    one, other = Node(topic), Node(topic)
    of_y = {**created()["config"], "name": "y"}
    one.once_before_write(lambda: other.ask("PUT", "/connectors/y/config", of_y))
    assert one.ask("POST", "/connectors", created()).status == 201
    assert topic.board().connectors.keys() == {"x", "y"}
    assert len(topic.log) == 2, "nothing had to be written again"


@given(st.lists(st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 12), st.sampled_from("abc")), max_size=12))
def test_all_who_read_the_topic_find_the_same(changes: list[tuple[str, int, str]]) -> None:
    """Whatever conditions were written, in whatever order: what counts keeps invariant d."""
    log = [
        Record(n, 0, *records.configured(name, {"n": str(n)}), Condition(seen, mark).headers())
        for n, (name, seen, mark) in enumerate(changes)
    ]
    slow = Folding()
    counted: dict[str, list[int]] = {}
    for record in log:
        before = slow.board().connectors
        slow.config(record)
        name = changes[record.offset][0]
        if slow.board().connectors.get(name) != before.get(name):
            counted.setdefault(name, []).append(record.offset)
    for name, offsets in counted.items():
        for earlier, later in itertools.pairwise(offsets):
            _, seen, mark = changes[later]
            assert earlier < seen or mark == changes[earlier][2], "invariant d"
        assert slow.board().connectors[name].version == offsets[-1]


@pytest.mark.parametrize("told", [b"", b"x y", b"5", b"5 ", b"-1 m", b"9" * 30 + b" m", "٣ m".encode(), None])
def test_conditions_that_are_none(told: bytes | None) -> None:
    assert records.condition_of(((records.CONDITION, told),)) is None
    assert records.condition_of(Condition(5, "m").headers()) == Condition(5, "m")

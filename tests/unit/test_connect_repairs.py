"""The config topic under nodes that die, answers that are lost, and compaction at the wrong moment: what counted stays.

Nodes with their real stores on one cluster in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from structlog.typing import EventDict

from heliograph.batch import Record
from heliograph.config import worker as worker_file
from heliograph.connect import records
from heliograph.connect import store as stores
from heliograph.connect.asking import Sight
from heliograph.connect.board import Board
from heliograph.connect.records import Condition
from heliograph.connect.service import NodeBackend, Service
from heliograph.connect.store import Store
from heliograph.errors import BrokerError
from heliograph.http.message import Request, Response
from heliograph.http.routing import Router
from heliograph.topiclog import reader
from heliograph.types import TopicPartition
from tests.unit.brokers import Brokers
from tests.unit.test_config_connectors import FIELD
from tests.unit.test_connect_api import SOURCE

FILE = worker_file.parse(FIELD)
CONFIGS = TopicPartition(FILE.configs.name, 0)


class Node:
    """As much of a node as its API needs, with a store of its own."""

    def __init__(self) -> None:
        self.store = Store(FILE)
        self.store.open()
        self.router = Router(Service(NodeBackend(self)).routes())  # type: ignore[arg-type]

    def poke(self) -> None: ...

    def sight(self) -> Sight:
        return Sight(self.store.board, FILE.worker, "1", "abc", "h:1")

    def ask(self, method: str, path: str, body: object = None) -> Response:
        headers = {"content-type": "application/json"}
        return self.router.answer(Request(method, path, headers=headers, body=json.dumps(body).encode()))

    def post(self, topics: str = "t", **more: Any) -> int:
        body = {"name": "x", "config": {**SOURCE, "name": "x", "topics": topics}, **more}
        return int(self.ask("POST", "/connectors", body).status)

    def shows(self) -> tuple[str | None, str] | None:
        found = self.store.catch_up().connectors.get("x")
        return None if found is None else (found.config["topics"], found.target)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Any:
    brokers = Brokers()
    monkeypatch.setattr(stores, "Client", lambda *_, **__: brokers)
    return brokers


def compact(brokers: Any) -> None:
    brokers.compact(CONFIGS, below=brokers.logs[CONFIGS].end, tombstones=True)


def overtaken_put(brokers: Any, node: Node, topics: str, seen: int) -> None:
    """By a node that ended before it could repair it."""
    pair = records.configured("x", {**SOURCE, "name": "x", "topics": topics})
    brokers.append(CONFIGS, Record(0, 0, *pair, Condition(seen, "m").headers()))


# -- repeats (a write whose answer was lost)


def test_a_delete_whose_answer_was_lost_does_not_delete_the_connector_that_was_made_meanwhile(brokers: Any) -> None:
    one, other = Node(), Node()
    assert one.post("first") == 201
    brokers.lost_answers = [lambda: other.post("second")]
    assert one.ask("DELETE", "/connectors/x").status == 204
    assert one.shows() == other.shows() == ("second", "STARTED")
    compact(brokers)
    assert Node().shows() == ("second", "STARTED")


def test_a_resume_whose_answer_was_lost_does_not_undo_a_pause_that_came_between(brokers: Any) -> None:
    one, other = Node(), Node()
    assert one.post(initial_state="PAUSED") == 201

    def pauses() -> None:
        assert other.ask("PUT", "/connectors/x/pause").status == 202

    brokers.lost_answers = [pauses]
    assert one.ask("PUT", "/connectors/x/resume").status == 202
    assert one.shows() == other.shows() == ("t", "PAUSED")
    compact(brokers)
    assert Node().shows() == ("t", "PAUSED")


def test_a_repeat_that_the_broker_stored_is_repaired_by_any_node(brokers: Any) -> None:
    """It had forgotten the producer id. For Connect, and after compaction, the last record is all there is."""
    one, other = Node(), Node()
    assert one.post("first") == 201
    brokers.remembers_producers = False
    brokers.lost_answers = [lambda: other.post("second")]
    assert one.ask("DELETE", "/connectors/x").status == 204
    assert one.shows() == other.shows() == ("second", "STARTED")
    assert other.store.stale_s > 0
    assert other.store.repair()
    assert (one.shows(), other.shows()) == (("second", "STARTED"),) * 2
    assert not one.store.repair()
    compact(brokers)
    assert Node().shows() == ("second", "STARTED")


# -- records that were overtaken, and whose node ended


def test_a_deletion_is_not_undone_after_compaction(brokers: Any) -> None:
    one, other = Node(), Node()
    assert one.post() == 201
    seen = one.store.board.seen
    assert one.ask("DELETE", "/connectors/x").status == 204
    overtaken_put(brokers, one, "late", seen)
    assert other.shows() is None
    assert other.store.repair()
    assert other.shows() is None
    assert other.store.stale_s == 0
    compact(brokers)
    assert Node().shows() is None


def test_a_node_that_read_what_counted_repairs_it_also_after_compaction_took_it(brokers: Any) -> None:
    one, other = Node(), Node()
    assert one.post() == 201
    seen = one.store.board.seen
    assert one.ask("DELETE", "/connectors/x").status == 204
    assert other.shows() is None
    overtaken_put(brokers, one, "late", seen)
    compact(brokers)
    late = Node()
    assert late.shows() == ("late", "STARTED"), "nothing in the topic says otherwise yet"
    other.store.catch_up()
    assert other.store.repair()
    assert late.shows() is None
    assert Node().shows() is None


def test_a_repair_is_in_the_way_of_no_change_that_came_before_it(brokers: Any) -> None:
    """It names the offset of what it repeats, and that is what changes are judged by, by new readers as well."""
    one, other = Node(), Node()
    assert one.post("first") == 201
    overtaken_put(brokers, one, "late", 0)
    one.store.catch_up()
    other.store.catch_up()
    brokers.between_sends = lambda: other.store.repair()
    assert one.ask("PATCH", "/connectors/x/config", {"topics": "second"}).status == 200
    end = brokers.logs[CONFIGS].end
    assert end == 4, "the first, the late one, the repair, the second: it was not decided again"
    assert one.shows() == other.shows() == Node().shows() == ("second", "STARTED")


def test_an_overtaken_initial_state_does_not_undo_a_pause(brokers: Any) -> None:
    one, other = Node(), Node()
    written: list[int] = []

    def posts() -> None:
        written.append(other.post("theirs"))
        brokers.between_sends = lambda: None

    brokers.between_sends = posts
    # Overtaken; and before its node writes again what counts, the connector is paused.
    repair = one.store.repair

    def late() -> bool:
        one.store.repair = repair  # type: ignore[method-assign]
        brokers.between_sends = lambda: written.append(int(other.ask("PUT", "/connectors/x/pause").status))
        return repair()

    one.store.repair = late  # type: ignore[method-assign]
    assert one.post("ours", initial_state="RUNNING") == 409
    assert written == [201, 202]
    assert one.shows() == other.shows() == ("theirs", "PAUSED")
    compact(brokers)
    assert Node().shows() == ("theirs", "PAUSED")


def test_nonsense_under_a_connectors_key_is_not_all_that_compaction_keeps(brokers: Any, logs: list[EventDict]) -> None:
    one = Node()
    assert one.post() == 201
    brokers.append(CONFIGS, Record(0, 0, records.connector_key("x"), b"\xff"))
    assert one.shows() == ("t", "STARTED")
    assert one.store.repair()
    compact(brokers)
    assert Node().shows() == ("t", "STARTED")
    (line,) = [line for line in logs if line["event"].startswith("records that are not ours")]
    assert (line["topic"], line["partition"], line["offsets"]) == (*CONFIGS, "1")


def test_where_all_counts_nothing_is_repaired(brokers: Any) -> None:
    one = Node()
    assert one.post() == 201
    assert one.ask("PUT", "/connectors/x/pause").status == 202
    end = brokers.logs[CONFIGS].end
    assert one.store.stale_s == 0
    assert not one.store.repair()
    assert brokers.logs[CONFIGS].end == end


# -- the topics themselves


def test_a_config_topic_that_is_recreated_is_a_new_beginning(brokers: Any) -> None:
    one = Node()
    assert one.post() == 201
    brokers.make(CONFIGS.topic)
    assert one.shows() is None
    assert one.post("again") == 201
    assert one.shows() == Node().shows() == ("again", "STARTED")


def test_the_board_stays_until_the_topics_are_read_again_completely(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WAIT_S", 0.0)
    one = Node()
    assert one.post() == 201
    status = records.Status("RUNNING", "h:1")
    one.store.tell([(records.status_key("x"), records.status_value(status))])
    before: Board = one.store.catch_up()
    brokers.elect(CONFIGS)
    brokers.truncate(CONFIGS, 0)
    brokers.append(CONFIGS, Record(0, 0, *records.configured("x", {**SOURCE, "name": "x", "topics": "other"})))
    brokers.append(CONFIGS, Record(0, 0, *records.targeted("x", "PAUSED")))
    brokers.logs[CONFIGS].lag = [1, 1]
    with pytest.raises(BrokerError, match="OFFSET_NOT_AVAILABLE"):
        one.store.catch_up()
    assert one.store.board is before
    assert one.shows() == ("other", "PAUSED")
    assert one.store.board.statuses == before.statuses

"""A node's round, without topics, a group or Spark: whose posts it keeps, what it forgets, what it says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.batch import Record
from heliograph.config import worker as worker_file
from heliograph.connect import node as nodes
from heliograph.connect import records
from heliograph.connect import store as stores
from heliograph.connect.board import Board, Folding
from heliograph.connect.node import Node
from heliograph.connect.posts import PostLook, Room, Wanted
from heliograph.connect.records import Pair
from heliograph.connect.works import Copying, TaskLook, Work, WorkLook
from heliograph.errors import BrokerError, HeliographError
from heliograph.types import Cluster, Flow
from heliograph.wire.codes import MESSAGE_TOO_LARGE, broker_error
from tests.unit.test_config_connectors import FIELD, config


class FakeStore:
    """Topics that are folded at once."""

    def __init__(self, _: object) -> None:
        self.folding = Folding()
        self.count, self.cluster_id = 0, ""
        self.told: list[Pair] = []
        self.stale_s, self.repairs = 0.0, 0
        self.refusal: Callable[[Pair], HeliographError | None] = lambda pair: None

    @property
    def board(self) -> Board:
        return self.folding.board()

    def catch_up(self) -> Board:
        return self.board

    def write(self, pairs: Collection[Pair]) -> None:
        for pair in pairs:
            if (error := self.refusal(pair)) is not None:
                raise error
            self.count += 1
            self.folding.config(Record(self.count, 0, *pair, ()))

    def repair(self) -> bool:
        self.repairs += 1
        return True

    def tell(self, pairs: Collection[Pair]) -> None:
        for pair in pairs:
            self.told.append(pair)
            self.folding.status(Record(0, 0, *pair, ()))


class FakePost:
    def __init__(self, name: str, make: Callable[[Flow], Work], wanted: Wanted, room: Room) -> None:
        self.name, self.wanted, self.gone = name, wanted, False
        self.work = WorkLook(tasks=(TaskLook(),), topics={"t": 5})

    def want(self, wanted: Wanted) -> None:
        self.wanted = wanted

    def leave(self) -> None:
        self.gone = True

    def look(self) -> PostLook:
        return PostLook("RUNNING", work=self.work)


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.membership = SimpleNamespace(cut_off=False, nodes=("h:8083",), trouble="", mine=self._mine)
        self.mine: set[str] = set()
        monkeypatch.setattr(nodes, "Store", FakeStore)
        monkeypatch.setattr(nodes, "Post", FakePost)
        monkeypatch.setattr(nodes, "Membership", lambda *_: self.membership)
        self.node = Node(worker_file.parse(FIELD))
        self.store: Any = self.node.store

    def _mine(self, board: Board, has: Collection[str]) -> frozenset[str]:
        return frozenset(self.mine & board.connectors.keys())

    def made(self, *names: str) -> None:
        for name in names:
            self.store.write([records.configured(name, {**config("Source"), "name": name})])
        self.mine |= {*names}

    def round(self) -> None:
        self.node._round(self.store.board)

    def post(self, name: str) -> FakePost:
        found: Any = self.node._posts[name]
        assert isinstance(found, FakePost)
        return found


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(monkeypatch)
    yield scene
    scene.node._hub.close()


def test_a_post_whose_thread_ended_by_itself_is_made_again(scene: Scene) -> None:
    scene.made("one")
    scene.round()
    first = scene.post("one")
    scene.round()
    assert scene.post("one") is first
    first.gone = True
    scene.round()
    assert scene.post("one") is not first


def test_a_node_that_is_cut_off_says_nothing_and_is_not_healthy(scene: Scene) -> None:
    scene.made("one")
    scene.node._read_at = 1e12
    scene.round()
    assert scene.store.told
    assert scene.node.sight().trouble == ""
    scene.store.told.clear()
    scene.membership.cut_off, scene.membership.trouble = True, "no broker at b:1"
    scene.post("one").work = WorkLook("it is over")
    scene.round()
    assert not scene.store.told
    assert "b:1" in scene.node.sight().trouble
    scene.membership.cut_off = False
    scene.round()
    assert scene.store.told
    assert scene.node.sight().trouble == ""


def test_nothing_is_kept_of_connectors_that_left(scene: Scene) -> None:
    scene.made("one", "two")
    scene.round()
    scene.round()
    assert {name for name, _ in scene.node._topics} == {"one", "two"} == set(scene.node._verdicts)
    scene.mine.discard("two")  # another node's from now on
    scene.store.write(records.deleted("one"))
    scene.round()
    assert not scene.node._topics
    assert not scene.node._verdicts


def test_the_hub_forgets_a_flow_that_ended_but_not_its_successor(scene: Scene) -> None:
    hub = scene.node._hub
    first, second = SimpleNamespace(), SimpleNamespace()
    hub.add("one", first)  # type: ignore[arg-type]
    hub.add("one", second)  # type: ignore[arg-type]
    hub.remove("one", first)  # type: ignore[arg-type]
    assert hub._stations == {"one": second}
    hub.remove("one", second)  # type: ignore[arg-type]
    assert hub._stations == {}
    work = Copying(flow_of("two"), hub, None, epoch_seconds=1, file="")  # type: ignore[arg-type]
    coordinator: Any = SimpleNamespace(stop=lambda: None, close=lambda: None)
    work._coordinator = coordinator
    hub.add("two", coordinator)
    work.end()
    assert hub._stations == {}


def flow_of(name: str) -> Flow:
    return Flow(Cluster("a"), Cluster("b"), label=name)


def test_tasks_that_cannot_be_written_down_silence_nobody(scene: Scene) -> None:
    scene.made("one", "two")
    scene.store.refusal = lambda pair: broker_error(MESSAGE_TOO_LARGE, "") if b"one" in pair[0] else None
    with pytest.raises(BrokerError):
        scene.round()
    board = scene.store.board
    assert {name for name, task in board.statuses if task is None} == {"one", "two"}
    assert (len(board.connectors["one"].tasks), len(board.connectors["two"].tasks)) == (0, 1)


def test_a_connector_that_comes_while_the_topics_are_read_has_no_status_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its configuration and its status are written between the two reads: the status would be taken for a leftover."""
    written: dict[str, list[Pair]] = {"connect-configs": [], "connect-status": []}

    class Topic:
        def __init__(self, _client: object, name: str) -> None:
            self._name = name

        def news(self, _partition: int = 0) -> Iterator[tuple[int, Record]]:
            found = [(0, Record(n, 0, *pair, ())) for n, pair in enumerate(written[self._name])]
            written["connect-configs"] = [records.configured("one", config("Source"))]
            status = records.Status("RUNNING", "h:8083")
            written["connect-status"] = [(records.status_key("one"), records.status_value(status))]
            return iter(found)

        def is_reread(self, _partition: int, _offset: int) -> bool:
            return False

    monkeypatch.setattr(stores, "CompactedLog", Topic)
    store = stores.Store(worker_file.parse(FIELD))
    for _ in range(2):
        board = store.catch_up()
        assert {name for name, _ in board.statuses} <= board.connectors.keys()
    assert board.statuses


def test_what_another_node_left_is_repaired_by_one_node_after_the_other(scene: Scene) -> None:
    scene.membership.nodes = ("a:8083", "h:8083")
    scene.node.worker_id = "h:8083"
    scene.store.stale_s = 1.5 * nodes.REPAIR_AFTER_S
    scene.round()
    assert scene.store.repairs == 0, "the first of them has its turn"
    scene.store.stale_s = 2.5 * nodes.REPAIR_AFTER_S
    scene.round()
    assert scene.store.repairs == 1
    scene.membership.cut_off = True
    scene.round()
    assert scene.store.repairs == 1

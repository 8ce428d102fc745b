"""Whose each connector is: the same for every node, even, and left where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config import worker as worker_file
from heliograph.connect import membership as memberships
from heliograph.connect.board import Board, Connector
from heliograph.connect.membership import Membership, _decide, _nodes, share_out
from heliograph.connect.records import Status
from heliograph.errors import ConnectionLost
from heliograph.wire.codes import COORDINATOR_LOAD_IN_PROGRESS, broker_error
from heliograph.wire.members import REBALANCE_IN_PROGRESS, Expelled, Joined
from tests.kit import wait_until
from tests.unit.test_config_connectors import FIELD

NAMES = st.sets(st.sampled_from([f"c{n}" for n in range(12)]))
NODES = st.sets(st.sampled_from([f"h{n}:8083" for n in range(5)]), min_size=1)


def board(names: set[str], owners: Mapping[str, str]) -> Board:
    statuses = {(name, None): Status("RUNNING", owner) for name, owner in owners.items()}
    return Board({name: Connector(name, {}) for name in names}, statuses)


@given(NAMES, NODES)
def test_evenly_and_all_of_them(names: set[str], nodes: set[str]) -> None:
    found = share_out(board(names, {}), nodes)
    assert found.keys() == names
    loads = Counter(found.values())
    assert max(loads.values(), default=0) - min((loads[node] for node in nodes), default=0) <= 1


@given(NAMES, NODES)
def test_nothing_moves_when_nothing_changed(names: set[str], nodes: set[str]) -> None:
    found = share_out(board(names, {}), nodes)
    assert share_out(board(names, found), nodes) == found


@given(NAMES, NODES)
def test_a_new_connector_moves_no_other(names: set[str], nodes: set[str]) -> None:
    before = share_out(board(names, {}), nodes)
    after = share_out(board(names | {"new"}, before), nodes)
    assert {name: after[name] for name in names} == before


@given(NAMES, NODES, st.data())
def test_a_node_that_died_leaves_only_its_own_to_the_others(
    names: set[str], nodes: set[str], data: st.DataObject
) -> None:
    before = share_out(board(names, {}), nodes)
    dead = data.draw(st.sampled_from(sorted(nodes)))
    living = nodes - {dead}
    after = share_out(board(names, before), living)
    assert not living or after.keys() == names
    assert all(after[name] == owner for name, owner in before.items() if owner != dead)


@given(NAMES, NODES)
def test_a_node_that_comes_gets_its_share_and_no_more_moves(names: set[str], nodes: set[str]) -> None:
    before = share_out(board(names, {}), nodes)
    after = share_out(board(names, before), nodes | {"new:1"})
    moved = [name for name in names if after[name] != before[name]]
    assert all(after[name] == "new:1" for name in moved)
    assert len(moved) <= -(-len(names) // (len(nodes) + 1))


def test_the_leader_tells_everybody_the_same() -> None:
    told = _decide({"a": b"h1:1", "b": b"h2:1"})
    assert told["a"] == told["b"]
    assert _nodes(told["a"]) == ("h1:1", "h2:1")
    assert _nodes(b"nonsense") == _nodes(b"[]") == _nodes(b"") == ()


# -------------------- in the group, and out of it


class FakeMember:
    """Of a group of two. What is in `problems` is raised by the next call, the last one by all that follow."""

    def __init__(self, *_: object) -> None:
        self.problems: list[Exception] = []
        self.joins = 0

    def join(self, about: bytes, decide: object) -> Joined:
        self.joins += 1
        self._raise()
        return Joined("m", self.joins, b'{"nodes": ["h1:8083", "h2:8083"]}')

    def beat(self, generation: int) -> None:
        self._raise()

    def leave(self, timeout_s: float) -> None:
        pass

    def _raise(self) -> None:
        if self.problems:
            raise self.problems.pop(0) if len(self.problems) > 1 else self.problems[0]


BEAT_S = 0.02


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> tuple[Membership, FakeMember]:
    """Not started."""
    member = FakeMember()
    monkeypatch.setattr(memberships, "Client", lambda *_, **__: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(memberships, "Member", lambda *_: member)
    file = worker_file.parse(FIELD + b"session.timeout.ms=300\nheartbeat.interval.ms=20\n")
    return Membership(file, "h1:8083", lambda _generation: None), member


@pytest.fixture
def group(still: tuple[Membership, FakeMember]) -> Iterator[tuple[Membership, FakeMember]]:
    still[0].start()
    yield still
    still[0].stop()


def test_who_is_not_heard_takes_nothing_more_and_keeps_what_it_runs(group: tuple[Membership, FakeMember]) -> None:
    membership, member = group
    names, owners = {"c1", "c2", "c3", "c4"}, {"c1": "h1:8083", "c2": "h2:8083", "c3": "h1:8083"}
    seen = board(names, owners)
    wait_until(lambda: bool(membership.nodes), what="the first list")
    assert membership.mine(seen, ()) == {"c1", "c3"}
    member.problems = [ConnectionLost("gone")]
    wait_until(lambda: membership.cut_off, what="the session's end")
    assert "gone" in membership.trouble
    assert membership.mine(seen, {"c1"}) == {"c1"}  # c3 too was its own: nothing new
    assert membership.mine(board(names, {**owners, "c1": "h2:8083"}), {"c1", "c3"}) == {"c3"}  # another has it
    assert membership.mine(board({"c3"}, owners), {"c1", "c3"}) == {"c3"}  # deleted
    member.problems = []
    wait_until(lambda: not membership.cut_off, what="the group again")
    assert membership.mine(seen, {"c1"}) == {"c1", "c3"}


@pytest.mark.parametrize(
    "problem", [broker_error(COORDINATOR_LOAD_IN_PROGRESS, "", cluster="c"), Expelled(REBALANCE_IN_PROGRESS)]
)
def test_a_coordinator_is_not_asked_without_a_pause(
    still: tuple[Membership, FakeMember], problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership, member = still
    pauses: list[float] = []

    def wait(timeout_s: float) -> bool:
        pauses.append(timeout_s)
        return len(pauses) > 8

    monkeypatch.setattr(membership._stopping, "wait", wait)
    member.problems = [problem]
    membership._belong()
    assert pauses == [0.0, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0, 3.0]


def test_who_is_told_to_join_again_does_at_once(
    still: tuple[Membership, FakeMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    membership, member = still
    pauses: list[float] = []

    def wait(timeout_s: float) -> bool:
        pauses.append(timeout_s)
        member.problems = [Expelled(REBALANCE_IN_PROGRESS)] if timeout_s == BEAT_S else []
        return len(pauses) > 5

    monkeypatch.setattr(membership._stopping, "wait", wait)
    membership._belong()
    assert pauses == [*[0.0, BEAT_S] * 3, 0.0]

"""Whose each connector is: the same for every node, even, and left where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from heliograph.connect.board import Board, Connector
from heliograph.connect.membership import _decide, _nodes, share_out
from heliograph.connect.records import Status

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

"""A member of a group against a coordinator in memory: it joins, leads, follows, is missed, and comes again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.errors import BrokerError, ConnectionLost
from heliograph.wire.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    UNKNOWN_MEMBER_ID,
)
from heliograph.wire.members import MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, Expelled, Member, Terms

TERMS = Terms("g", "kind", 6_000, 10_000)
INCONSISTENT_GROUP_PROTOCOL = 23


class Coordinator:
    """Answers by what it was told to, and keeps what it was asked."""

    alias = "c"

    def __init__(self, **codes: list[int]) -> None:
        self.codes = codes  # api -> codes of the next answers
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.leader = "m"

    def call(self, api: str, **fields: Any) -> Any:
        self.asked.append((api, fields))
        queue = self.codes.get(api, [])
        code = queue.pop(0) if queue else 0
        if code < 0:
            raise ConnectionLost("gone")
        if api == "find_coordinator":
            return SimpleNamespace(coordinators=[SimpleNamespace(key="g", node_id=7, error_code=code)])
        if api == "join_group":
            members = [SimpleNamespace(member_id=one, metadata=one.encode()) for one in ("m", "other")]
            return SimpleNamespace(error_code=code, member_id="m", leader=self.leader, generation_id=3, members=members)
        return SimpleNamespace(error_code=code, assignment=b"told")

    def apis(self) -> list[str]:
        return [api for api, _ in self.asked]


def decide(members: Any) -> dict[str, bytes]:
    return {name: b"for " + about for name, about in members.items()}


def test_the_leader_tells_each_member_what_it_decided() -> None:
    coordinator = Coordinator(join_group=[MEMBER_ID_REQUIRED])
    joined = Member(coordinator, TERMS).join(b"about", decide)  # type: ignore[arg-type]
    assert (joined.member_id, joined.generation, joined.assignment) == ("m", 3, b"told")
    assert coordinator.apis() == ["find_coordinator", "join_group", "join_group", "sync_group"]
    second = coordinator.asked[2][1]
    assert (second["member_id"], second["broker"], second["protocol_type"]) == ("m", 7, "kind")
    assert coordinator.asked[3][1]["assignments"] == [
        {"member_id": "m", "assignment": b"for m"},
        {"member_id": "other", "assignment": b"for other"},
    ]


def test_a_follower_tells_nobody_anything() -> None:
    coordinator = Coordinator()
    coordinator.leader = "other"
    Member(coordinator, TERMS).join(b"", decide)  # type: ignore[arg-type]
    assert coordinator.asked[-1][1]["assignments"] == []


def test_who_is_missed_comes_again_under_a_new_id() -> None:
    coordinator = Coordinator(heartbeat=[REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID])
    member = Member(coordinator, TERMS)  # type: ignore[arg-type]
    member.join(b"", decide)
    with pytest.raises(Expelled):
        member.beat(3)
    member.join(b"", decide)
    assert coordinator.asked[-2][1]["member_id"] == "m"
    with pytest.raises(Expelled) as expelled:
        member.beat(3)
    assert expelled.value.forgotten
    member.join(b"", decide)
    assert coordinator.asked[-2][1]["member_id"] == ""


def test_a_coordinator_that_moved_or_went_is_looked_for_again() -> None:
    coordinator = Coordinator(heartbeat=[NOT_COORDINATOR, -1])
    member = Member(coordinator, TERMS)  # type: ignore[arg-type]
    member.join(b"", decide)
    with pytest.raises(BrokerError, match="NOT_COORDINATOR") as moved:
        member.beat(3)
    assert moved.value.retriable
    with pytest.raises(ConnectionLost):
        member.beat(3)
    member.beat(3)
    assert coordinator.apis().count("find_coordinator") == 3


def test_a_group_of_another_kind_is_an_error() -> None:
    coordinator = Coordinator(join_group=[INCONSISTENT_GROUP_PROTOCOL])
    with pytest.raises(BrokerError):
        Member(coordinator, TERMS).join(b"", decide)  # type: ignore[arg-type]


def test_it_leaves_only_where_it_is() -> None:
    coordinator = Coordinator()
    member = Member(coordinator, TERMS)  # type: ignore[arg-type]
    member.leave(1)
    assert coordinator.asked == []
    member.join(b"", decide)
    member.leave(1)
    assert coordinator.apis()[-1] == "leave_group"


@pytest.mark.parametrize("code", [NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_is_not_ready_is_to_be_waited_for(code: int) -> None:
    """Not Expelled: whoever is joins again at once."""
    coordinator = Coordinator(join_group=[code], sync_group=[code])
    member = Member(coordinator, TERMS)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(BrokerError) as problem:
            member.join(b"", decide)
        assert problem.value.retriable
    assert member.join(b"", decide).generation == 3

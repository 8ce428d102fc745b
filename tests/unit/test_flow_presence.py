"""Who runs a flow: the record in the positions topic, which nobody else may take for a position; and whether an MM2
runs."""

from __future__ import annotations

import msgspec
import pytest

from heliograph.flow.presence import GONE_S, Holder, _key, has_workers, holder_of, process_of
from heliograph.mirror.positions import Position, is_for_others, partition_of_key
from heliograph.review.adoption import Findings, _continuation
from heliograph.review.standing import Standing
from heliograph.survey.starts import Bounds, NoStart, Start
from heliograph.types import Cluster, Flow, StartPoint, TopicPartition

FLOW = Flow(Cluster("us"), Cluster("eu"))
TP = TopicPartition("orders", 0)


def test_its_key_is_no_position_and_no_stranger() -> None:
    key = _key(FLOW, "abc")
    assert partition_of_key(key, "us") is None
    assert is_for_others(key, "us")
    assert process_of(key, FLOW) == "abc"


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"nonsense",
        b"[]",
        b'["HeliographProcess", 3]',
        b'["HeliographProcess", {"cluster": "us", "process": "abc"}]',
        _key(Flow(Cluster("us"), Cluster("ap")), "abc"),  # another flow, whose target is another cluster's alias
        _key(Flow(Cluster("ap"), Cluster("eu")), "abc"),
        b'["MirrorSourceConnector",{"cluster":"us","partition":0,"topic":"orders"}]',
    ],
)
def test_other_keys_are_nobodys(key: bytes | None) -> None:
    assert process_of(key, FLOW) is None


def test_a_holder_is_gone_after_four_beats() -> None:
    value = msgspec.json.encode({"host": "h", "pid": 7, "since": 1000, "at": 50_000})
    holder = holder_of("abc", value)
    assert holder == Holder("abc", "h", 7, 1000, 50_000)
    assert str(holder) == "process 7 on h"
    assert holder.alive(50_000 + int(GONE_S * 1000) - 1)
    assert not holder.alive(50_000 + int(GONE_S * 1000))
    assert holder_of("abc", None) is None
    assert holder_of("abc", b'{"host": "h"}') is None


@pytest.mark.parametrize(
    ("state", "beating", "sign"),
    [
        ("Stable", False, "has members"),
        ("PreparingRebalance", False, "has members"),
        ("Empty", False, ""),
        ("Dead", False, ""),
        ("? GROUP_AUTHORIZATION_FAILED", False, ""),
        ("? GROUP_AUTHORIZATION_FAILED", True, "heartbeats"),
        ("Dead", True, "heartbeats"),
    ],
)
def test_signs_of_a_running_mm2(state: str, beating: bool, sign: str) -> None:
    found = Findings("us->eu", "us-mm2", state, beating=beating)
    assert (sign in found.mm2_runs) if sign else not found.mm2_runs
    assert has_workers(state) is (sign == "has members")


def standing(position: Position | None, *, copied: bool = True, trouble: str = "") -> Standing:
    return Standing(TP, TopicPartition("us.orders", 0), copied, position, Bounds(20, 150), 100, trouble=trouble)


def test_where_each_partition_goes_on() -> None:
    at_100 = Start(100)
    earliest = Start(20, StartPoint("earliest"))
    assert _continuation(standing(Position(100)), at_100).why == "MM2's position"
    assert _continuation(standing(Position(100, 7, 0, 80)), at_100).why == "Heliograph's own position"
    assert _continuation(standing(None), earliest).why == "no position: begins at earliest"
    assert _continuation(standing(None), NoStart("where it begins cannot be asked", "")).offset is None
    assert _continuation(standing(Position(100), copied=False), at_100).offset is None
    beyond = _continuation(standing(Position(400), trouble="its position 400 is behind …"), Start(400))
    assert beyond.offset is None
    assert "no mirror wrote that" in beyond.why

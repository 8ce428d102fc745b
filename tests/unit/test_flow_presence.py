"""Who runs a flow: the record in the positions topic, which nobody else may take for a position; and whether an MM2
runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from heliograph.flow import kernel
from heliograph.flow.orders import home
from heliograph.flow.presence import GONE_S, Holder, Presence, Watch, _key, has_workers, holder_of, process_of
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


def test_a_record_says_which_process_runs_the_flow() -> None:
    now_ms = time.time_ns() // 1_000_000
    holder = holder_of("abc", msgspec.json.encode({"host": "h", "pid": 7, "since": 1000, "at": now_ms}))
    assert holder == Holder("abc", "h", 7, 1000, now_ms)
    assert str(holder) == "process 7 on h"
    assert str(replace(holder, at_ms=50_000)) == "process 7 on h (last beat 1970-01-01 00:00:50Z by its clock)"
    assert holder_of("abc", None) is None
    assert holder_of("abc", b'{"host": "h"}') is None
    assert holder_of("abc", b'{"host": "h", "pid": 7, "since": 1e300, "at": -1}') is not None


@pytest.mark.parametrize("apart_s", [0, 3600, -3600])
def test_a_process_is_gone_when_it_was_watched_for_as_long_whatever_its_clock_says(apart_s: int) -> None:
    them = Holder("abc", "elsewhere", 7, 0, time.time_ns() // 1_000_000 + apart_s * 1000)
    watch = Watch()
    assert watch.saw([them], 100.0) == []
    assert not watch.gone(them, 100.0 + GONE_S - 1)
    assert watch.gone(them, 100.0 + GONE_S)
    beaten = replace(them, beats=1)  # at the same time, by its clock
    assert watch.saw([beaten], 130.0) == [beaten]
    assert not watch.gone(beaten, 130.0)


def test_a_process_that_comes_while_others_are_watched_runs_the_flow() -> None:
    one, other = (Holder(name, "elsewhere", 7, 0, 0) for name in ("one", "other"))
    watch = Watch()
    assert watch.saw([one], 100.0) == []
    assert watch.saw([one, other], 101.0) == [other]


def test_silence_of_a_process_of_this_boot_is_known_at_once() -> None:
    where = replace(kernel.here(), namespace="another container's")
    quiet = Holder("abc", "elsewhere", 7, 0, 0, where=where, up_ms=kernel.up_ms() - 60_000)
    assert quiet.is_over
    assert not replace(quiet, up_ms=kernel.up_ms() - 1_000).is_over
    assert not replace(quiet, up_ms=0).is_over
    assert not replace(quiet, where=replace(where, boot="another machine's")).is_over


def test_a_frozen_process_of_this_machine_holds_its_flow() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        os.kill(child.pid, signal.SIGSTOP)
        where = replace(kernel.here(), started=kernel.started(child.pid))
        frozen = Holder("abc", socket.gethostname(), child.pid, 0, 0, where=where, up_ms=kernel.up_ms() - 60_000)
        assert not frozen.is_over
        assert Watch().saw([frozen], 100.0) == [frozen]
    finally:
        child.kill()
        child.wait()


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


def test_a_beat_that_comes_after_the_lease_was_taken_back_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(timeout_s=1.0)
    one = Presence(FLOW, client)  # type: ignore[arg-type]
    monkeypatch.setattr(one._log, "look", lambda: setattr(one._log, "partitions", 1) or True)
    written: list[bytes | None] = []
    monkeypatch.setattr(one._log, "append", lambda partition, pairs: written.extend(value for _, value in pairs))
    one.beat()
    one.leave()
    one.beat()
    assert written[1:] == [None]


def test_leases_follow_the_partition_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader whose beats nobody reads is taken for gone, and two processes copy."""
    counts, beaten = iter([1, 0, 8]), []
    one = Presence(FLOW, SimpleNamespace(timeout_s=1.0))  # type: ignore[arg-type]

    def look() -> bool:
        found = next(counts)
        one._log.partitions = found or one._log.partitions
        return bool(found)

    monkeypatch.setattr(one._log, "look", look)
    monkeypatch.setattr(one._log, "append", lambda partition, pairs: beaten.append(partition))
    for _ in range(3):
        one.beat()
    assert beaten == [home(FLOW, 1), home(FLOW, 1), home(FLOW, 8)]
    assert home(FLOW, 8) != home(FLOW, 1)

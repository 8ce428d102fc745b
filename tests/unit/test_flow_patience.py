"""A start that waits: for what passes by itself, as long as it is told to, saying which broker and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.typing import EventDict

from heliograph import errors
from heliograph.flow import factors, patience, reach
from heliograph.flow.patience import Patience, insist
from heliograph.state.replicas import Needed, Seen
from heliograph.types import Cluster, Factor, Flow, Mux
from heliograph.wire import Client

US, EU = Cluster("us", {"bootstrap.servers": "us:1"}), Cluster("eu", {"bootstrap.servers": "eu:1"})

WAITED_FOR = [
    errors.Unreachable("eu broker eu:1: refused"),
    errors.Unreachable("eu broker eu:1: the host name does not resolve"),
    errors.Unreachable("eu broker eu:1: the TLS handshake failed"),
    errors.TimedOut("no answer"),
    errors.ConnectionLost("gone"),
    errors.TokenUnavailable("eu: no token from https://tokens"),
    errors.BrokerError(5, "LEADER_NOT_AVAILABLE", retriable=True),
]
NOT_WAITED_FOR = [
    errors.LoginFailed("no"),
    errors.Untrusted("not trusted"),
    errors.VersionUnsupported("too old"),
    errors.ProtocolError("no Kafka there"),
    errors.BrokerError(29, "TOPIC_AUTHORIZATION_FAILED"),
    errors.ConfigError("bad"),
    errors.SameCluster("one"),
    errors.Held("another process"),
    errors.EngineError("Spark"),  # retriable, but no cluster
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S", 0.001)


def failing(error: Exception, times: int) -> Callable[[], str]:
    left = [times]

    def attempt() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return "reached"

    return attempt


@pytest.mark.parametrize("error", WAITED_FOR, ids=str)
def test_what_passes_is_waited_for(error: Exception) -> None:
    assert insist(failing(error, 3), Patience(60)) == "reached"


@pytest.mark.parametrize("error", NOT_WAITED_FOR, ids=str)
def test_what_stays_wrong_is_said_at_once(error: Exception) -> None:
    with pytest.raises(type(error)):
        insist(failing(error, 1), Patience(60))


def test_without_patience_there_is_one_try() -> None:
    for none in (None, Patience(0)):
        with pytest.raises(errors.Unreachable):
            insist(failing(errors.Unreachable("away"), 1), none)


def test_what_never_comes_is_raised_when_the_time_is_over() -> None:
    began = time.monotonic()
    with pytest.raises(errors.Unreachable, match="away"):
        insist(failing(errors.Unreachable("away"), 1 << 30), Patience(0.05))
    assert time.monotonic() - began >= 0.04


def test_the_same_reason_is_said_once_and_another_at_once(logs: list[EventDict]) -> None:
    waiting = Patience(60)
    for why in ("eu:1 refused", "eu:1 refused", "eu:1 no answer", "eu:1 no answer"):
        assert waiting.again(why)
    assert [(line["event"], line["why"]) for line in logs] == [
        ("waiting", "eu:1 refused"),
        ("waiting", "eu:1 no answer"),
    ]


# ---------------------------------------------------------------- clusters


def answers(monkeypatch: pytest.MonkeyPatch, **said: list[Any]) -> list[str]:
    """What each cluster says, try after try, the last for ever. Whom it was asked of."""
    asked: list[str] = []

    def ask(cluster: Cluster, timeout_s: float) -> str:
        asked.append(cluster.alias)
        mine = said[cluster.alias]
        answer = mine.pop(0) if len(mine) > 1 else mine[0]
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(reach, "_ask_once", ask)
    return asked


AWAY = errors.Unreachable("eu: no broker can be reached (eu:1: refused)", fix="Are the brokers up?")


def test_a_cluster_that_is_away_is_waited_for_and_named(monkeypatch: pytest.MonkeyPatch, logs: list[EventDict]) -> None:
    asked = answers(monkeypatch, us=["id-us"], eu=[AWAY, AWAY, "id-eu"])
    reach.check_clusters([Flow(US, EU), Flow(EU, US)], patience=Patience(60))
    assert sorted(asked) == ["eu"] * 3 + ["us"] * 3  # each once a round, however many flows
    assert [line["why"] for line in logs] == ["eu: no broker can be reached (eu:1: refused)"]


def test_a_refused_login_is_said_although_another_cluster_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, us=[errors.LoginFailed("no")], eu=[AWAY])
    with pytest.raises(errors.LoginFailed):
        reach.check_clusters([Flow(US, EU)], patience=Patience(60))


def test_one_cluster_behind_two_aliases_is_seen_when_both_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, us=["same"], eu=[AWAY, "same"])
    with pytest.raises(errors.SameCluster):
        reach.check_clusters([Flow(US, EU)], patience=Patience(60))


def test_not_waiting_is_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, us=["id-us"], eu=[AWAY])
    with pytest.raises(errors.Unreachable):
        reach.check_clusters([Flow(US, EU)], patience=Patience(0))
    assert sorted(asked) == ["eu", "us"]


@pytest.mark.parametrize("away", WAITED_FOR, ids=str)
def test_a_hub_begins_without_a_spoke_whatever_it_is_away_for(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventDict], away: Exception
) -> None:
    """Only connections that could not be made and answers that did not come counted: a spoke that ended connections,
    or had no token endpoint, kept the whole hub from starting."""
    asia, hub = Cluster("asia", {"bootstrap.servers": "asia:1"}), US
    flows = [Flow(one, hub, mux=Mux(("orders",), "all", one.alias, 1, ())) for one in (EU, asia)]
    answers(monkeypatch, us=["id-us"], eu=[away], asia=["id-asia"])
    monkeypatch.setattr(reach, "_cluster_id", reach._ask_once)
    monkeypatch.setattr(reach, "ANSWER_S", 0.02)
    assert reach.check_begin(flows, Patience(60)) == {"eu->us.mux"}
    assert [line["spokes"] for line in logs if "spokes" in line] == [["eu"]]


# ---------------------------------------------------------------- brokers that have not registered yet

NEEDED = [Needed(EU, "t", Factor(3, "eu.rf"))]
THREE = Seen(dict.fromkeys(range(3), True), {})
ONE = Seen({0: True}, {})


def looks(monkeypatch: pytest.MonkeyPatch, *seen: Seen, silent: list[list[str]]) -> None:
    """What the cluster has, look after look; bootstrap servers that cannot be connected to, try after try."""
    left = list(seen)
    monkeypatch.setattr(factors, "_look", lambda _: {"eu": left.pop(0) if len(left) > 1 else left[0]})
    monkeypatch.setattr(factors, "_silent", lambda _: silent.pop(0) if len(silent) > 1 else silent[0])


def test_a_bootstrap_server_that_is_away_is_waited_for_before_a_factor_is_lowered(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventDict]
) -> None:
    looks(monkeypatch, ONE, ONE, THREE, silent=[["eu broker b:1: refused"]])
    factors.check_needed(NEEDED, Patience(60))
    assert [line["event"] for line in logs] == ["waiting"]
    assert "eu may not have registered all its brokers yet (eu broker b:1: refused)" in logs[0]["why"]


@pytest.mark.parametrize("wait_s", [0.0, 0.02])
def test_one_that_never_comes_lowers_the_factor_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventDict], wait_s: float
) -> None:
    looks(monkeypatch, ONE, silent=[["eu broker b:1: refused"]])
    factors.check_needed(NEEDED, Patience(wait_s))
    (said,) = [line for line in logs if line["event"] != "waiting"]
    assert "t: 1 replica instead of 3 (eu.rf)" in said["why"]


def test_where_every_bootstrap_server_answers_the_cluster_is_as_small_as_it_is(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventDict]
) -> None:
    looks(monkeypatch, ONE, silent=[[]])
    factors.check_needed(NEEDED, Patience(60))
    assert [line["event"] for line in logs] == ["topics have fewer replicas than wanted"]


def test_a_factor_of_the_file_is_refused_only_when_all_brokers_had_time_to_come(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventDict]
) -> None:
    fixed = [Needed(EU, "t", Factor(3, "eu.rf", fixed=True))]
    looks(monkeypatch, ONE, THREE, silent=[["eu broker b:1: refused"]])
    factors.check_needed(fixed, Patience(60))
    looks(monkeypatch, ONE, silent=[[]])
    with pytest.raises(errors.ConfigError, match=r"eu\.rf = 3: eu has 1 broker, so t cannot be created"):
        factors.check_needed(fixed, Patience(60))


def test_a_running_flow_is_judged_by_the_file_that_was_applied_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "look", lambda _client, _needed: ONE)
    flow = Flow(Cluster("us"), EU)
    watch = factors.ReplicaWatch(lambda: flow, Client(US), Client(EU))
    watch.look()
    assert any("heartbeats" in one for one in watch.words)
    flow = replace(flow, emit_heartbeats_s=None)
    watch.look()
    assert watch.words
    assert not any("heartbeats" in one for one in watch.words)

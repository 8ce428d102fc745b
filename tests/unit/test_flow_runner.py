"""Flows of a process that come, change and go: only those that a change is about, on a Spark that is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from heliograph.errors import EngineError, FlowError, Held, Unreachable
from heliograph.flow import runner as runners
from heliograph.flow.runner import EngineOnce, Runner
from heliograph.health.status import FlowStatus, Generation
from heliograph.types import Cluster, Flow, Policies
from tests.kit import wait_until


def flow(source: str, target: str, **more: Any) -> Flow:
    return Flow(Cluster(source), Cluster(target), **more)


A, B, C = flow("us", "eu"), flow("eu", "us"), flow("us", "ap")


class FakeCoordinator:
    made: list[FakeCoordinator] = []  # noqa: RUF012 - for the tests to look at
    unready: set[str] = set()  # noqa: RUF012 - flows that cannot be opened yet
    idle: set[str] = set()  # noqa: RUF012 - flows without a topic to copy
    working = False

    def __init__(self, flow: Flow, coordinates: object, *, epoch_seconds: float, file: str) -> None:
        self.flow, self.generation, self.epoch_seconds = flow, 0, epoch_seconds
        self.tenure = SimpleNamespace(let_go=None)
        self.did: list[str] = []
        self.state = "starting"
        FakeCoordinator.made.append(self)

    def open(self) -> None:
        if self.flow.name in self.unready:
            raise Unreachable("no broker at ap:1")
        self.did.append("opened")

    def has_work(self, timeout_s: float) -> bool:
        threading.Event().wait(0.01)
        return self.flow.name not in self.idle

    def stop(self) -> None:
        if "stopped" not in self.did:
            self.did.append("stopped")

    def close(self) -> None:
        self.did.append("closed")

    def query(self, state: str, reason: str = "", again_at: float | None = None) -> None:
        self.state = state

    def change(self, flow: Flow) -> str:
        self.flow = flow
        self.did.append("changed")
        return "taken up"

    def status(self) -> FlowStatus:
        return FlowStatus(self.flow.name, self.state)


class FakeEngine:
    def __init__(self, **more: object) -> None:
        self.running: list[str] = []
        self.slots = more["slots"]

    def start(self, flow: str, coordinates: object) -> str:
        self.running.append(flow)
        return flow

    def wait(self, query: str, timeout_s: float) -> str | None:
        threading.Event().wait(0.01)
        return None

    def end(self, query: str) -> None:
        self.running.remove(query)

    def stop(self, timeout_s: float) -> None:
        self.running.clear()


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What the check of clusters, or of who holds a flow, raises from now on."""
    raised: list[Exception] = []
    FakeCoordinator.made, FakeCoordinator.unready, FakeCoordinator.idle = [], set(), set()

    def check(flows: Sequence[Flow], **_more: object) -> None:
        if raised and flows:
            raise raised[0]

    monkeypatch.setattr(runners, "Coordinator", FakeCoordinator)
    monkeypatch.setattr(runners, "check_clusters", check)
    monkeypatch.setattr(runners, "check_begin", lambda flows, _patience: check(flows) or frozenset())
    monkeypatch.setattr(runners, "check_factors", lambda flows, _patience=None: check(list(flows)))
    monkeypatch.setattr(runners, "settle", check)
    monkeypatch.setattr(runners, "_import_engine", lambda: FakeEngine)
    return raised


@pytest.fixture
def runner(refusal: list[Exception]) -> Iterator[Runner]:
    made = Runner([A, B])
    made.start()
    wait_until(lambda: {one.state for one in FakeCoordinator.made} == {"running"}, what="both flows")
    yield made
    made.stop(0.5)


def test_a_spark_that_was_begun_before_is_taken_and_ended_once(refusal: list[Exception]) -> None:
    spark = EngineOnce(None, {}, "127.0.0.1")
    spark.begin()
    made = Runner([A], spark=spark)
    made.start()
    wait_until(lambda: {one.state for one in FakeCoordinator.made} == {"running"}, what="the flow")
    engine: Any = made._engine
    assert engine is spark.get()
    wait_until(lambda: engine.running == [A.name], what="its query")
    ended: list[float] = []
    engine.stop = ended.append
    made.stop(0.5)
    spark.stop(0.5)
    assert len(ended) == 1


def test_a_spark_that_could_not_be_begun_is_said_by_the_start(
    refusal: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_more: object) -> None:
        raise EngineError("Spark could not be started: no memory")

    monkeypatch.setattr(runners, "_import_engine", lambda: fail)
    spark = EngineOnce(None, {}, "127.0.0.1")
    spark.begin()
    with pytest.raises(EngineError, match="no memory"):
        Runner([A], spark=spark).start()
    spark.stop(0.5)


def did(name: str) -> list[list[str]]:
    return [one.did for one in FakeCoordinator.made if one.flow.name == name]


def test_only_what_a_change_is_about_is_touched(runner: Runner) -> None:
    runner.generation = Generation(2)
    outcomes = runner.change([replace(A, on=Policies(gap="stop")), C])
    assert {one.flow: one.what for one in outcomes} == {"us->eu": "changed", "eu->us": "removed", "us->ap": "added"}
    assert did("us->eu") == [["opened", "changed"]]
    assert did("eu->us") == [["opened", "stopped", "closed"]]
    assert did("us->ap") == [["opened"]]
    assert runner.flows == ("us->eu", "us->ap")
    assert {one.generation for one in FakeCoordinator.made if one.flow.name != "eu->us"} == {2}
    assert runner.change([replace(A, on=Policies(gap="stop")), C]) == []


def test_where_a_cluster_changed_that_flow_alone_begins_anew(runner: Runner) -> None:
    elsewhere = replace(A, source=Cluster("us", {"bootstrap.servers": "other:1"}))
    assert [(one.flow, one.what) for one in runner.change([elsewhere, B])] == [("us->eu", "restarted")]
    assert did("us->eu") == [["opened", "stopped", "closed"], ["opened"]]
    assert did("eu->us") == [["opened"]]
    assert FakeCoordinator.made[-1].flow == elsewhere


@pytest.mark.parametrize("wrong", [Unreachable("no broker at ap:1"), Held("us->ap is run by others")])
def test_what_is_wrong_is_raised_before_anything_is_touched(
    runner: Runner, refusal: list[Exception], wrong: Exception
) -> None:
    refusal.append(wrong)
    with pytest.raises(type(wrong)):
        runner.change([replace(A, topics=("x",)), C])
    assert did("us->eu") == did("eu->us") == [["opened"]]
    assert runner.flows == ("us->eu", "eu->us")


def test_a_flow_that_is_not_ready_yet_is_tried_again(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.flow.charge.RESTART_FIRST_S", 0.01)
    FakeCoordinator.unready = {"us->ap"}
    (added,) = runner.change([A, B, C])
    assert "tried again: no broker at ap:1" in added.words
    wait_until(lambda: FakeCoordinator.made[-1].state == "restarting", what="its state")
    FakeCoordinator.unready = set()
    wait_until(lambda: FakeCoordinator.made[-1].state == "running", what="its start")


def test_a_flow_without_topics_has_no_query_until_there_is_one(runner: Runner) -> None:
    FakeCoordinator.idle = {C.name}
    runner.change([A, B, C])
    wait_until(lambda: FakeCoordinator.made[-1].state == "running", what="it to be shown as running")
    assert C.name not in runner._engine.running  # type: ignore[union-attr]
    FakeCoordinator.idle = set()
    wait_until(lambda: C.name in runner._engine.running, what="its query")  # type: ignore[union-attr]
    FakeCoordinator.idle = {C.name}
    runner.change([A, B])
    assert sorted(runner._engine.running) == sorted([A.name, B.name])  # type: ignore[union-attr]


def test_a_flow_without_topics_ends_as_others_do(runner: Runner) -> None:
    FakeCoordinator.idle = {C.name}
    runner.change([A, B, C])
    runner.change([A, B])
    idle = FakeCoordinator.made[-1]
    assert (idle.state, idle.did) == ("stopped", ["opened", "stopped", "closed"])


def test_the_more_flows_the_longer_their_epochs(refusal: list[Exception]) -> None:
    many = [flow(f"s{number}", "hub") for number in range(40)]
    for chosen, some, wanted in ((None, many[:2], 60), (None, many, 200), (7.0, many, 7)):
        FakeCoordinator.made.clear()
        Runner(some, epoch_seconds=chosen)
        assert {one.epoch_seconds for one in FakeCoordinator.made} == {wanted}


def test_a_flow_that_others_took_over_ends_and_with_the_last_one_the_process(runner: Runner) -> None:
    first, second = FakeCoordinator.made
    first.tenure.let_go("stopped", "taken over")
    wait_until(lambda: "closed" in first.did, what="its end")
    assert (first.state, second.did) == ("stopped", ["opened"])
    assert not runner.wait(0)
    second.tenure.let_go("stopped", "taken over")
    assert runner.wait(5)


def test_a_flow_that_cannot_be_ended_in_order_is_shown_as_failed(runner: Runner) -> None:
    """The thread that ended it was gone without a word, and the process waited for the flow for ever."""
    first, second = FakeCoordinator.made

    def fail() -> None:
        raise ZeroDivisionError("ours")

    first.close = second.close = fail  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as said:
        first.tenure.let_go("stopped", "taken over")
        wait_until(lambda: first.state == "failed", what="its end")
        second.tenure.let_go("stopped", "taken over")
        assert runner.wait(10)
    assert [one["flow"] for one in said if "could not be ended" in one["event"]] == [first.flow.name, second.flow.name]


def test_nobody_steers_or_changes_what_is_not_there(runner: Runner) -> None:
    with pytest.raises(FlowError, match="no flow 'us->mars' runs in this process: there is us->eu, eu->us"):
        runner.steer("us->mars", (None, None), "paused", "kim")
    runner.stop(0.2)
    with pytest.raises(FlowError, match="being stopped"):
        runner.change([A])


def test_slots_are_for_all_that_may_come(refusal: list[Exception]) -> None:
    """A node that was started for one connector inherits another's ten with ten tasks each, and more."""
    engine = EngineOnce(None, {}, "127.0.0.1").get()
    assert engine.slots >= 1000  # type: ignore[attr-defined]


def test_a_slot_that_nobody_uses_costs_no_thread() -> None:
    """Spark's dispatcher starts one for each slot of a local master, unless it is told how many."""
    from heliograph.spark.engine import LOCAL_SETTINGS

    assert int(LOCAL_SETTINGS["spark.rpc.netty.dispatcher.numThreads"]) <= 8


# ---------------------------------------------------------------- a start that waits


def test_a_flow_that_is_not_ready_since_a_broker_restarts_does_not_end_the_process(
    refusal: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.flow.charge.RESTART_FIRST_S", 0.01)
    FakeCoordinator.unready = {B.name}
    made = Runner([A, B], wait_s=60)
    made.start()
    first, second = FakeCoordinator.made
    wait_until(lambda: (first.state, second.state) == ("running", "restarting"), what="one to run, the other to wait")
    FakeCoordinator.unready = set()
    wait_until(lambda: second.state == "running", what="the other's start")
    made.stop(0.5)


@pytest.mark.parametrize("wait_s", [None, 0.0])
def test_told_not_to_wait_it_says_so_and_ends(refusal: list[Exception], wait_s: float | None) -> None:
    FakeCoordinator.unready = {B.name}
    with pytest.raises(Unreachable):
        Runner([A, B], wait_s=wait_s).start()


def test_what_the_start_waits_for_is_shown_as_what_its_flows_wait_for(
    refusal: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str]] = []

    def query(self: FakeCoordinator, state: str, reason: str = "", again_at: float | None = None) -> None:
        said.append((state, reason))

    def begin(flows: Sequence[Flow], patience: Any) -> frozenset[str]:
        assert patience.again("us: us:1 refused")
        raise Held("enough")

    monkeypatch.setattr(FakeCoordinator, "query", query)
    monkeypatch.setattr(runners, "check_begin", begin)
    with pytest.raises(Held):
        Runner([A], wait_s=60).start()
    assert said == [("starting", "waiting: us: us:1 refused")]


def test_a_spark_that_does_not_start_is_the_error(refusal: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an IndexError."""

    def engine(**_more: object) -> None:
        raise EngineError("no JVM")

    monkeypatch.setattr(runners, "_import_engine", lambda: engine)
    with pytest.raises(EngineError, match="no JVM"):
        Runner([A]).start()

"""Whose a flow is: refused with who runs it, taken over when told, not held up by the dead."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, replace

import msgspec
import pytest

from heliograph.batch import Record
from heliograph.errors import Held
from heliograph.flow import kernel
from heliograph.flow import presence as presences
from heliograph.flow import tenure as tenures
from heliograph.flow.changes import digest
from heliograph.flow.presence import Holder, Presence, _key, holder_of
from heliograph.flow.tenure import APPLY_S, Tenure, _settle
from heliograph.types import Cluster, Flow
from tests.kit import wait_until

FLOW = Flow(Cluster("us"), Cluster("eu"))
OTHER = replace(FLOW, topics=("orders",))
HERE = socket.gethostname()
DEAD = 2**22 + 1  # beyond any process id


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def holder(
    flow: Flow = OTHER, *, host: str = "elsewhere", pid: int = 7, age_ms: int = 0, where: kernel.Where | None = None
) -> Holder:
    """`where`: as this machine would say it of that process, unless told otherwise."""
    where = where or replace(kernel.here(), started=kernel.started(pid))
    told = digest(flow), "/etc/mm2.properties", where
    return Holder("them", host, pid, 1_700_000_000_000, now_ms() - age_ms, *told)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Processes that were told to let go; time goes quickly."""
    said: list[str] = []
    monkeypatch.setattr(tenures, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(presences, "LOOK_AGAIN_S", 0.0)
    for module in (presences, tenures):
        monkeypatch.setattr(module, "remove", lambda flow, target, gone: None)
    monkeypatch.setattr(tenures, "_tell", lambda flow, target, rivals: said.extend(one.process for one in rivals))
    return said


def seen(monkeypatch: pytest.MonkeyPatch, *looks: list[Holder]) -> Callable[[], int]:
    """What each look finds; the last one again and again."""
    left = list(looks)

    def holders(flow: Flow, target: object) -> list[Holder]:
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(tenures, "holders", holders)
    monkeypatch.setattr(presences, "holders", holders)
    return lambda: len(left)


def settle(*, take_over: bool = False) -> None:
    _settle(FLOW, None, take_over=take_over)  # type: ignore[arg-type]


def test_the_same_may_run_together(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    seen(monkeypatch, [holder(FLOW)])
    settle()
    assert not told


def test_another_is_refused_once_it_is_known_to_live(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    quiet = holder(age_ms=4_000)
    looks = seen(monkeypatch, [quiet], [quiet], [holder(age_ms=1)])
    with pytest.raises(Held) as caught:
        settle()
    assert looks() == 1
    said = str(caught.value)
    assert "process 7 on elsewhere, since 2023-11-14 22:13:20Z, by the file /etc/mm2.properties" in said
    assert "--take-over" in said


def test_one_on_this_machine_is_known_at_once(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    seen(monkeypatch, [holder(host=HERE, pid=os.getppid())])
    with pytest.raises(Held):
        settle()


def test_the_dead_are_in_nobodys_way(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    for dead in (holder(host=HERE, pid=DEAD), holder(host=HERE, pid=os.getpid())):
        seen(monkeypatch, [dead])
        settle()
    quiet = holder(age_ms=15_000)
    seen(monkeypatch, [quiet], [quiet], [])  # killed elsewhere: it runs out
    settle()


@pytest.mark.parametrize(
    "where",
    [
        kernel.Where(),  # an older process, which does not say
        replace(kernel.here(), namespace="pid:[1]"),  # a container on the host's network: its ids are others
        replace(kernel.here(), boot="another machine of the same name"),
        replace(kernel.here(), namespace=""),
    ],
)
@pytest.mark.parametrize("pid", [DEAD, os.getpid(), os.getppid()])
def test_whoever_counts_processes_otherwise_may_live(
    monkeypatch: pytest.MonkeyPatch, told: list[str], where: kernel.Where, pid: int
) -> None:
    them = holder(host=HERE, pid=pid, where=where)
    assert not them.is_dead
    assert not them.lives
    quiet = replace(them, at_ms=now_ms() - 5_000)
    looks = seen(monkeypatch, [quiet], [quiet], [them])
    with pytest.raises(Held):
        settle()
    assert looks() == 1  # only once it was heard again


def test_an_id_that_is_another_processs_by_now_is_of_a_dead_one() -> None:
    parent = holder(host=HERE, pid=os.getppid())
    assert parent.where.started > 0
    assert parent.lives
    assert replace(parent, where=replace(parent.where, started=parent.where.started - 1)).is_dead
    assert replace(parent, where=replace(parent.where, started=0)).lives  # not known


def test_one_that_ended_and_was_not_asked_about_yet_is_dead() -> None:
    child = subprocess.Popen(["true"])
    them = holder(host=HERE, pid=child.pid)
    wait_until(lambda: them.is_dead, what="its end to be seen")  # though nobody has waited for it
    assert child.wait() == 0
    assert them.is_dead


# ---- whoever changes positions by hand


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> Callable[[], None]:
    monkeypatch.setattr(presences, "mm2_state", lambda flow, target: "Dead")
    return lambda: presences.require_free(FLOW, None)  # type: ignore[arg-type]


def test_positions_are_changed_though_the_dead_have_said_they_run(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[], None]
) -> None:
    for quiet in (holder(FLOW, age_ms=4_000), holder(FLOW, host=HERE, pid=DEAD, age_ms=4_000)):
        looks = seen(monkeypatch, [quiet], [quiet], [])  # killed: its tasks may write until it is forgotten
        ask()
        assert looks() == 1
    monkeypatch.setattr(presences, "GONE_S", 0.1)
    seen(monkeypatch, [holder(FLOW, age_ms=-60_000)])  # by a clock that is ahead, and not heard again
    ask()


def test_positions_are_not_changed_under_the_living(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], None]) -> None:
    seen(monkeypatch, [holder(FLOW, host=HERE, pid=os.getppid())])
    with pytest.raises(Held, match=f"is being run by process {os.getppid()} on"):
        ask()
    for quiet in (holder(FLOW, age_ms=4_000), holder(FLOW, host=HERE, pid=os.getpid(), age_ms=4_000)):  # or ourselves
        seen(monkeypatch, [quiet], [quiet], [replace(quiet, at_ms=now_ms())])
        with pytest.raises(Held, match=f"is being run by process {quiet.pid} on"):
            ask()
    seen(monkeypatch, [quiet], [holder(FLOW), replace(quiet, process="begun meanwhile")])
    with pytest.raises(Held):
        ask()


def test_what_a_process_says_of_itself_is_read_back() -> None:
    about = {"host": "h", "pid": 7, "since": 1, "at": 2}
    where = kernel.here()
    assert where.boot
    assert where.namespace.startswith("pid:")
    for told, expected in ((asdict(where), where), (None, kernel.Where()), ("x", kernel.Where())):
        found = holder_of("p", msgspec.json.encode({**about, "where": told}))
        assert found is not None
        assert found.where == expected
    old = holder_of("p", msgspec.json.encode(about))
    assert old is not None
    assert old.where == kernel.Where()


def test_who_takes_over_waits_until_they_have_let_go(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    looks = seen(monkeypatch, [holder(FLOW), holder()], [holder(age_ms=-1)], [])
    settle(take_over=True)
    assert told == ["them", "them"]  # with the same settings too: it is to be its alone
    assert looks() == 1


def test_who_does_not_let_go_is_named(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    monkeypatch.setattr(tenures, "GONE_S", -10.0)
    seen(monkeypatch, [holder()])
    with pytest.raises(Held, match="was told to let go and has not"):
        settle(take_over=True)


# ---- in a process that runs


class Runs:
    def __init__(self, flow: Flow = FLOW) -> None:
        self.presence = Presence(flow, None)  # type: ignore[arg-type]
        self.now, self.beats = 1_000.0, 0
        self.tenure = Tenure(self.presence, clock=lambda: self.now)
        self.tenure.claim(supersede=True)
        self.ended: list[tuple[str, str]] = []
        self.tenure.let_go = lambda state, why: self.ended.append((state, why))

    def hear(self, key: bytes, value: object) -> None:
        self.tenure.hear(Record(0, 0, key, None if value is None else msgspec.json.encode(value), ()))

    def meet(self, flow: Flow, since_ms: int, *, process: str = "them", pid: int = 7, term: int = 1) -> None:
        """It beats twice: the first record may be history."""
        told = {"host": "elsewhere", "pid": pid, "since": since_ms, "at": 0, "digest": digest(flow), "file": "f"}
        for _ in range(2):
            self.beats += 1
            self.hear(_key(FLOW, process), {**told, "beats": self.beats, "term": term})
            self.tenure.judge()


def test_it_lets_go_when_told_and_only_once() -> None:
    runs = Runs()
    runs.hear(tenures._key(FLOW, "somebody else"), {"by": "process 9"})
    runs.hear(tenures._key(FLOW, runs.presence.process), None)
    runs.hear(tenures._key(FLOW, runs.presence.process), [])
    assert not runs.ended
    for _ in range(2):
        runs.hear(tenures._key(FLOW, runs.presence.process), {"by": "process 9 on h"})
    assert runs.ended == [("stopped", "taken over by process 9 on h")]


def test_of_two_that_started_together_the_later_lets_go() -> None:
    runs = Runs()
    runs.meet(OTHER, runs.presence.since_ms + 1)  # it will let go
    runs.meet(FLOW, runs.presence.since_ms - 5)  # does the same
    runs.hear(_key(FLOW, "them"), None)
    runs.tenure.judge()
    assert not runs.ended
    runs.meet(OTHER, runs.presence.since_ms - 5)
    assert runs.ended[0][0] == "failed"
    assert "with other settings by process 7 on elsewhere" in runs.ended[0][1]


def test_a_record_that_does_not_change_is_history() -> None:
    runs = Runs()
    told = {"host": "elsewhere", "pid": 7, "since": 0, "at": now_ms(), "digest": digest(OTHER), "file": "f", "term": 9}
    for _ in range(3):
        runs.hear(_key(FLOW, "them"), told)
        runs.tenure.judge()
        runs.now += 5
    assert not runs.ended


def test_a_process_has_time_to_apply_what_another_has_applied() -> None:
    runs = Runs()
    runs.meet(OTHER, runs.presence.since_ms + 5, term=2)
    runs.now += APPLY_S - 1
    runs.meet(OTHER, runs.presence.since_ms + 5, term=2)
    assert not runs.ended
    runs.presence.flow = OTHER  # applied here too
    runs.tenure.claim(supersede=True)
    assert runs.presence.term == 2
    runs.now += 2
    runs.meet(OTHER, runs.presence.since_ms + 5, term=2)
    assert not runs.ended


def test_two_configurations_do_not_run_for_good() -> None:
    runs = Runs()
    for _ in range(2):
        runs.meet(OTHER, runs.presence.since_ms + 5, term=2)
        runs.now += APPLY_S
    runs.meet(OTHER, runs.presence.since_ms + 5, term=2)
    assert [state for state, _ in runs.ended] == ["failed"]


def test_a_process_with_the_newer_configuration_stays() -> None:
    runs = Runs()
    runs.hear(_key(FLOW, "gone"), {"host": "h", "pid": 1, "since": 0, "at": 0, "digest": digest(OTHER), "term": 4})
    runs.tenure.claim(supersede=True)
    assert runs.presence.term == 5
    for _ in range(3):
        runs.meet(OTHER, 0, term=4)
        runs.now += APPLY_S
    assert not runs.ended


def test_a_process_that_slept_lets_go_of_a_flow_that_another_runs_otherwise() -> None:
    runs = Runs()
    runs.presence.term = 9
    runs.tenure.lapse()
    told = {"host": "elsewhere", "pid": 7, "since": 0, "at": 0, "digest": digest(OTHER), "file": "f", "term": 1}
    runs.hear(_key(FLOW, "them"), {**told, "beats": 1})
    runs.tenure.judge()
    assert runs.tenure.lapsed  # it may be the last record of a process that was killed
    assert not runs.ended
    runs.hear(_key(FLOW, "them"), {**told, "beats": 2})
    runs.tenure.judge()
    assert runs.ended
    assert "silent for too long" in runs.ended[0][1]


def test_a_process_that_slept_goes_on_when_no_other_beats() -> None:
    runs = Runs()
    runs.meet(OTHER, 0, term=1)
    runs = Runs()
    runs.hear(_key(FLOW, "them"), {"host": "h", "pid": 7, "since": 0, "at": 0, "digest": digest(OTHER), "term": 1})
    runs.tenure.judge()
    runs.tenure.lapse()
    runs.tenure.judge()
    assert runs.tenure.lapsed
    runs.now += presences.GONE_S
    runs.tenure.judge()
    assert not runs.tenure.lapsed
    assert not runs.ended


def test_a_process_whose_record_was_removed_knows_that_it_was_silent() -> None:
    runs = Runs()
    runs.hear(_key(FLOW, runs.presence.process), None)
    assert runs.tenure.removed

"""An edited file taken up by a running process, or not; SIGHUP; and requests that mean nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.typing import EventDict

from heliograph.cli.applying import Applying, on_hangup
from heliograph.cli.steered import split
from heliograph.config.load import load
from heliograph.errors import ConfigError, ControlError, FlowError, Unreachable
from heliograph.flow.helm import Steered
from heliograph.flow.runner import Outcome
from heliograph.flow.steering import Steering
from heliograph.health.status import FlowReport, FlowStatus, Generation, Order, ParkedPartition
from heliograph.types import Flow
from tests.kit import wait_until

BASE = "clusters=us,eu\nus.bootstrap.servers=a:1\neu.bootstrap.servers=b:1\nus->eu.enabled=true\n"


class FakeRunner:
    generation = Generation()

    def __init__(self) -> None:
        self.flows: tuple[str, ...] = ("us->eu",)
        self.wanted: list[Sequence[Flow]] = []
        self.outcomes: list[Outcome] = []
        self.fails: Exception | None = None
        self.steered: list[tuple[Any, ...]] = []

    def change(self, flows: Sequence[Flow]) -> list[Outcome]:
        if self.fails is not None:
            raise self.fails
        self.wanted.append(flows)
        return self.outcomes

    def steer(self, *what: Any) -> Steered:
        self.steered.append(what)
        return Steered((Order(*what[1], what[2], what[3], 0),), (), 4)

    def report(self) -> tuple[FlowReport, ...]:
        parked = (ParkedPartition("orders", None, "not allowed", ""),)
        return (FlowReport("us", "eu", FlowStatus("us->eu", "running", parked=parked)),)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(BASE)
    return path


def applying(file: Path, runner: FakeRunner) -> Applying:
    return Applying(file, load(file), runner, lenient=False, targets=())


def test_what_changed_is_said_and_counted(file: Path) -> None:
    runner = FakeRunner()
    one = applying(file, runner)
    first = runner.generation
    assert (first.count, first.file) == (1, str(file))
    assert one.apply("kim")["lines"] == []
    assert runner.generation.count == 1
    file.write_text(BASE + "us->eu.topics=orders\n")
    runner.outcomes = [Outcome("us->eu", "changed", "topics are looked at again now")]
    said = one.apply("kim")
    assert said["lines"] == ["us->eu: changed: topics are looked at again now", "  topics: .* -> orders"]
    assert said["generation"] == runner.generation.count == 2
    assert runner.generation.digest == said["digest"] != first.digest
    assert runner.wanted[-1][0].topics == ("orders",)


def test_a_bad_file_changes_nothing_and_is_remembered(file: Path) -> None:
    runner = FakeRunner()
    one = applying(file, runner)
    file.write_text(BASE + "us->mars.enabled=true\nus->eu.tasks.max=many\n")
    with pytest.raises(ConfigError, match="2 problems"):
        one.apply("kim")
    one.apply_quietly("SIGHUP")
    assert runner.wanted == []
    assert (runner.generation.count, runner.generation.refused) == (1, 2)
    assert "us->mars" in runner.generation.problem
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        one.apply("kim")
    file.write_text(BASE)
    one.apply("kim")
    assert (runner.generation.refused, runner.generation.problem) == (3, "")


def test_edited_keys_of_the_http_server_are_refused_with_what_to_restart(file: Path) -> None:
    """They were passed over without a word: who had written `ssl.client.auth = required` believed it."""
    file.write_text(BASE + "listeners.https.ssl.keystore.password=one\n")
    runner = FakeRunner()
    one = Applying(file, load(file), runner, lenient=False, targets=(), serves_https=True)
    edited = "listeners.https.ssl.keystore.password=two\nlisteners.https.ssl.client.auth=required\n"
    file.write_text(BASE + edited)
    with pytest.raises(ConfigError) as caught:
        one.apply("kim")
    assert "listeners.https.ssl.client.auth changed" in str(caught.value)
    assert "listeners.https.ssl.keystore.password changed" in str(caught.value)
    assert "two" not in str(caught.value)
    assert "restart this process" in caught.value.fix
    assert runner.wanted == []
    assert "listeners.https" in runner.generation.problem
    applying(file, runner).apply("kim")  # nothing is served by them: they are none of its business
    assert len(runner.wanted) == 1


def test_a_hangup_leaves_an_audit_line_whatever_comes_of_it(file: Path, logs: list[EventDict]) -> None:
    one = applying(file, FakeRunner())
    one.apply_quietly("SIGHUP")
    file.write_text("clusters=us\nnonsense\n")
    one.apply_quietly("SIGHUP")
    lines = [(line["who"], line["what"], line["outcome"]) for line in logs if line["event"] == "audit"]
    assert lines == [("SIGHUP", f"apply {file}", "done"), ("SIGHUP", f"apply {file}", "refused: CONFIG")]


def test_clusters_that_cannot_be_reached_are_a_refusal_too(file: Path) -> None:
    runner = FakeRunner()
    one = applying(file, runner)
    runner.fails = Unreachable("no broker at b:1")
    with pytest.raises(Unreachable):
        one.apply("kim")
    assert (runner.generation.count, runner.generation.refused) == (1, 1)


def test_hangups_ask_to_read_again_and_those_that_are_ignored_stay_so() -> None:
    asked, ended = threading.Event(), threading.Event()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with on_hangup(asked.set, ended.set):
            os.kill(os.getpid(), signal.SIGHUP)
            wait_until(asked.is_set, what="the file read again")
        assert not ended.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with on_hangup(asked.set, ended.set):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_gone_means_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ended = threading.Event(), threading.Event()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("heliograph.cli.applying._has_terminal", lambda: False)
    try:
        with on_hangup(asked.set, ended.set):
            os.kill(os.getpid(), signal.SIGHUP)
            wait_until(ended.is_set, what="the end")
        assert not asked.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


# ---- requests


def steering(runner: FakeRunner) -> Steering:
    return Steering(runner, lambda by: {"by": by})


def test_requests_are_carried_out() -> None:
    runner = FakeRunner()
    answer = steering(runner).answer({"do": "pause", "flow": "us->eu", "topic": None, "partition": None, "by": "kim"})
    assert runner.steered == [("us->eu", (None, None), "paused", "kim")]
    assert answer["orders"] == ["the whole flow: paused by kim since 1970-01-01 00:00:00Z"]
    assert steering(runner).answer({"do": "apply", "by": "kim"}) == {"by": "kim"}
    about = steering(runner).answer({"do": "about"})
    assert (about["pid"], about["flows"]) == (os.getpid(), ("us->eu",))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"do": "dance"}, "no word 'dance'"),
        ({"do": "pause", "by": "kim"}, "'flow' is missing"),
        ({"do": "pause", "flow": "us->eu"}, "'by' is missing"),
        ({"do": "pause", "flow": "us->eu", "by": "k" * 2000}, "'by' is missing"),
        ({"do": "pause", "flow": "us->eu", "by": "kim", "topic": 7}, "'topic' is no text"),
        ({"do": "pause", "flow": "us->eu", "by": "kim", "partition": 0}, "of a 'topic'"),
        ({"do": "pause", "flow": "us->eu", "by": "kim", "topic": "orders", "partition": -1}, "a number from 0"),
        ({"do": "pause", "flow": "us->eu", "by": "kim", "topic": "orders", "partition": True}, "a number from 0"),
        ({"do": "stop", "flow": "us->eu", "by": "kim", "topic": "ordres"}, "copies no topic 'ordres'"),
        ({"do": "stop", "flow": "us->eu", "by": "kim", "topic": "orders", "partition": 3}, "no partition 3"),
        ({"do": "apply"}, "'by' is missing"),
    ],
)
def test_requests_that_mean_nothing_are_refused(request_: dict[str, Any], words: str) -> None:
    runner = FakeRunner()
    with pytest.raises((ControlError, FlowError), match=words):
        steering(runner).answer(request_)
    assert not runner.steered


def test_what_is_gone_can_still_be_resumed() -> None:
    runner = FakeRunner()
    steering(runner).answer({"do": "resume", "flow": "us->eu", "by": "kim", "topic": "gone", "partition": 9})
    assert runner.steered == [("us->eu", ("gone", 9), "running", "kim")]


def test_places_as_arguments_name_them() -> None:
    assert split(None) == (None, None)
    assert split("orders") == ("orders", None)
    assert split("orders:12") == ("orders", 12)

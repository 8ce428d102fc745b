"""The command itself: help, verbs, one message and one exit code for every error."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from heliograph import __version__, errors
from heliograph.cli import main as main_module
from heliograph.cli.keys import page
from heliograph.cli.main import VERBS, exit_code_of, run
from heliograph.health.status import FlowStatus

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A verb `keys` that raises what the test puts into the list."""
    wanted: list[BaseException] = []

    @click.command("keys")
    def command() -> None:
        raise wanted[0]

    monkeypatch.setattr("heliograph.cli.keys.command", command)
    return wanted


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for verb in VERBS:
        assert verb in text
    assert "Exit codes" in text
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"heliograph {__version__}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert "Usage: heliograph" in capsys.readouterr().out


def test_help_imports_no_engine() -> None:
    code = (
        "import sys; from heliograph.cli.main import run; run(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took_s = time.monotonic() - begun
    for heavy in ("pyspark", "numpy", "numba", "confluent_kafka", "rich", "structlog", "kio"):
        assert f"'{heavy}'" not in done.stderr
    assert took_s < 3  # 0.1 s on an idle machine; the bound is for one that is not


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fly"], "no verb 'fly'"),
        (["run"], "FILE"),
        (["run", "absent.properties"], "absent.properties: cannot be read"),
        (["run", "a", "b"], "one FILE only"),
        (["run", "x", "-X", "nonsense"], "'nonsense' is not KEY=VALUE"),
        (["run", "x", "--epoch-seconds", "0"], "--epoch-seconds"),
        (["run", "x", "--http", "0.0.0.0:8083"], "--insecure"),
        (["run", "x", "--http", "metrics"], "not HOST:PORT"),
        (["run", "x", "--insecure"], "--http"),
        (["run", "x", "--compare"], "--until-current"),
        (["plan"], "FILE"),
        (["plan", "x", "--rate", "0"], "--rate"),
        (["plan", "absent.properties"], "absent.properties: cannot be read"),
        (["offsets", "set", "x", "us->eu"], "--to"),
        (["offsets", "set", "x", "us->eu", "--to", "someday"], "'someday' is no place to begin"),
        (["offsets", "move"], "move"),
        (["adopt", "absent.properties"], "absent.properties: cannot be read"),
        (["demo", "--partitions", "0"], "--partitions"),
        (["demo", "hub-spoke", "--spokes", "0"], "--spokes"),
        (["demo", "hub-spoke", "--spokes", "99"], "--spokes"),
        (["demo", "--seconds", "5", "hub-spoke"], "--seconds goes behind the name: heliograph demo hub-spoke"),
        (["demo", "star"], "star"),
        (["doctor", "--output", "xml"], "xml"),
    ],
)
def test_bad_arguments_are_code_2(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("bad"), 2),
        (errors.Unreachable("no broker at x:1", fix="Start it"), 75),
        (errors.TimedOut("no answer"), 75),
        (errors.ConnectionLost("gone"), 75),
        (errors.BrokerError(5, "LEADER_NOT_AVAILABLE", retriable=True), 75),
        (errors.LoginFailed("no"), 2),
        (errors.Untrusted("no"), 2),
        (errors.SameCluster("one"), 2),
        (errors.JavaMissing("none"), 2),
        (errors.BrokerError(29, "TOPIC_AUTHORIZATION_FAILED", topic="t"), 2),
        (errors.BrokerError(31, "CLUSTER_AUTHORIZATION_FAILED"), 2),
        (errors.BrokerError(7, "REQUEST_TIMED_OUT"), 1),
        (errors.EngineError("Spark ended"), 1),
        (errors.CorruptBatch("crc"), 1),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("oh"), 1),
    ],
)
def test_every_error_is_one_message_and_a_code(
    error: BaseException, code: int, failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(error)
    assert run(["keys"]) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    if isinstance(error, errors.HeliographError):
        assert said.startswith(f"error [{error.condition}] {error.message}")
        assert ("fix: " in said) is bool(error.fix)
        assert exit_code_of(error) == code


def test_debug_shows_the_traceback(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(errors.LoginFailed("no"))
    assert run(["--debug", "keys"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_bad_file_is_told_without_waiting_for_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = us, eu\nus.bootstrap.servers = a:1\nus->mars.enabled = true\n")
    assert run(["run", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"{file}:3: us->mars.enabled = true" in said
    assert f"{file}:1: eu.bootstrap.servers is missing" in said


class FakeRunner:
    made: list[FakeRunner] = []  # noqa: RUF012 - what the command made, for the test to look at

    def __init__(
        self, flows: object, *, master: object, spark_settings: object, epoch_seconds: object, **_more: object
    ) -> None:
        self.arguments = (flows, master, spark_settings, epoch_seconds)
        FakeRunner.made.append(self)
        self.state = "running"

    def start(self) -> None: ...

    def status(self) -> tuple[FlowStatus, ...]:
        return (FlowStatus("us->eu", self.state, records=5),)

    def stop(self, timeout_s: float = 4.0) -> None: ...

    def wait(self, timeout_s: float) -> bool:
        return True


def test_run_hands_over_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("heliograph.flow.runner.Runner", FakeRunner)
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = us, eu, ap\nenabled = true\nerrors.tolerance = all\n"
        "us.bootstrap.servers = a:1\neu.bootstrap.servers = b:1\nap.bootstrap.servers = c:1\n"
    )
    arguments = ["run", str(file), "--clusters", "eu", "ap", "--master", "spark://h:1", "-X", "spark.a=b=c"]
    assert run([*arguments, "--epoch-seconds", "9"]) == 0
    flows, master, settings, epoch_seconds = FakeRunner.made[-1].arguments
    assert {flow.name for flow in flows} == {"us->eu", "ap->eu", "us->ap", "eu->ap"}  # type: ignore[attr-defined]
    assert (master, settings, epoch_seconds) == ("spark://h:1", {"spark.a": "b=c"}, 9.0)
    said = capsys.readouterr()
    assert "without effect here: errors.tolerance (line 3)" in said.err
    assert json.loads(said.out.splitlines()[-1])["flows"][0]["records"] == 5


def test_a_flow_that_failed_is_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed(FakeRunner):
        def status(self) -> tuple[FlowStatus, ...]:
            return (FlowStatus("us->eu", "failed", reason="why"),)

    monkeypatch.setattr("heliograph.flow.runner.Runner", Failed)
    file = tmp_path / "mm2.properties"
    file.write_text("clusters=us,eu\nus.bootstrap.servers=a:1\neu.bootstrap.servers=b:1\nus->eu.enabled=true\n")
    assert run(["run", str(file)]) == 1


def test_the_configuration_page_is_the_table() -> None:
    """After a change of the table: heliograph keys --markdown > docs/configuration.md"""
    assert (ROOT / "docs" / "configuration.md").read_text() == page()


@pytest.mark.parametrize("ring", ["broker", "journey"])
def test_the_testing_page_names_every_test_that_needs_brokers(ring: str) -> None:
    page = (ROOT / "TESTING.md").read_text()
    unsaid = [path.name for path in (ROOT / "tests" / ring).glob("test_*.py") if f"`{ring}/{path.name}`" not in page]
    assert not unsaid, f"say in TESTING.md what these prove: {unsaid}"


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    main_module.say("X", "message")
    assert "\x1b" not in capsys.readouterr().err


def test_a_file_that_enables_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mm2.properties"
    clusters = "clusters = us, eu\nus.bootstrap.servers = a:1\neu.bootstrap.servers = b:1\n"
    file.write_text(clusters + "emit.heartbeats.enabled = false\n")  # else it would emit them, as MM2 does
    assert run(["run", str(file)]) == 2
    assert "us->eu.enabled = true" in capsys.readouterr().err

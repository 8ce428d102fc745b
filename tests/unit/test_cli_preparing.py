"""What is begun beside a demo's clusters, on a Spark and a compiler that are none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from heliograph.cli import preparing
from heliograph.cli.watch import Stop
from heliograph.flow import runner, warm


class Fake:
    """Spark, compiler and recorder in one."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.looks = 0
        self.trouble = ""

    def begin(self) -> None:
        self.did.append("begun")

    def stop(self, timeout_s: float) -> None:
        self.did.append("stopped")

    def start(self) -> None:
        self.did.append("recording")

    def ensure(self) -> bool:
        self.looks += 1
        return self.looks > 4

    def close(self) -> None:
        self.did.append("closed")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(runner, "EngineOnce", lambda *_args: made)
    monkeypatch.setattr(warm, "compiler", lambda: made)
    monkeypatch.setattr(warm, "Recorder", lambda: made)
    monkeypatch.setattr(preparing, "find_java", lambda: SimpleNamespace(release="17.0.1"))
    monkeypatch.setattr(preparing, "LOOK_S", 0.001)
    return made


def test_everything_is_begun_and_ended(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    with preparing.prepared() as made:
        assert made.spark is fake
        made.await_kernels(Stop())
    assert fake.did == ["begun", "recording", "closed", "closed", "stopped"]
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("✓ Java 17.0.1 (")
    assert said[1].startswith("✓ kernels, compiled once on this machine (")


@pytest.mark.parametrize("why", ["trouble", "stop"])
def test_kernels_that_never_come_are_not_waited_for(why: str, fake: Fake) -> None:
    fake.looks, stop = -(10**6), Stop()
    with preparing.prepared() as made:
        if why == "stop":
            stop.ask()
        else:
            fake.trouble = "no space left"
        made.await_kernels(stop)


def test_a_spark_that_cannot_be_begun_is_left_to_the_start(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    monkeypatch.setattr("threading.excepthook", lambda _args: None)

    def fail(*_args: object) -> None:
        raise ImportError("no pyspark")

    monkeypatch.setattr(runner, "EngineOnce", fail)
    with preparing.prepared() as made:
        assert made.spark is None
        made.await_kernels(Stop())
    assert fake.did == []

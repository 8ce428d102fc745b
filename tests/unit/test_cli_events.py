"""`heliograph events`: options in, events in the log, one summary out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.batch import decode_all
from heliograph.cli.main import run
from heliograph.errors import BrokerError
from heliograph.types import TopicPartition
from tests.unit.logs import Logs


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = Logs({"orders": 3})
    monkeypatch.setattr("heliograph.wire.Client", lambda cluster, **_how: made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = us, eu\nus.bootstrap.servers = a:1\neu.bootstrap.servers = b:1\nus->eu.enabled = true\n"
    )
    return str(path)


def held(logs: Logs, topic: str) -> int:
    return sum(log.end for tp, log in logs.logs.items() if tp.topic == topic)


def test_a_hundred_unless_told_otherwise(logs: Logs, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["events", "orders", file, "--cluster", "us"]) == 0
    assert held(logs, "orders") == 100
    said = capsys.readouterr().out
    assert said.startswith("100 events, 0.0 MB to orders on us in ")


def test_the_summary_as_json(logs: Logs, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--count", "30", "--partition", "1", "--size", "50", "--keys", "0", "--codec", "zstd", "-o", "json"]
    assert run(["events", "orders", file, "--cluster", "us", *options]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["cluster"], said["topic"], said["events"], said["bytes"]) == ("us", "orders", 30, 1500)
    assert said["offsets"] == {"1": [0, 30]}


def test_the_topic_is_made_where_that_is_said(logs: Logs, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["events", "news", file, "--cluster", "us", "--count", "10"]
    assert run(arguments) == 2
    assert "us has no topic 'news'" in (said := capsys.readouterr().err)
    assert "--create makes it" in said
    assert "news" not in logs.ids
    assert run([*arguments, "--create", "--partitions", "4"]) == 0
    assert "news made on us, partitions: 4" in capsys.readouterr().err
    assert held(logs, "news") == 10
    assert run([*arguments, "--create", "--partitions", "4"]) == 0
    assert held(logs, "news") == 20
    assert run([*arguments, "--create", "--partitions", "5"]) == 2
    assert "news is on us with 4 partitions, not 5" in capsys.readouterr().err


def test_headers_and_times(logs: Logs, file: str) -> None:
    options = ["--header", "trace=a=b", "--header", "empty=", "--headers", "1", "--times-from", "2026-11-01T00:00:00Z"]
    assert (
        run(
            ["events", "orders", file, "--cluster", "us", *options, "--rate", "0.5", "--count", "3", "--partition", "0"]
        )
        == 0
    )
    records = [one for one, _ in decode_all(b"".join(logs.logs[TopicPartition("orders", 0)].batches)) if one]
    assert [one.timestamp for one in records] == [1_793_491_200_000 + n * 2000 for n in range(3)]
    assert [name for name, _ in records[0].headers] == ["trace", "empty", "header-0"]
    assert records[0].headers[0][1] == b"a=b"


@pytest.mark.parametrize(("count", "code"), [("0", 0), ("100000", 130)])
def test_ctrl_c_says_what_was_sent(
    count: str, code: int, logs: Logs, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    real = logs.produce
    calls = [0]

    def produce(*arguments, **more):  # type: ignore[no-untyped-def]
        calls[0] += 1
        if calls[0] > 3:
            raise KeyboardInterrupt
        return real(*arguments, **more)

    logs.produce = produce  # type: ignore[method-assign]
    assert run(["events", "orders", file, "--cluster", "us", "--count", count, "-o", "json"]) == code
    assert json.loads(capsys.readouterr().out)["events"] == held(logs, "orders") > 0


def test_a_refusal_says_what_was_sent_and_why_not_the_rest(
    logs: Logs, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.troubles.append(
        BrokerError(87, "INVALID_RECORD", "no key", fix="A compacted topic needs keys", topic="orders")
    )
    assert run(["events", "orders", file, "--cluster", "us", "--keys", "0"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("0 events")
    assert "INVALID_RECORD (topic orders): no key" in said.err
    assert "fix: A compacted topic needs keys" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["orders", "FILE"], "say which cluster"),
        (["orders", "FILE", "--cluster", "us", "--size", "9-3"], "'9-3' is no size"),
        (["orders", "FILE", "--cluster", "us", "--size", "x"], "'x' is no size"),
        (["orders", "FILE", "--cluster", "us", "--size", "999999999"], "is no size"),
        (["orders", "FILE", "--cluster", "us", "--rate", "0"], "--rate"),
        (["orders", "FILE", "--cluster", "us", "--header", "trace"], "'trace' is not NAME=TEXT"),
        (["orders", "FILE", "--cluster", "us", "--partitions", "3"], "are about --create"),
        (["orders", "FILE", "--cluster", "us", "--partition", "3"], "it has partitions 0 to 2"),
        (["orders", "FILE", "--cluster", "us", "--times-from", "end"], "'end' is no time"),
        (["orders", "FILE", "--cluster", "us", "--codec", "rar"], "rar"),
        (["mm2-offsets.us.internal", "FILE", "--cluster", "us"], "mm2-offsets.us.internal holds position records"),
        (["us.checkpoints.internal", "FILE", "--cluster", "us", "--create"], "would be strangers there"),
        (["__consumer_offsets", "FILE", "--cluster", "us"], "records of Kafka's own"),
    ],
)
def test_bad_input_is_code_2_and_nothing_is_written(
    arguments: list[str], words: str, logs: Logs, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(logs.ids)
    assert run(["events", *(file if one == "FILE" else one for one in arguments)]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""
    assert logs.ids == before
    assert not logs.produced

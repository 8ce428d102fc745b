"""Secrets of `-X` and `--property`: from files and the environment, warned about in a command line (fault E8)."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from heliograph.cli.main import run
from heliograph.cli.pairs import pairs_of
from heliograph.errors import ConfigError


def test_secrets_come_from_files_and_the_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    given = [
        f"spark.authenticate.secret=file:{tmp_path}/secret",
        "sasl.password=env:PW",
        f"sasl.jaas.config=file://{tmp_path}/secret",
        "spark.executor.memory = env:MEMORY",
        "spark.jars=file:/opt/a.jar",  # no secret: an address
        "sasl.oauthbearer.token.endpoint.url=file:/run/token",
        "ssl.keystore.password=${file:/etc/pw:a}",
    ]
    found = pairs_of(given, "-X", environment={"PW": "hunter3", "MEMORY": "2g"})
    assert list(found.values()) == [
        *("hunter2", "hunter3", "hunter2", "2g", "file:/opt/a.jar", "file:/run/token", "${file:/etc/pw:a}")
    ]
    assert capsys.readouterr().err == ""


def test_a_secret_in_the_command_line_is_warned_about_without_showing_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert pairs_of(["spark.authenticate.secret=hunter2"], "-X") == {"spark.authenticate.secret": "hunter2"}
    said = capsys.readouterr().err
    assert "spark.authenticate.secret=file:PATH" in said
    assert "every user" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("given", ["sasl.password=file:/no/such", "sasl.password=file:/", "sasl.password=env:NOT_SET"])
def test_what_cannot_be_read_names_the_key_and_the_place(given: str) -> None:
    with pytest.raises(ConfigError, match=r"--property sasl\.password: .*(/no/such|/|NOT_SET)"):
        pairs_of([given], "--property", environment={})


@pytest.mark.parametrize("content", ["", "\n", " \r\n"])
def test_an_empty_file_is_no_secret(content: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(content)
    with pytest.raises(ConfigError, match=r"--property sasl\.password: .*/secret cannot be read: it is empty"):
        pairs_of([f"sasl.password=file:{tmp_path}/secret"], "--property")


def test_what_is_no_pair_is_not_repeated() -> None:
    for bad in ("hunter2", "=hunter2", " = hunter2"):
        with pytest.raises(click.BadParameter) as caught:
            pairs_of([bad], "-X")
        assert "KEY=VALUE" in str(caught.value)
    with pytest.raises(click.BadParameter) as caught:
        pairs_of(["=hunter2"], "-X")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("verb", [["run"], ["connect"], ["spoke", "add"]])
def test_help_says_why(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*verb, "--help"]) == 0
    assert "every user can read command lines" in " ".join(capsys.readouterr().out.split())

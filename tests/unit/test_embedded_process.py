"""Processes, folders and ports that end with us."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from heliograph.embedded.kafka import Kafka
from heliograph.embedded.ports import RANGE, claim_port, is_free
from heliograph.embedded.process import Folder, Process
from heliograph.errors import EmbeddedError
from tests.kit import wait_until

STARTER = """
import sys, threading
from heliograph.embedded.process import Folder, Process
folder = Folder("heliograph-unit-")
children = [Process("sleeper", ["sleep", "600"], log_path=folder.path / f"{n}.log") for n in range(2)]
children[0].kill()
print(children[1].pid, folder.path, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_the_watchdog_ends_processes_and_deletes_folders(end: str) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", STARTER], **pipes) as starter:
        assert starter.stdout is not None
        assert starter.stdin is not None
        pid, folder = starter.stdout.readline().split()
        assert psutil.pid_exists(int(pid))
        if end == "kill":
            starter.kill()
        else:
            starter.stdin.write(b"\n")
            starter.stdin.close()
        starter.wait(30)
    wait_until(lambda: not psutil.pid_exists(int(pid)), what="the child's end")
    wait_until(lambda: not Path(os.fsdecode(folder)).exists(), what="the folder's end")


def test_a_process_keeps_its_output_and_its_arguments(tmp_path: Path) -> None:
    words = ["printf", "%s|", "two words", "it's", "$HOME", ""]
    process = Process("printer", words, log_path=tmp_path / "log")
    wait_until(lambda: not process.running)
    assert (tmp_path / "log").read_text() == "two words|it's|$HOME||"


def test_stop_is_gentle_first_and_kills_at_last(tmp_path: Path) -> None:
    gentle = Process("gentle", ["sleep", "600"], log_path=tmp_path / "gentle")
    assert gentle.stop(10)
    stubborn = Process("stubborn", ["sh", "-c", "trap '' TERM; echo set; sleep 600"], log_path=tmp_path / "stubborn")
    wait_until(lambda: "set" in stubborn.last_lines())
    assert not stubborn.stop(0.2)
    assert not stubborn.running


def test_a_paused_process_can_be_stopped(tmp_path: Path) -> None:
    process = Process("paused", ["sleep", "600"], log_path=tmp_path / "log")
    for _ in range(2):
        process.pause()
        assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
        process.signal(signal.SIGCONT)
    process.pause()
    assert process.stop(10)


def test_pausing_what_has_ended_returns(tmp_path: Path) -> None:
    process = Process("gone", ["true"], log_path=tmp_path / "log")
    process.pause()
    process.kill()
    assert not process.running


def test_a_process_that_ended_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    process = Process("failing", ["sh", "-c", "echo the reason; exit 3"], log_path=tmp_path / "log")
    wait_until(lambda: not process.running)
    with pytest.raises(EmbeddedError, match=r"(?s)failing ended with exit code 3.*the reason"):
        process.require_running()


def test_a_folder_is_private_and_can_be_deleted() -> None:
    folder = Folder("heliograph-unit-")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "file").write_text("x")
    folder.delete()
    assert not folder.path.exists()


def test_claimed_ports_differ_and_are_free() -> None:
    claims = [claim_port() for _ in range(50)]
    numbers = {claim.number for claim in claims}
    assert len(numbers) == 50
    assert all(number in RANGE and is_free(number) for number in numbers)
    for claim in claims:
        claim.release()


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(EmbeddedError, match="in use"):
        claim_port(server.getsockname()[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="claims are abstract sockets, which Linux has")
def test_a_claimed_port_is_not_given_twice() -> None:
    claim = claim_port()
    with pytest.raises(EmbeddedError, match="in use"):
        claim_port(claim.number)
    claim.release()
    claim_port(claim.number).release()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"brokers": 4}, "1 to 3"),
        ({"security": ("TLS",)}, "TLS"),
        ({"security": ()}, "protocol"),
        ({"name": "a/b"}, "no name"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(EmbeddedError, match=reason):
        Kafka(**arguments)  # type: ignore[arg-type]

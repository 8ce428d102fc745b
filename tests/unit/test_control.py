"""The control socket: found by file, safe from others, never held up by what is said to it."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from structlog.typing import EventDict

from heliograph.control import server as serving
from heliograph.control.client import processes, speak
from heliograph.control.places import connect, digest_of, folder, place_of, places, secured
from heliograph.control.server import LINE_BYTES, Server
from heliograph.errors import ControlError, FlowError

FILE = Path("mm2.properties")


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own: a socket's path must be short, which pytest's folders are not."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hc", dir="/tmp") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)


class Ear:
    def __init__(self) -> None:
        self.heard: list[Mapping[str, Any]] = []

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.heard.append(request)
        if request["do"] == "about":
            return {"file": str(FILE.absolute()), "flows": ["us->eu"]}
        if request["do"] == "fail":
            raise FlowError("no such flow", fix="name another")
        if request["do"] == "break":
            raise ZeroDivisionError
        return {"done": request["do"]}


@pytest.fixture
def ear() -> Iterator[Ear]:
    heard = Ear()
    server = Server(FILE, heard.answer)
    server.start()
    yield heard
    server.close()
    assert not place_of(FILE, os.getpid()).path.exists()


def raw(data: bytes, *, end: bool = True) -> Any:
    """What is answered to these bytes."""
    with connect(place_of(FILE, os.getpid())) as connection:
        connection.sendall(data)
        if end:
            connection.shutdown(socket.SHUT_WR)
        connection.settimeout(10)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    return msgspec.json.decode(answer)


def test_a_request_is_answered_and_errors_keep_their_name(ear: Ear) -> None:
    (place,) = places(FILE)
    assert speak(place, {"do": "pause", "flow": "us->eu"}, 5) == {"done": "pause"}
    assert ear.heard[-1] == {"do": "pause", "flow": "us->eu"}
    with pytest.raises(ControlError, match="no such flow") as caught:
        speak(place, {"do": "fail"}, 5)
    assert (caught.value.condition, caught.value.fix) == ("FLOW", "name another")


def test_changes_are_logged_with_who_made_them_by_the_kernels_word(logs: list[EventDict]) -> None:
    """E10. `by` is what the other side says of itself; the log has what the kernel says."""
    server = Server(FILE, Ear().answer, audited=("pause", "fail", "break"))
    server.start()
    try:
        (place,) = places(FILE)
        speak(place, {"do": "pause", "flow": "us->eu", "topic": "orders", "partition": 3, "by": "mallory"}, 5)
        speak(place, {"do": "about"}, 5)
        for word in ("fail", "break"):
            with pytest.raises(ControlError):
                speak(place, {"do": word, "flow": "us->eu"}, 5)
    finally:
        server.close()
    lines = [line for line in logs if line["event"] == "audit"]
    assert [(line["what"], line["outcome"]) for line in lines] == [
        ("pause us->eu orders:3", "done"),
        ("fail us->eu", "refused: FLOW"),
        ("break us->eu", "failed"),
    ]
    name = pwd.getpwuid(os.getuid()).pw_name
    assert {line["who"] for line in lines} == {f"{name} (uid {os.getuid()}, pid {os.getpid()})"}
    assert {line["where"] for line in lines} == {"control socket"}


def test_a_mistake_of_ours_is_said_and_the_next_one_is_served(ear: Ear) -> None:
    (place,) = places()
    with pytest.raises(ControlError, match="ZeroDivisionError"):
        speak(place, {"do": "break"}, 5)
    assert speak(place, {"do": "resume"}, 5) == {"done": "resume"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"nonsense\n", "none: b'nonsense'"),
        (b"\xff\xfe\n", "a line of JSON"),
        (b"[" * 50_000 + b"\n", "a line of JSON"),
        (b"[]\n", "an object"),
        (b'{"say": 1}\n', "an object"),
        (b'{"do": 7}\n', "an object"),
        (b'{"do": "about"', "ended before its end"),
        (b"", "nothing was said"),
        (b"x" * (LINE_BYTES + (1 << 17)), "at most"),
    ],
)
def test_garbage_is_answered_with_what_is_wrong(ear: Ear, data: bytes, words: str) -> None:
    try:
        answer = raw(data)
    except ConnectionError:  # it was too much, and the answer was lost behind it
        assert len(data) > LINE_BYTES
    else:
        assert words in answer["error"]["message"]
    assert not ear.heard
    assert raw(b'{"do": "x"}\n') == {"done": "x"}


def test_a_machine_without_threads_does_not_end_the_acceptor(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """E7: acceptors died of it, and the process was deaf from then on."""

    def no_thread(*_arguments: Any, **_more: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(serving.threading, "Thread", no_thread)
        with connect(place_of(FILE, os.getpid())) as connection:
            connection.settimeout(10)
            assert connection.recv(1) == b""
    assert raw(b'{"do": "x"}\n') == {"done": "x"}


def test_half_a_line_holds_nobody(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_S", 0.2)
    assert "not whole within 0.2 s" in raw(b'{"do": ', end=False)["error"]["message"]


def test_another_user_is_refused_without_a_seat_or_a_thread(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(serving, "_peer", lambda _connection: serving.Peer(uid=os.getuid() + 1))
        threads = threading.active_count()
        strangers: list[socket.socket] = []
        for _ in range(3 * serving.SEATS):
            strangers.append(connect(place_of(FILE, os.getpid())))
            assert b"another user may not steer" in strangers[-1].recv(4096)
        assert threading.active_count() <= threads  # one of another test may end meanwhile
    assert raw(b'{"do": "x"}\n') == {"done": "x"}
    for one in strangers:
        one.close()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyError("ours"), OSError("EMFILE")])
def test_the_thread_that_accepts_outlives_whatever_goes_wrong(
    ear: Ear, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A thread that could not be started ended it, without a word: the process was deaf from then on."""

    def fail(*_args: object, **_how: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(serving, "threading", SimpleNamespace(Thread=fail))
        for _ in range(2):
            with connect(place_of(FILE, os.getpid())) as connection:
                connection.settimeout(10)
                assert connection.recv(10) == b""
    assert raw(b'{"do": "x"}\n') == {"done": "x"}


def test_nothing_is_answered_after_close() -> None:
    heard = Ear()
    server = Server(FILE, heard.answer)
    server.start()
    with connect(place_of(FILE, os.getpid())) as connection:
        connection.settimeout(10)
        connection.sendall(b'{"do": ')
        server.close()
        answer = b""
        with contextlib.suppress(ConnectionError):  # ended at once, if it had not been accepted yet
            connection.sendall(b'"x"}\n')
            answer = connection.recv(10)
        assert answer == b""


def test_found_by_its_file_however_that_is_named(ear: Ear, tmp_path: Path) -> None:
    link = tmp_path / "link.properties"
    link.symlink_to(FILE.absolute())
    assert [one.place.pid for one in processes(link)] == [os.getpid()]
    assert processes(tmp_path / "other.properties") == []
    assert processes()[0].flows == ("us->eu",)


def test_a_socket_left_behind_is_no_process_and_goes_away() -> None:
    secured()
    left = place_of(FILE, 4_000_000).path
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    assert left.exists()
    assert places() == []
    assert not left.exists()
    (folder() / "nonsense.sock").touch()
    (folder() / "notes.txt").touch()
    assert places() == []


def test_what_had_our_process_id_before_is_in_nobodys_way(ear: Ear) -> None:
    again = Server(FILE, ear.answer)
    again.start()
    assert speak(places(FILE)[0], {"do": "x"}, 5) == {"done": "x"}
    again.close()


def test_the_socket_is_its_users_alone(ear: Ear) -> None:
    (place,) = places()
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder().stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
def test_a_folder_that_others_may_enter_is_refused(mode: int) -> None:
    folder().mkdir()
    folder().chmod(mode)
    for refused in (secured, places, Server(FILE, lambda request: {}).start):
        with pytest.raises(ControlError, match=f"mode {mode:o}") as caught:
            refused()
        assert "chmod 700" in caught.value.fix


def test_a_link_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    folder().symlink_to(tmp_path)
    with pytest.raises(ControlError, match="not yours alone"):
        secured()


def test_a_long_runtime_folder_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert str(folder()) == f"/tmp/heliograph-{os.getuid()}"
    assert len(str(place_of(FILE, 4_194_304).path)) < 107


def test_the_digest_is_of_the_path() -> None:
    assert digest_of(Path("a.properties")) == digest_of(Path("a.properties").absolute())
    assert digest_of(Path("a.properties")) != digest_of(Path("b.properties"))

"""The cache of Kafka's jars, against a small Maven repository on loopback."""

from __future__ import annotations

import hashlib
import http.server
import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph import cache
from heliograph.embedded import jars
from heliograph.embedded.jars import MIRROR_VARIABLE, Jar, fetch_jars, read_lock
from heliograph.errors import EmbeddedError

CONTENT = {"one": b"first jar " * 1000, "two": b"second jar " * 1000}
JARS = [Jar(f"org.example:{name}:1.0", hashlib.sha256(data).hexdigest(), len(data)) for name, data in CONTENT.items()]


class Repository(http.server.ThreadingHTTPServer):
    """Serves CONTENT in Maven's layout and remembers what was asked; `spoil` says how many answers come out wrong."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[str] = []
        self.spoil = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/maven"


class Answer(http.server.BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        data = {f"/maven/org/example/{name}/1.0/{name}-1.0.jar": data for name, data in CONTENT.items()}.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.server.asked.append(self.path)
        if self.server.spoil:
            self.server.spoil -= 1
            data = b"X" + data[1:]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    with Repository() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv(MIRROR_VARIABLE, server.address)
        yield server
        server.shutdown()
        thread.join()


def fetch(folder: Path) -> list[Path]:
    return fetch_jars(folder=folder, jars=JARS, quiet=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name.split("-")[0]: path.read_bytes() for path in folder.glob("*.jar")}


def test_jars_are_fetched_once(repository: Repository, tmp_path: Path) -> None:
    assert [path.read_bytes() for path in fetch(tmp_path)] == list(CONTENT.values())
    assert len(repository.asked) == 2
    fetch(tmp_path)
    assert len(repository.asked) == 2
    assert not list(tmp_path.glob(".fetching-*"))


def test_a_second_start_does_not_even_hash(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(tmp_path)
    monkeypatch.setattr(jars, "sha256_of", lambda path: pytest.fail(f"{path} was hashed"))
    fetch(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"first", b"X" + CONTENT["one"][1:]], ids=["empty", "truncated", "same size"])
def test_a_damaged_jar_is_noticed_and_fetched_again(repository: Repository, tmp_path: Path, damage: bytes) -> None:
    first = fetch(tmp_path)[0]
    first.write_bytes(damage)
    fetch(tmp_path)
    assert contents(tmp_path) == CONTENT
    assert len(repository.asked) == 3


def test_a_missing_jar_alone_is_fetched(repository: Repository, tmp_path: Path) -> None:
    fetch(tmp_path)[1].unlink()
    fetch(tmp_path)
    assert [path.rpartition("/")[2] for path in repository.asked[2:]] == ["two-1.0.jar"]


def test_wrong_bytes_are_tried_again(repository: Repository, tmp_path: Path) -> None:
    repository.spoil = 2
    fetch(tmp_path)
    assert contents(tmp_path) == CONTENT


def test_bytes_that_stay_wrong_never_get_their_name(repository: Repository, tmp_path: Path) -> None:
    repository.spoil = 1000
    with pytest.raises(EmbeddedError, match="sha256"):
        fetch(tmp_path)
    assert contents(tmp_path) == {}
    repository.spoil = 0
    fetch(tmp_path)
    assert contents(tmp_path) == CONTENT


def test_a_broken_record_costs_only_hashing(repository: Repository, tmp_path: Path) -> None:
    fetch(tmp_path)
    (tmp_path / "verified.json").write_text("{not json")
    fetch(tmp_path)
    assert len(repository.asked) == 2


def test_offline_names_the_jar_and_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MIRROR_VARIABLE, "http://127.0.0.1:1/maven")
    with pytest.raises(EmbeddedError) as caught:
        fetch(tmp_path)
    assert "org.example:" in str(caught.value)
    assert MIRROR_VARIABLE in caught.value.fix


def test_several_processes_fetch_each_jar_once(repository: Repository, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=fetch, args=(tmp_path,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert sorted(repository.asked) == sorted({*repository.asked})
    assert contents(tmp_path) == CONTENT


def test_the_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "heliograph"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "heliograph"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedError, match="XDG_CACHE_HOME"):
        fetch(tmp_path / "file" / "below")


def test_the_lock_file_names_every_part_once() -> None:
    locked = read_lock()
    names = [jar.filename for jar in locked]
    assert len(names) == len(set(names))
    assert all(len(jar.sha256) == 64 and jar.size_bytes > 0 for jar in locked)
    for part in ("kafka_2.13", "connect-mirror", "connect-runtime", "kafka-tools"):
        assert f"{part}-{jars.RELEASE}.jar" in names
    assert any(name.startswith("log4j-slf4j-impl-") for name in names)

"""Kernels that are not there yet: who goes without them, who waits, and what is said when they cannot be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from heliograph.batch import Chunk, Limits, Record, cache, decode, encode, loading
from heliograph.errors import KernelsMissing
from tests.kit import wait_until


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> loading._Kernels:
    """As in a process that has just begun."""
    made = loading._Kernels()
    monkeypatch.setattr(loading, "_kernels", made)
    return made


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache: nothing is compiled."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_loading_that_fails_is_said_and_tried_again(monkeypatch: pytest.MonkeyPatch, kernels: loading._Kernels) -> None:
    ended: list[BaseException | None] = []
    monkeypatch.setattr(cache, "compiled", lambda: True)
    monkeypatch.setattr(threading, "excepthook", lambda args: ended.append(args.exc_value))
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise OSError("No space left on device")

    monkeypatch.setattr(kernels, "load", fail)
    assert not loading.ready()
    wait_until(lambda: len(ended) == 1, what="the failure")
    assert isinstance(ended[0], OSError)
    assert not loading.ready()  # not at once
    assert len(tries) == 1
    kernels.again_at = 0.0
    monkeypatch.setattr(kernels, "load", lambda: setattr(kernels, "there", True))
    loading.ready()
    wait_until(loading.ready, what="the kernels")


def test_a_process_without_threads_goes_on_without_the_kernels(
    monkeypatch: pytest.MonkeyPatch, kernels: loading._Kernels
) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(cache, "compiled", lambda: True)
    monkeypatch.setattr(threading.Thread, "start", fail)
    assert not loading.ready()
    assert not kernels.begun


def test_kernels_that_were_never_compiled_are_loaded_once_they_are(
    monkeypatch: pytest.MonkeyPatch, kernels: loading._Kernels, elsewhere: Path
) -> None:
    monkeypatch.setattr(kernels, "load", lambda: setattr(kernels, "there", True))
    assert not loading.ready()
    assert not kernels.begun
    cache.mark_compiled()
    assert not loading.ready()  # looked a moment ago
    kernels.again_at = 0.0
    wait_until(loading.ready, what="the kernels")


def test_the_mark_is_of_these_sources_this_python_and_this_machine(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    cache.mark_compiled()
    assert cache.compiled()
    for name, other in (("_processor", lambda: "another CPU"), ("_release", lambda package: "9.9")):
        with monkeypatch.context() as changed:
            changed.setattr(cache, name, other)
            cache._name.cache_clear()
            assert not cache.compiled(), name
    cache._name.cache_clear()
    assert cache.compiled()
    assert all(cache._release(package).startswith(f"{package}-") for package in cache.COMPILERS)


def test_where_no_folder_is_writable_a_private_one_is_used_by_this_process_and_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache, "_writable", lambda folder: False)
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    assert not cache.compiled()
    with cache.compiling() as my_turn:
        assert my_turn
        cache.mark_compiled()
    assert cache.compiled()
    assert cache.mark().is_relative_to(tmp_path)
    assert os.environ["NUMBA_CACHE_DIR"] == str(cache.mark().parent)


def test_a_folder_that_becomes_read_only_lets_everybody_compile_for_themselves(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(Path, "open", refuse)
    with cache.compiling(wait=False) as my_turn:
        assert my_turn


def test_one_process_compiles_at_a_time(elsewhere: Path) -> None:
    with cache.compiling() as first, cache.compiling(wait=False) as second:
        assert (first, second) == (True, False)
    with cache.compiling(wait=False) as afterwards:
        assert afterwards


def test_a_child_forked_while_compiling_does_not_keep_the_lock(elsewhere: Path) -> None:
    release, hold = os.pipe()
    with cache.compiling():
        child = os.fork()
        if not child:
            os.close(hold)
            os.read(release, 1)  # until the test is over
            os._exit(0)
    try:
        with cache.compiling(wait=False) as my_turn:
            assert my_turn
    finally:
        os.close(hold)
        os.waitpid(child, 0)
        os.close(release)


WITHOUT_KERNELS = """
import sys, threading
from heliograph.batch import Chunk, Limits, Record, encode
from heliograph.errors import KernelsMissing
many = b"".join(encode([Record(k, 5, b"k", b"v")]) for k in range(1000))
chunk = Chunk(many, wanted=10, limits=Limits())
assert chunk.take(merge=True).first_offset == 10
while chunk.take(merge=True): pass
assert chunk.position == 1000
holes = Chunk(encode([Record(k, 5, b"k", b"v") for k in (0, 4, 9)], last_offset_delta=9), wanted=4, limits=Limits())
assert holes.remaining_records == 3
for _ in range(3):
    try:
        holes.take(merge=False)
    except KernelsMissing:
        continue
    raise SystemExit("it did not wait")
assert holes.skip(1) == 1 and holes.next_record().offset == 9
assert "numba" not in sys.modules and threading.active_count() == 1
"""


def test_nothing_imports_numba_where_the_kernels_are_not_compiled(elsewhere: Path) -> None:
    """What passes as it stands goes, what must be rewritten waits, and what is before it can be dropped."""
    subprocess.run([sys.executable, "-c", WITHOUT_KERNELS], check=True, timeout=60)


def test_a_batch_that_waited_for_the_kernels_is_whole(
    monkeypatch: pytest.MonkeyPatch, kernels: loading._Kernels, elsewhere: Path
) -> None:
    data = encode([Record(offset, 5, b"k", b"v") for offset in (0, 4, 9)], last_offset_delta=9)
    chunk = Chunk(data, wanted=1, limits=Limits())
    for merge in (False, True):
        with pytest.raises(KernelsMissing):
            chunk.take(merge=merge)
    kernels.there = True
    piece = chunk.take(merge=False)
    assert piece is not None
    assert piece.runs == ((4, 1), (9, 1))
    assert [record.offset for record in decode(piece.data, check_crc=False)] == [0, 1]

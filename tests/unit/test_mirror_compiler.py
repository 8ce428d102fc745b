"""Kernels compiled by a process of their own: one at a time, never left behind, its failure said; and who waits."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from structlog.typing import EventDict

from heliograph.batch import Chunk, Limits, Record, cache, encode, loading
from heliograph.mirror import append, compiler, fetch
from heliograph.mirror.append import Target
from heliograph.mirror.assignment import LaneSpec
from heliograph.mirror.compiler import WAITING, Compiler
from heliograph.mirror.fetch import Source
from heliograph.mirror.lane import Lane, State
from heliograph.mirror.positions import Position
from heliograph.types import Cluster, TopicPartition
from tests.kit import wait_until
from tests.unit.test_mirror_fetch import NODE, TOPIC_ID, Brokers
from tests.unit.test_mirror_turns import Wire

COMPILES = """
import os, sys, time
from pathlib import Path
from heliograph.batch import cache
with cache.compiling():
    if not cache.compiled():
        with Path(os.environ["NUMBA_CACHE_DIR"], "compiled").open("a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(0.3)
        cache.mark_compiled()
"""
PARENT = """
import time
from heliograph.mirror.compiler import Compiler
Compiler().ensure()
print(flush=True)
time.sleep(600)
"""
HANGS = "import sys; sys.stdin.read()"


def program(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", text


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache: nothing is compiled."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def ended(one: Compiler) -> bool:
    return one._thread is None or not one._thread.is_alive()


def children() -> list[psutil.Process]:
    """Zombies too."""
    return psutil.Process().children()


def test_kernels_that_are_compiled_start_nothing() -> None:
    cache.mark_compiled()
    one = Compiler(program("raise SystemExit(1)"))
    assert one.ensure()
    assert one._thread is None


def test_they_are_compiled_once_and_nothing_is_left(elsewhere: Path) -> None:
    before = children()
    one = Compiler(program(COMPILES))
    assert not one.ensure()
    assert not one.ensure()  # it is at it
    wait_until(lambda: ended(one), what="the end of the compiler")
    assert one.ensure()
    assert one.trouble == ""
    assert len((elsewhere / "compiled").read_text().splitlines()) == 1
    assert children() == before


def test_of_several_processes_one_compiles_and_the_others_find_it_done(elsewhere: Path) -> None:
    some = [Compiler(program(COMPILES)) for _ in range(4)]
    for one in some:
        threading.Thread(target=one.ensure).start()
    wait_until(cache.compiled, what="kernels that are compiled")
    wait_until(lambda: all(map(ended, some)), what="the end of all")
    assert len((elsewhere / "compiled").read_text().splitlines()) == 1
    assert all(one.ensure() for one in some)


def test_nothing_is_started_while_another_process_compiles() -> None:
    one = Compiler(program(COMPILES))
    with cache.compiling():
        assert not one.ensure()
        assert one._thread is None
    assert not one.ensure()  # looked a moment ago
    one._again_at = 0.0
    one.ensure()
    wait_until(cache.compiled, what="kernels that are compiled")
    one.close()


def test_a_compiler_that_fails_is_said_and_started_again_later(logs: list[EventDict]) -> None:
    one = Compiler(program("import sys; sys.exit('OSError: No space left on device')"))
    one.ensure()
    wait_until(lambda: ended(one), what="the end of the compiler")
    assert "No space left on device" in one.trouble
    assert "No space left on device" in one.waiting
    (said,) = [line for line in logs if line["event"].startswith("the kernels could not be compiled")]
    assert (said["log_level"], said["why"]) == ("warning", "OSError: No space left on device")
    thread = one._thread
    one.ensure()
    assert one._thread is thread  # not at once
    one._again_at, one._command = 0.0, program(COMPILES)
    one.ensure()
    wait_until(lambda: ended(one), what="the end of the compiler")
    assert one.trouble == ""


def test_a_command_that_cannot_be_started_is_a_failure_like_another(tmp_path: Path) -> None:
    one = Compiler((str(tmp_path / "no-such-program"),))
    one.ensure()
    wait_until(lambda: ended(one), what="the end of the attempt")
    assert "No such file" in one.trouble


def test_closing_ends_it() -> None:
    before = children()
    one = Compiler(program(HANGS))
    one.ensure()
    wait_until(lambda: one._process is not None, what="the compiler")
    one.close()
    assert ended(one)
    assert children() == before
    assert not one.ensure()
    assert ended(one)


def test_a_parent_that_is_killed_ends_its_compiler(elsewhere: Path) -> None:
    """The real one, which would compile for half a minute."""
    with subprocess.Popen(program(PARENT), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        wait_until(lambda: psutil.Process(parent.pid).children(), what="the compiler")
        (child,) = psutil.Process(parent.pid).children()
        assert "heliograph.batch" in child.cmdline()
        parent.kill()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, what="the end of the compiler")
    assert not cache.compiled()


def test_what_is_compiled_already_is_marked_by_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    loading.warm()
    cache.mark().unlink()
    one = Compiler()
    try:
        one.ensure()
        wait_until(lambda: ended(one), what="the end of the compiler")
        assert one.trouble == ""
    finally:
        cache.mark_compiled()


def test_a_forked_child_begins_anew() -> None:
    before = compiler.of_process()
    before._closed = True
    pid = os.fork()
    if not pid:
        os._exit(0 if not compiler.of_process()._closed else 1)
    before._closed = False
    assert os.waitpid(pid, 0)[1] == 0


# ---------------------------------------------------------------- who waits for them


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> loading._Kernels:
    made = loading._Kernels()
    monkeypatch.setattr(loading, "_kernels", made)
    monkeypatch.setattr(compiler, "_of_process", Compiler(program(HANGS)))
    return made


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as made:
        yield made


SPEC = LaneSpec(TopicPartition("t", 0), TOPIC_ID, TopicPartition("a.t", 0), Position(0, 1, 0, 0, TOPIC_ID), 1 << 20)


def lane(spec: LaneSpec) -> Lane:
    made = Lane.of(spec)
    made.state = State.FLOWING
    return made


def test_divided_partitions_are_not_fetched_until_the_kernels_are_there(
    monkeypatch: pytest.MonkeyPatch,
    kernels: loading._Kernels,
    selector: selectors.BaseSelector,
    logs: list[EventDict],
) -> None:
    monkeypatch.setattr(fetch, "Brokers", Brokers)
    plain = lane(replace(SPEC, tp=TopicPartition("plain", 0)))
    divided = [lane(replace(SPEC, remote=TopicPartition("a.t", index), strands=2)) for index in range(2)]
    source = Source(
        Cluster("a"), [plain, *divided], selector, isolation="read_committed",
        limits=lambda most: Limits(max_batch_bytes=most), events=deque(),
    )  # fmt: skip
    connection: Any = source.brokers.connection(NODE)
    source.opened(NODE, connection)

    def asked_for() -> set[str]:
        return set(source._fetched_at and {tp.topic for tp in source._fetched_at})

    assert asked_for() == {"plain"}
    assert source.held_back(plain) == ""
    assert all(source.held_back(one) == WAITING for one in divided)
    assert [line["event"] for line in logs] == [WAITING]  # once
    kernels.there = True
    source.tick(time.monotonic() + fetch.COMPILED_S)
    assert asked_for() == {"plain", "t"}
    assert source.held_back(divided[0]) == ""


def test_what_must_be_rewritten_waits_in_its_lane_while_others_go(
    monkeypatch: pytest.MonkeyPatch, kernels: loading._Kernels, selector: selectors.BaseSelector
) -> None:
    monkeypatch.setattr(append, "Brokers", Brokers)
    monkeypatch.setattr(append, "produce_request", lambda version, parts: list(parts))
    plain, holes = lane(SPEC), lane(replace(SPEC, tp=TopicPartition("u", 0), remote=TopicPartition("a.u", 0)))
    target = Target(Cluster("b"), [plain, holes], set(), selector, events=deque())
    wire = Wire()
    target.opened(NODE, cast(Any, wire))
    limits = target.pace.limits(1 << 20)
    plain.push(Chunk(encode([Record(0, 5, b"k", b"v")]), wanted=0, limits=limits))
    before_wanted = encode([Record(0, 5, b"k", b"v")], last_offset_delta=9)  # nothing of it is left to copy
    holes.acked = replace(holes.acked, next_offset=5)
    data = before_wanted + encode([Record(k, 5, b"k", b"v") for k in (10, 14)], last_offset_delta=9)
    holes.push(Chunk(data, wanted=5, limits=limits))
    for one in (plain, holes):
        target.wake(one)
    for _ in range(3):
        target.push(time.monotonic())
    assert [part[0] for parts in wire.requests for part in parts] == ["a.t"]
    assert holes.write_trouble == WAITING
    assert holes.state is State.FLOWING
    assert holes.queued_bytes == holes.chunks[0].remaining_bytes
    kernels.there = True
    target.push(time.monotonic())
    assert [part[0] for parts in wire.requests for part in parts] == ["a.t", "a.u"]
    assert holes.queued_bytes == 0

"""Who may import whom. A room that reaches into another where it should not makes this fail, by name and line.

Read from the source (late imports inside functions and those for typing count too), so nothing is imported here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent.parent / "src" / "heliograph"

# room -> the other rooms it may import. EVERYBODYS are everybody's; a module at the top is its own room.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "types": set(),
    "escaping": set(),  # pure
    "textlog": set(),  # logs as text
    "javaregex": set(),  # pure
    "formats": set(),  # pure: the records of MM2's own topics
    "policy": {"javaregex"},  # pure
    "batch": set(),  # pure: bytes in, bytes out
    "config": {"policy", "javaregex"},  # pure: files in, flows out
    "wire": set(),  # a border: sockets
    "topiclog": {"wire", "batch"},  # topics read to their ends and appended to; what records mean is the callers'
    "mirror": {"wire", "batch", "policy", "formats", "topiclog"},  # the data plane, inside a task
    "cache": set(),  # places, nothing else
    "spark": {"mirror", "batch", "cache", "textlog"},  # a border: the engine; batch only to warm its kernels
    "state": {"wire", "batch", "policy", "formats", "mirror", "topiclog"},  # topics of ours that hold state
    "sync": {"wire", "batch", "policy", "formats", "mirror", "state"},  # what is kept equal beside the records
    "health": {"mirror"},  # pure: how partitions are, and in what shape that is told; of mirror how tasks say it
    # which partitions go where, and from where on
    "survey": {"wire", "batch", "policy", "formats", "mirror", "state", "sync", "health"},
    "flow": {"wire", "policy", "mirror", "state", "sync", "health", "survey", "spark", "batch"},  # coordinators
    # looking before and after
    "review": {"wire", "batch", "policy", "formats", "mirror", "state", "sync", "health", "survey", "flow", "topiclog"},
    "messages": {
        "wire",
        "batch",
        "policy",
        "formats",
        "mirror",
        "topiclog",
    },  # looked at and made up; of mirror the formats
    "metrics": {"health", "flow", "mirror"},  # what flows report, as figures; of mirror only how latencies are counted
    "audit": set(),  # one line for each change, everywhere in the same form
    "http": {"state", "health", "flow", "metrics", "wire", "audit"},  # a border: sockets; of wire the key stores
    # Flows as Kafka Connect's connectors: its files, its topics, its API
    "connect": {"config", "policy", "batch", "mirror", "state", "health", "flow", "review", "wire", "http"},
    "embedded": {"cache"},
    "control": {"audit"},  # a border: sockets
    "workers": set(),  # a border: sockets; Connect workers, ours or not
    "cli": {
        *("audit", "config", "policy", "state", "sync", "health", "survey", "flow", "review", "messages", "wire"),
        *("embedded", "http", "metrics", "control", "connect", "workers", "cache", "textlog"),
    },
}
EVERYBODYS = {"errors", "types", "escaping"}

# foreign package -> the only rooms that touch it
BORDERS: dict[str, set[str]] = {
    "pyspark": {"spark"},
    "py4j": {"spark"},
    "kio": {"wire"},
    "confluent_kafka": {"embedded", "cli", "review"},  # never in the data path
    "numba": {"batch"},
    "cramjam": {"batch"},
    "click": {"cli", "embedded"},  # embedded: the proxy is a program of its own
    "jgo": {"embedded"},
    "uvicorn": {"http"},
    "starlette": {"http"},
    "h11": {"http"},
    "argon2": {"http"},
}
# What a pure room may not touch: the outside world. (A thread is not: batch loads its kernels in one.)
OUTSIDE = {"socket", "ssl", "subprocess", "asyncio", "selectors", "structlog", "logging"}
PURE = ("policy", "javaregex", "formats", "config", "batch", "health")


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module named in an import, as a dotted name, with its line."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides the room"
            module = node.module or ""
            if module == "heliograph":
                yield from ((node.lineno, f"heliograph.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def strangers(path: Path) -> list[str]:
    room = room_of(path)
    found = []
    for line, name in imports(path):
        head, *rest = name.split(".")
        if head == "heliograph":
            other = rest[0] if rest else ""
            if other not in {"", "__version__", room} | EVERYBODYS | ROOMS[room]:
                found.append(f"{path.relative_to(SOURCE)}:{line}: {room} may not import {name}")
        elif room not in BORDERS.get(head, {room}):
            found.append(f"{path.relative_to(SOURCE)}:{line}: only {sorted(BORDERS[head])} may import {head}")
        elif room in PURE and head in OUTSIDE:
            found.append(f"{path.relative_to(SOURCE)}:{line}: {room} is pure and may not import {head}")
    return found


def test_every_room_is_in_the_table() -> None:
    assert {room_of(path) for path in modules()} - {"__init__"} <= set(ROOMS)


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    found = [text for path in modules() if room_of(path) == room for text in strangers(path)]
    assert not found, "\n".join(found)


def test_the_check_itself_sees_a_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.test_imports.SOURCE", tmp_path)
    bad = tmp_path / "batch" / "bad.py"
    bad.parent.mkdir()
    bad.write_text("def f():\n    from heliograph.wire import cluster\n    import pyspark.sql\n    import socket\n")
    assert len(strangers(bad)) == 3

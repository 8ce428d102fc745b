"""What `doctor` checks of the machine: Python, packages, Java, memory, loopback, disk."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from heliograph.cli.doctor import Finding
from heliograph.embedded.java import find_java
from heliograph.errors import JavaMissing

# Spark's JVM takes about 0.5 GB and each task some 0.1 GB; below this a demo (two brokers more) starts to swap.
WANTED_MEMORY_BYTES = 2 << 30
WANTED_DISK_BYTES = 1 << 30


def examine() -> Iterator[Finding]:
    yield _python()
    yield _packages()
    yield _java()
    yield _memory()
    yield _loopback()
    yield _disk()


def _python() -> Finding:
    fine = sys.version_info >= (3, 11)
    return Finding("Python", fine, f"{platform.python_version()} at {sys.executable}", "Install Python >= 3.11")


def _packages() -> Finding:
    try:
        required = metadata.requires("heliograph") or []
    except metadata.PackageNotFoundError:
        return Finding("packages", False, "heliograph is not installed", "Run make setup, or pip install .")
    missing, found = [], []
    for requirement in required:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        if "extra ==" in requirement:
            continue
        lowest = re.search(r">=\s*([0-9.]+)", requirement)
        version = _version(name)
        if version is None or (lowest and _numbers(version) < _numbers(lowest[1])):
            missing.append(f"{requirement} ({version or 'absent'})")
        else:
            found.append(f"{name} {version}")
    if missing:
        return Finding(
            "packages", False, f"too old or missing: {', '.join(missing)}", "Run make setup, or pip install ."
        )
    return Finding("packages", True, ", ".join(found))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _java() -> Finding:
    try:
        java = find_java()
    except JavaMissing as problem:
        return Finding("Java", False, problem.message, problem.fix)
    return Finding("Java", True, f"{java.release} with the modules Spark needs, at {java.executable}")


def _memory() -> Finding:
    available = _available_bytes()
    if available is None:
        return Finding("memory", None, "the system does not say how much is free", "See to it that 2 GB are")
    detail = f"{available / 2**30:.1f} GB free, {os.cpu_count()} cores"
    short = available < WANTED_MEMORY_BYTES
    return Finding(
        "memory", None if short else True, detail, "Free some: Spark and its tasks want 2 GB" if short else ""
    )


def _available_bytes() -> int | None:
    try:
        match = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        return int(match[1]) * 1024 if match else None
    except OSError:
        pass  # not Linux
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _loopback() -> Finding:
    """Tasks report to the coordinator, and Spark's parts talk to each other, over loopback ports."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return Finding("ports", True, "free ones on 127.0.0.1 can be bound and reached")
    except OSError as problem:
        return Finding("ports", False, f"127.0.0.1: {problem}", "Allow programs to listen on and connect to 127.0.0.1")


def _disk() -> Finding:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    detail = f"{free / 2**30:.1f} GB free in {folder}"
    if not os.access(folder, os.W_OK):
        return Finding("disk", False, f"{folder} cannot be written", "Set TMPDIR to a folder that can")
    short = free < WANTED_DISK_BYTES
    return Finding(
        "disk", None if short else True, detail, "Free some, or set TMPDIR to a larger disk" if short else ""
    )

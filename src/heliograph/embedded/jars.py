"""The jars of one pinned Kafka release: fetched by coordinate, checked by sha256, kept in the user's cache.

`kafka-<release>.lock` beside this file names every jar (`group:artifact:version sha256 bytes`), so nothing is resolved
at run time. jgo knows Maven Central and how a coordinate becomes an address; `HELIOGRAPH_MAVEN_REPOSITORY` puts a
mirror in its place. `lock.py` writes the lock file anew. What the jars are started with is `broker.py`'s affair.

Invariants:
A. A jar stands under its own name only after its sha256 was right: it is fetched elsewhere and renamed.
B. `verified.json` remembers size and mtime of each jar as it was checked; a jar that differs from that is hashed again,
   and fetched again if it is wrong. So a start costs a `stat` a jar, and a truncated or edited file is noticed.
C. One process at a time works in the folder (a file lock); the others wait and find the work done.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from heliograph import cache
from heliograph.embedded.releases import PINNED, RELEASES
from heliograph.errors import EmbeddedError

RELEASE = PINNED
LOCK = RELEASES[RELEASE].lock
MIRROR_VARIABLE = "HELIOGRAPH_MAVEN_REPOSITORY"
FETCHES_AT_ONCE = 8
ATTEMPTS = 3
FIX = (
    "Check the network and its proxy settings (HTTPS_PROXY), or set "
    f"{MIRROR_VARIABLE} to the address of a Maven repository that can be reached"
)


@dataclass(frozen=True, slots=True)
class Jar:
    coordinate: str  # group:artifact:version
    sha256: str
    size_bytes: int

    @property
    def filename(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


class Seen(msgspec.Struct, frozen=True):
    """What a jar looked like when its sha256 was last found right."""

    sha256: str
    size_bytes: int
    mtime_ns: int


def read_lock(path: Path = LOCK) -> tuple[Jar, ...]:
    lines = (line.split() for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return tuple(Jar(coordinate, sha256, int(size)) for coordinate, sha256, size in lines)


def fetch_jars(
    *, folder: Path | None = None, jars: Sequence[Jar] | None = None, quiet: bool = False, release: str = RELEASE
) -> list[Path]:
    """Every jar of the release, present and checked, in the order of the lock file (a class path)."""
    folder = folder or cache.folder() / f"kafka-{release}"
    jars = read_lock(RELEASES[release].lock) if jars is None else jars
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            _complete(folder, jars, quiet, release)
    except OSError as error:
        raise EmbeddedError(
            f"Kafka's jars cannot be kept in {folder}: {error}",
            fix="Make room or give permission there, or set XDG_CACHE_HOME to a folder that can be written",
        ) from error
    return [folder / jar.filename for jar in jars]


def _complete(folder: Path, jars: Sequence[Jar], quiet: bool, release: str) -> None:
    record = folder / "verified.json"
    before = _read_record(record)
    seen = {jar.filename: found for jar in jars if (found := _check(folder / jar.filename, jar, before))}
    missing = [jar for jar in jars if jar.filename not in seen]
    try:
        if missing:
            _fetch(folder, missing, quiet, release)
    finally:
        for jar in missing:
            if found := _check(folder / jar.filename, jar, {}):
                seen[jar.filename] = found
        if seen != before:
            temporary = record.with_suffix(".new")
            temporary.write_bytes(msgspec.json.encode(seen))
            temporary.replace(record)


def _read_record(record: Path) -> dict[str, Seen]:
    try:
        return msgspec.json.decode(record.read_bytes(), type=dict[str, Seen])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}  # only costs hashing the jars once more


def _check(path: Path, jar: Jar, seen: dict[str, Seen]) -> Seen | None:
    """What to remember of a jar that is right; None for one that is missing or wrong (invariant B)."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    looks = Seen(jar.sha256, stat.st_size, stat.st_mtime_ns)
    if seen.get(path.name) == looks:
        return looks
    return looks if stat.st_size == jar.size_bytes and sha256_of(path) == jar.sha256 else None


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path, jars: Sequence[Jar], quiet: bool, release: str) -> None:
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch,
        _progress(sum(jar.size_bytes for jar in jars), quiet, release) as advance,
        ThreadPoolExecutor(FETCHES_AT_ONCE, "jars") as pool,
    ):
        context = maven(Path(scratch), advance)
        work = [pool.submit(_fetch_one, context, folder, jar) for jar in jars]
        done, rest = wait(work, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
        for future in done:
            future.result()


def maven(scratch: Path, advance: Any = None) -> Any:
    """jgo's way to the repository, keeping what it fetches in `scratch`."""
    # Imported here: jgo brings requests and costs 0.3 s, which a start with a full cache need not pay.
    from jgo.maven import MavenContext, PythonResolver

    address = os.environ.get(MIRROR_VARIABLE, "").rstrip("/")
    return MavenContext(
        resolver=PythonResolver(progress_callback=advance),
        repo_cache=scratch,
        remote_repos={"mirror": address} if address else None,
        timeout=30,
    )


def _fetch_one(context: Any, folder: Path, jar: Jar) -> None:
    trouble = ""
    for _ in range(ATTEMPTS):
        artifact = context.create_dependency(jar.coordinate).artifact
        try:
            arrived = Path(context.resolver.download(artifact))
        except (OSError, RuntimeError) as error:  # requests' errors are OSErrors; RuntimeError is jgo's "not found"
            trouble = _short(error)
        else:
            found = sha256_of(arrived)
            if found == jar.sha256:
                arrived.replace(folder / jar.filename)
                return
            trouble = f"its sha256 is {found}, and {jar.sha256} is pinned"
        with contextlib.suppress(FileNotFoundError):
            artifact.cached_path.unlink()  # jgo refuses to write over what a broken attempt left
    raise EmbeddedError(f"{jar.coordinate} could not be fetched: {trouble}", fix=FIX, jar=jar.coordinate)


def _short(error: Exception) -> str:
    text = str(error)
    return text if len(text) < 300 else f"{text[:300]}…"


@contextmanager
def _progress(total_bytes: int, quiet: bool, release: str) -> Iterator[Any]:
    """One bar on stderr for all jars; yields jgo's progress callback, which asks for a context manager a file."""
    console = Console(stderr=True)
    if not quiet and not console.is_terminal:
        console.print(f"fetching Kafka {release} ({total_bytes / 1e6:.0f} MB)")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        task = progress.add_task(f"Kafka {release}", total=total_bytes)

        @contextmanager
        def one_file(_filename: str, _size_bytes: int) -> Iterator[Any]:
            yield lambda count: progress.advance(task, count)

        yield one_file

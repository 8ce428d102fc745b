"""Where numba keeps its compiled kernels, whether they are there, and that one process compiles them at a time.

Numba looks at `NUMBA_CACHE_DIR`, then beside the source, then in the user's cache folder (`XDG_CACHE_HOME`), and raises
when none is writable: a container with a read-only root and no home. Then a private temporary folder is used.

Compiling takes half a minute, loading what is compiled half a second. A file beside numba's own (the mark) says which
of the two it would be, without importing numba: its name is made of all that numba's cache depends on.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import pkgutil
import platform
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = ("columns.py", "kernels.py", "labelling.py", "routing.py", "texts.py")  # whatever the kernels are made of
COMPILERS = ("numba", "llvmlite", "numpy")


def prepare() -> None:
    """Make sure that numba finds a folder, in this process and those that it starts; before numba is imported."""
    if not os.environ.get("NUMBA_CACHE_DIR") and _usual() is None:
        os.environ["NUMBA_CACHE_DIR"] = str(_private())


def compiled() -> bool:
    """Whether a process has compiled these kernels on this machine: loading them takes a moment then."""
    return mark().exists()


def mark_compiled() -> None:
    """All of them are in numba's cache now. Raises OSError where that cannot be said."""
    mark().parent.mkdir(parents=True, exist_ok=True)
    mark().touch()


@contextlib.contextmanager
def compiling(*, wait: bool = True) -> Iterator[bool]:
    """While this process compiles no other does; whoever waited finds them compiled. Whether it is this process's turn:
    without `wait` it may not be. The lock ends with the process that holds it. Where the file system knows no locks
    every process compiles for itself."""
    with contextlib.ExitStack() as stack:
        try:
            lock = mark().with_suffix(".lock")
            lock.parent.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(lock.open("ab"))
            fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            stack.callback(fcntl.flock, held, fcntl.LOCK_UN)  # a child forked meanwhile would keep it otherwise
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        yield True


def mark() -> Path:
    """The file that says that the kernels are compiled."""
    prepare()
    return _folder() / _name()


def _folder() -> Path:
    given = os.environ.get("NUMBA_CACHE_DIR")
    found = Path(given) if given else _usual()
    assert found is not None  # `prepare` saw to it
    return found


@functools.cache
def _name() -> str:
    made = hashlib.sha256()
    for name in SOURCES:
        made.update(pkgutil.get_data(__package__, name) or b"")  # the package may be in a zip file on an executor
    machine = (sys.version, platform.machine(), _processor(), str(HERE), *map(_release, COMPILERS))
    made.update(repr(machine).encode())
    return f"heliograph-kernels-{made.hexdigest()[:16]}"


def _release(package: str) -> str:
    """Which release is installed, without importing it: where it is and how its folder looks. The standard library's
    `importlib.metadata` would take 30 ms, which is a part of the time to a task's first record."""
    for entry in sys.path:
        for folder in Path(entry or ".").glob(f"{package}-*.dist-info"):
            return folder.name
    return ""


def _processor() -> str:
    """Kernels are compiled for one: a container's image may be run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(("model name", "flags", "Features"))))


def _usual() -> Path | None:
    """The folder that numba takes by itself."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return next((folder for folder in (HERE / "__pycache__", home / "numba") if _writable(folder)), None)


def _writable(folder: Path) -> bool:
    """Whether files can be made there, or the folder itself can."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _private() -> Path:
    """A folder only we can write: what lies in it is run as code, so one that somebody else made is not trusted."""
    folder = Path(tempfile.gettempdir()) / f"heliograph-kernels-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            return Path(tempfile.mkdtemp(prefix="heliograph-kernels-"))
    return folder

"""Where running processes can be spoken to: sockets in a folder that is the user's alone, named after file and process.

    <folder>/<digest of the file's real path>-<process id>.sock

Answers for finding them and for the folder being safe: whoever may write there could pose as a running process, or take
its socket away. What is left of processes that were killed is recognised by nobody listening, and removed.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from heliograph.errors import ControlError

LONGEST = 60  # of the folder's path: a socket's whole path may have 107 bytes
CONNECT_S = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """One process's socket."""

    path: Path
    file_digest: str
    pid: int


def folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and len(runtime) <= LONGEST and Path(runtime).is_dir():
        return Path(runtime) / "heliograph"
    return Path("/tmp") / f"heliograph-{os.getuid()}"


def secured() -> Path:
    """The folder, made if it is missing. Raises ControlError when it is not ours alone."""
    found = folder()
    try:
        found.mkdir(mode=0o700, exist_ok=True)
        about = found.lstat()
    except OSError as error:
        raise ControlError(
            f"{found}: the folder of the control sockets cannot be used: {error.strerror or error}",
            fix="set XDG_RUNTIME_DIR to a folder of your own",
        ) from error
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise ControlError(
            f"{found}: the folder of the control sockets is not yours alone (owner {about.st_uid}, mode "
            f"{stat.S_IMODE(about.st_mode):o}), so anybody could pose as a running process there",
            fix=f"remove it, or: chmod 700 {found}",
        )
    return found


def digest_of(file: Path) -> str:
    """Of where the file really is: however it is named, it is the same one."""
    return hashlib.sha256(os.fsencode(os.path.realpath(file))).hexdigest()[:16]


def place_of(file: Path, pid: int) -> Place:
    digest = digest_of(file)
    return Place(folder() / f"{digest}-{pid}.sock", digest, pid)


def places(file: Path | None = None) -> list[Place]:
    """Those of living processes, of this file or of any."""
    found = [_parse(path) for path in sorted(secured().glob("*.sock"))]
    wanted = None if file is None else digest_of(file)
    return [one for one in found if one is not None and wanted in (None, one.file_digest) and _is_alive(one)]


def connect(place: Place, timeout_s: float = CONNECT_S) -> socket.socket:
    """Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(place.path))
    except OSError:
        connection.close()
        raise
    return connection


def _is_alive(place: Place) -> bool:
    """Whether somebody listens; a socket that nobody will ever listen at again is removed."""
    try:
        connect(place).close()
    except ConnectionRefusedError:
        place.path.unlink(missing_ok=True)
        return False
    except FileNotFoundError:
        return False
    except OSError:
        return True  # busy, say: it will be told by who speaks to it
    return True


def _parse(path: Path) -> Place | None:
    digest, _, pid = path.stem.rpartition("-")
    return Place(path, digest, int(pid)) if digest and pid.isascii() and pid.isdigit() else None

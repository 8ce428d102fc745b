"""Where numba may keep its compiled kernels when neither the package's folder nor the user's cache can be written.

Numba looks at `NUMBA_CACHE_DIR`, then beside the source, then in the user's cache folder (`XDG_CACHE_HOME`), and raises
when none is writable: a container with a read-only root and no home. Then a private temporary folder is used.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def prepare() -> None:
    """Make sure that numba finds a folder; to be called before numba is imported."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return
    beside = Path(__file__).parent / "__pycache__"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not any(_writable(folder) for folder in (beside, home)):
        os.environ["NUMBA_CACHE_DIR"] = str(_private())


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

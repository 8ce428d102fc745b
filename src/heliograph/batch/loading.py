"""When the kernels are loaded: never while a record waits that could go without them.

Numba and the kernels take 0.4 s from their caches and half a minute without. So whoever can do without asks `ready`,
which begins to load them in the background the first time; whoever cannot imports `kernels` and waits. Loading that
fails (a full disk, a broken cache) is tried again AGAIN_S later, and everything goes without the kernels until it
succeeds.

Where they were never compiled a process of its own does that (`python -m heliograph.batch.loading`): compiling in a
task would stop its loop again and again. Records are copied without kernels meanwhile, more slowly.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time

from heliograph.batch import cache

AGAIN_S = 60.0
LOOK_S = 1.0  # for what another process compiles
NICE = 5  # of that process: what starts beside it goes first


class _Kernels:
    """Whether they are there; one per process."""

    def __init__(self) -> None:
        self.there = False
        self.begun = False
        self.again_at = 0.0
        self.compiler: subprocess.Popen[bytes] | None = None

    def in_child(self) -> None:
        self.begun, self.compiler = False, None

    def load_beside(self) -> None:
        """Top of a thread. What goes wrong is raised once more for `threading.excepthook`, which logs it: this room is
        pure."""
        try:
            self.load()
        except BaseException:
            self.again_at, self.begun = time.monotonic() + AGAIN_S, False
            raise

    def load(self) -> None:
        with cache.compiling():
            from heliograph.batch import kernels, routing  # noqa: F401
        self.there = True

    def compile_beside(self) -> None:
        """At most one process of ours, and one in all that works."""
        if self.compiler is not None and self.compiler.poll() is None:
            self.again_at = time.monotonic() + LOOK_S
            return
        failed = self.compiler is not None and self.compiler.returncode != 0
        self.compiler = None
        self.again_at = time.monotonic() + (AGAIN_S if failed else LOOK_S)
        if not failed:
            # It ends when its standard input does: with us, however we end.
            words = [sys.executable, "-m", "heliograph.batch.loading"]
            null = subprocess.DEVNULL
            with contextlib.suppress(OSError):
                self.compiler = subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True
                )


_kernels = _Kernels()
# A child begins anew: the thread that loads does not survive a fork, nor is the compiler its child; what is loaded is.
os.register_at_fork(after_in_child=_kernels.in_child)


def ready() -> bool:
    """Whether the kernels can be used without waiting; if not, they will be some time later."""
    if not _kernels.there and not _kernels.begun and time.monotonic() >= _kernels.again_at:
        if not cache.compiled():
            _kernels.compile_beside()
            return False
        _kernels.begun = True
        try:
            threading.Thread(target=_kernels.load_beside, name="heliograph-kernels", daemon=True).start()
        except RuntimeError:  # no threads left
            _kernels.again_at, _kernels.begun = time.monotonic() + AGAIN_S, False
    return _kernels.there


def prepare() -> None:
    """Have them compiled while something else takes its time, if they never were."""
    if not _kernels.there and not cache.compiled():
        _kernels.compile_beside()


def warm() -> None:
    """Load the kernels now and wait for it; also those that few flows need, so that none is left to compile."""
    with cache.compiling():
        _load_all()
    _kernels.there = True


def _load_all() -> None:
    from heliograph.batch import kernels, labelling, routing  # noqa: F401

    cache.mark_compiled()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    os.nice(NICE)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with cache.compiling(wait=False) as my_turn:
        if my_turn and not cache.compiled():
            _load_all()

"""When the kernels are loaded: never while a record waits that could go without them.

Numba and the kernels take 0.4 s from their caches and half a minute to compile. So whoever can do without asks `ready`,
which begins to load them in the background the first time; whoever cannot calls `need` and comes again later. Loading
that fails (a full disk, a broken cache) is tried again AGAIN_S later, and everything goes without the kernels until it
succeeds.

Nothing here compiles, except for `warm`: compiling in a task would stop its loop for half a minute. A process of its
own does it (`python -m heliograph.batch`, which `mirror.compiler` starts).
"""

from __future__ import annotations

import os
import threading
import time

from heliograph.batch import cache
from heliograph.errors import KernelsMissing

AGAIN_S = 60.0
LOOK_S = 1.0  # between two looks whether they have been compiled


class _Kernels:
    """Whether they are there; one per process."""

    def __init__(self) -> None:
        self.there = False
        self.begun = False
        self.again_at = 0.0

    def in_child(self) -> None:
        """A forked child has the kernels that were loaded, but not the thread that loads them: it starts its own."""
        self.begun = False

    def load_beside(self) -> None:
        """Top of a thread. What goes wrong is raised once more for `threading.excepthook`, which logs it: this room is
        pure."""
        try:
            self.load()
        except BaseException:
            self.again_at, self.begun = time.monotonic() + AGAIN_S, False
            raise

    def load(self) -> None:
        from heliograph.batch import kernels, routing  # noqa: F401

        self.there = True


_kernels = _Kernels()
os.register_at_fork(after_in_child=_kernels.in_child)


def ready() -> bool:
    """Whether the kernels can be used without waiting; if not, they will be some time later."""
    if not _kernels.there and not _kernels.begun and (now := time.monotonic()) >= _kernels.again_at:
        if not cache.compiled():
            _kernels.again_at = now + LOOK_S
            return False
        _kernels.begun = True
        try:
            threading.Thread(target=_kernels.load_beside, name="heliograph-kernels", daemon=True).start()
        except RuntimeError:  # no threads left
            _kernels.again_at, _kernels.begun = now + AGAIN_S, False
    return _kernels.there


def loaded() -> bool:
    """As `ready`, but only looks."""
    return _kernels.there


def need() -> None:
    """For what cannot go without them: KernelsMissing until they are loaded."""
    if not ready():
        raise KernelsMissing("the kernels are not compiled or not loaded yet")


def warm() -> None:
    """Load the kernels now and wait for it, compiling them if that was never done; also those that few flows need."""
    if cache.compiled():
        _load_all()
    else:
        with cache.compiling():
            _load_all()
            cache.mark_compiled()
    _kernels.there = True


def _load_all() -> None:
    from heliograph.batch import kernels, labelling, routing  # noqa: F401

"""When the kernels are loaded: never while a record waits that could go without them.

Numba and the kernels take 0.4 s from their caches and several without. So whoever can do without asks `ready`, which
begins to load them in the background the first time; whoever cannot imports `kernels` and waits. Loading that fails (a
full disk, a broken cache) is tried again AGAIN_S later, and everything goes without the kernels until it succeeds.
"""

from __future__ import annotations

import os
import threading
import time

AGAIN_S = 60.0


class _Kernels:
    """Whether they are there; one per process."""

    def __init__(self) -> None:
        self.there = False
        self.begun = False
        self.again_at = 0.0

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
# A child begins anew: the thread that loads does not survive a fork, what it has loaded does.
os.register_at_fork(after_in_child=lambda: setattr(_kernels, "begun", False))


def ready() -> bool:
    """Whether the kernels can be used without waiting; if not, they will be some time later."""
    if not _kernels.there and not _kernels.begun and time.monotonic() >= _kernels.again_at:
        _kernels.begun = True
        try:
            threading.Thread(target=_kernels.load_beside, name="heliograph-kernels", daemon=True).start()
        except RuntimeError:  # no threads left
            _kernels.again_at, _kernels.begun = time.monotonic() + AGAIN_S, False
    return _kernels.there


def loaded() -> bool:
    """As `ready`, but only looks."""
    return _kernels.there


def warm() -> None:
    """Load the kernels now and wait for it; also those that few flows need, so that none is left to compile."""
    from heliograph.batch import labelling  # noqa: F401

    _kernels.load()

"""When the kernels are loaded: never while a record waits that could go without them.

Numba and the kernels take 0.4 s from their caches and several without. So whoever can do without asks `ready`, which
begins to load them in the background the first time; whoever cannot imports `kernels` and waits.
"""

from __future__ import annotations

import os
import threading


class _Kernels:
    """Whether they are there; one per process."""

    def __init__(self) -> None:
        self.there = False
        self.begun = False

    def load(self) -> None:
        from heliograph.batch import kernels, routing  # noqa: F401

        self.there = True


_kernels = _Kernels()
# A child begins anew: the thread that loads does not survive a fork, what it has loaded does.
os.register_at_fork(after_in_child=lambda: setattr(_kernels, "begun", False))


def ready() -> bool:
    """Whether the kernels can be used without waiting; if not, they will be some time later."""
    if not _kernels.there and not _kernels.begun:
        _kernels.begun = True
        threading.Thread(target=_kernels.load, name="heliograph-kernels", daemon=True).start()
    return _kernels.there


def warm() -> None:
    """Load the kernels now and wait for it; also those that few flows need, so that none is left to compile."""
    from heliograph.batch import labelling  # noqa: F401

    _kernels.load()

"""`python -m heliograph.batch`: compiles the kernels into numba's cache and ends. Started by `mirror.compiler`.

It ends when its standard input does, so it never outlives the process that started it, however that ends. What was
compiled until then stays in the cache, and the next one goes on from there.
"""

from __future__ import annotations

import os
import threading

from heliograph.batch import loading

NICE = 5  # whatever starts beside it goes first


def _end_with_parent() -> None:
    while os.read(0, 1):  # not by `sys.stdin`: its lock, held here, would abort this process at its ordinary end
        pass
    os._exit(1)


if __name__ == "__main__":
    os.nice(NICE)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    loading.warm()

"""kio, imported without hypothesis. Where that is installed, as wherever our tests can be run, kio imports it for tests
of its own: 0.4 s of CPU for each process, and a flow's start waits for three of them in turn."""

from __future__ import annotations

import importlib
import sys


def import_kio() -> None:
    if "hypothesis" in sys.modules:  # a test: it may want kio's types too
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment] # how Python marks a module that is not to be found
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]


import_kio()

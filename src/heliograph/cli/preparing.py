"""What a demo needs beside its clusters, begun before them: Spark, and what is done once on a machine.

By a thread, since importing it all takes a second: meanwhile Kafka's jars are fetched and brokers come up. Spark is
needed now; compiling the kernels and recording Spark's classes for the next start have less priority.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from heliograph.cli.scene import STOP_S, step
from heliograph.cli.watch import Stop
from heliograph.embedded.java import find_java

if TYPE_CHECKING:
    from heliograph.flow.runner import EngineOnce
    from heliograph.flow.warm import Compiler

LOOK_S = 0.2


class Prepared:
    def __init__(self) -> None:
        self._ends = ExitStack()
        self._spark: EngineOnce | None = None
        self._compiler: Compiler | None = None
        self._thread = threading.Thread(target=self._begin, name="preparing", daemon=True)
        self._thread.start()

    @property
    def spark(self) -> EngineOnce | None:
        """None: it could not even be begun, and whoever needs it finds out why."""
        self._thread.join()
        return self._spark

    def await_kernels(self, stop: Stop) -> None:
        """For a demo none of whose records can be copied without them. Where they cannot be compiled its table says
        so."""
        self._thread.join()
        compiler = self._compiler
        if compiler is None or compiler.ensure():
            return
        with step("kernels, compiled once on this machine"):
            while not compiler.ensure() and not compiler.trouble and not stop.wait(LOOK_S):
                pass

    def close(self) -> None:
        self._thread.join()
        self._ends.close()

    def _begin(self) -> None:
        """Top of a thread."""
        from heliograph.flow import warm
        from heliograph.flow.runner import EngineOnce

        self._spark = EngineOnce(None, {}, "127.0.0.1")
        self._ends.callback(self._spark.stop, STOP_S)
        self._spark.begin()
        self._compiler, recorder = warm.compiler(), warm.Recorder()
        self._ends.callback(self._compiler.close)
        self._compiler.ensure()
        self._ends.callback(recorder.close)
        recorder.start()


@contextmanager
def prepared() -> Iterator[Prepared]:
    """Inside it goes on; what is missing is said before anything is started."""
    with step("Java") as done:
        java = find_java()
        done(f"Java {java.release}")
    made = Prepared()
    try:
        yield made
    finally:
        made.close()

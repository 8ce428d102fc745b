"""The kernels compiled by a process of their own, once on a machine: compiling in a task would stop its loop.

Records that pass as they stand are copied meanwhile; what must be rewritten, labelled or divided waits
(`batch.loading`). Many tasks may start at once: a lock lets one process compile, and the others find the kernels there.

Answers for starting that process, for its end (`close`, or the end of this process: it reads its standard input), and
for saying what went wrong. A compiler that failed is started again AGAIN_S later.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import structlog

from heliograph import batch

log = structlog.get_logger()

AGAIN_S = 60.0
LOOK_S = 1.0  # while another process compiles
END_S = 5.0
WAITING = "the kernels are being compiled, once on this machine: what has to be rewritten or divided waits for them"
COMPILE = (sys.executable, "-m", "heliograph.batch")


class Compiler:
    def __init__(self, command: tuple[str, ...] = COMPILE) -> None:
        self._command = command
        self._lock = threading.Lock()  # of the process and whether there may be one
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._again_at = 0.0
        self._closed = False
        self._waited = False
        self.trouble = ""

    def ensure(self) -> bool:
        """Start compiling unless it was done, is being done, or has just failed. Whether the kernels are compiled."""
        if batch.compiled():
            return True
        running = self._thread is not None and self._thread.is_alive()
        if running or self._closed or time.monotonic() < self._again_at:
            return False
        self._again_at = time.monotonic() + LOOK_S
        with batch.compiling(wait=False) as nobody_compiles:
            pass
        if nobody_compiles:
            self._thread = threading.Thread(target=self._compile, name="heliograph-compiler", daemon=True)
            self._thread.start()
        return False

    @property
    def waiting(self) -> str:
        """In words, why something waits for the kernels. Logged the first time."""
        if not self._waited:
            self._waited = True
            log.warning(WAITING)
        return self.trouble or WAITING

    def close(self) -> None:
        """What was compiled until now stays in numba's cache."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        if self._thread is not None:
            self._thread.join(END_S)

    def _compile(self) -> None:
        """Top of a thread, which lives as long as the process that compiles."""
        began = time.monotonic()
        try:
            code, said = self._run()
        except OSError as error:  # no memory, no processes left
            code, said = -1, str(error)
        if self._closed:
            return
        if code == 0 and batch.compiled():
            self.trouble = ""
            log.info("kernels compiled", seconds=round(time.monotonic() - began, 1))
            return
        self._again_at = time.monotonic() + AGAIN_S
        self.trouble = f"the kernels could not be compiled, which is tried again within a minute: {said or code}"
        log.warning("the kernels could not be compiled; trying again", code=code, why=said, again_s=AGAIN_S)

    def _run(self) -> tuple[int, str]:
        """Exit code and last words."""
        # As this process found its packages: a worker's path may be Spark's doing.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self._lock:
            if self._closed:
                return 0, ""
            # In a session of its own: Ctrl-C is for us, and its standard input ends with us.
            process = self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stderr is not None
        with process.stdin, process.stderr:
            said = process.stderr.read().decode(errors="replace").strip().splitlines()
            code = process.wait()
        with self._lock:
            self._process = None
        return code, said[-1] if said else ""


_of_process = Compiler()


def of_process() -> Compiler:
    """The one of all tasks of this process, which end before it does."""
    return _of_process


def _forget() -> None:
    """A forked child has neither the thread nor the process."""
    global _of_process
    _of_process = Compiler()


os.register_at_fork(after_in_child=_forget)

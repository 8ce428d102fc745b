"""Processes and temporary folders that do not outlive us, however we end.

A `Process` is a command with a log file; `Folder` a temporary folder. Both are known to one watchdog process
(`watchdog.py`) from before they exist until after they are gone. Deciding what to run is not done here.

Invariant: a process is registered by itself, through the inherited pipe, before it becomes the command (`sh` writes its
pid, closes the pipe and execs), so there is no moment at which our death would leave it behind.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from heliograph.errors import EmbeddedError


class Watchdog:
    """The pipe to this Python process's watchdog, which is started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._pipe = -1
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pipe(self) -> int:
        with self._lock:
            if self._owner != os.getpid():  # a forked child needs its own: the parent's watches the parent
                self._start()
            return self._pipe

    def _start(self) -> None:
        reading, writing = os.pipe()
        script = Path(__file__).with_name("watchdog.py")
        # A session of its own, so that a Ctrl-C or the end of a terminal does not take it first.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script)], stdin=reading, stdout=subprocess.DEVNULL, start_new_session=True
        )
        self._process.returncode = 0  # never waited for: it ends after us, and Popen must not complain about that
        os.close(reading)
        self._pipe, self._owner = writing, os.getpid()

    def tell(self, line: str) -> None:
        try:
            os.write(self.pipe, f"{line}\n".encode())  # shorter than PIPE_BUF, so lines of several threads do not mix
        except BrokenPipeError as error:
            if line.startswith("+"):  # what is gone already needs no watchdog
                raise EmbeddedError(
                    "the watchdog process of embedded clusters was killed", fix="Start this program again"
                ) from error


WATCHDOG = Watchdog()


class Folder:
    """A temporary folder, deleted by `delete` or by our end."""

    def __init__(self, prefix: str) -> None:
        parent = Path(tempfile.gettempdir()).resolve()
        self.path = parent / f"{prefix}{os.getpid()}-{os.urandom(4).hex()}"
        WATCHDOG.tell(f"+folder {self.path}")
        self.path.mkdir(mode=0o700)

    def delete(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path.exists():
            raise EmbeddedError(f"the folder {self.path} cannot be deleted", fix="See who still writes there")
        WATCHDOG.tell(f"-folder {self.path}")


class Process:
    """One run of a command, its output in a file, in a session of its own (our Ctrl-C does not reach it)."""

    def __init__(
        self, name: str, command: Sequence[str | Path], *, log_path: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log_path = log_path
        words = " ".join(shlex.quote(str(word)) for word in command)
        # The pipe comes as standard input: the one descriptor number that every sh can name besides 1 and 2.
        script = f'echo "+pid $$" >&0; exec </dev/null; exec {words}'
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", script],
                stdin=WATCHDOG.pipe,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._ended() is None

    def _ended(self) -> int | None:
        code = self._process.poll()
        if code is not None:
            WATCHDOG.tell(f"-pid {self.pid}")
        return code

    def signal(self, number: int) -> None:
        if self.running:
            self._process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP, and wait until every thread of it stands still: on a busy machine that takes a moment."""
        self.signal(signal.SIGSTOP)
        while self._process.returncode is None:
            pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
            if pid and os.WIFSTOPPED(status):
                return
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
            time.sleep(0.001)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._ended()

    def stop(self, timeout_seconds: float = 30) -> bool:
        """SIGTERM, and wait; SIGKILL when that takes too long. Whether it ended by itself."""
        self.signal(signal.SIGCONT)  # a paused process would never see the SIGTERM
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._ended()
        return True

    def last_lines(self, count: int = 20) -> str:
        with self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - 64 * 1024))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-count:])

    def require_running(self) -> None:
        """Raise, with the end of the log, when the process has ended."""
        code = self._ended()
        if code is not None:
            raise EmbeddedError(
                f"{self.name} ended with exit code {code}; the end of its log:\n{self.last_lines()}",
                fix="The first ERROR or Exception above says why",
                process=self.name,
            )

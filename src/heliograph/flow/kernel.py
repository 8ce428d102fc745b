"""What this machine's kernel calls a process: enough to know, of a record that somebody wrote, whether that one lives.

A host name and a process id are not: containers on the host's network share its name and count their processes from 1,
and ids are used again. So a process is known by the boot of its machine, the namespace of its id, the id, and when it
started. Where /proc does not say (another system than Linux), nothing is known, which is never taken for dead.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ENDED = ("Z", "X")  # states of a process that is no more than its parent's to ask about


@dataclass(frozen=True, slots=True)
class Where:
    """ "" or 0: not known."""

    boot: str = ""
    namespace: str = ""  # of process ids
    started: int = 0  # ticks after the boot

    def shares_ids(self, other: Where) -> bool:
        """Whether an id means the same process in both."""
        return bool(self.boot and self.namespace) and (self.boot, self.namespace) == (other.boot, other.namespace)


def here() -> Where:
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return Where(boot, os.readlink(PROC / "self/ns/pid"), started(os.getpid()))
    except (OSError, ValueError):
        return Where()


def up_ms() -> int:
    """Since the boot, sleep included: the same for all processes of this machine, whatever its clock is set to."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


def started(pid: int) -> int:
    """0: it cannot be seen."""
    return _seen(pid)[1]


def has_ended(pid: int, since: int) -> bool:
    """For certain: no process has that id, or one that ended and waits for its parent, or one that started later."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # somebody else's, and there
    state, now = _seen(pid)
    return state in ENDED or bool(now and since and now != since)


def _seen(pid: int) -> tuple[str, int]:
    """Its state and when it started; ("", 0): it cannot be seen."""
    try:
        # The second field is the command's name, which may hold blanks and parentheses; the 3rd and 22nd are wanted.
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return fields[0].decode("ascii"), int(fields[19])
    except (OSError, ValueError, IndexError):
        return "", 0

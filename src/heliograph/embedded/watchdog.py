"""What remains to be done when the process that started brokers is gone: end them, delete their folders.

Runs as a process of its own (`python watchdog.py`, standard library only, so that it is up in milliseconds), reading
lines from a pipe whose other end only the starting process holds. The end of the pipe is the end of that process,
however it came: exit, SIGTERM, kill -9. PR_SET_PDEATHSIG would not do: it fires when the starting *thread* ends, and
deletes no folder. The other side of the pipe is `process.py`.

    +pid 123        a process to kill          -pid 123        it has ended and been waited for
    +folder /a/b    a folder to delete         -folder /a/b    it is gone
"""

import os
import shutil
import signal
import sys
import time


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C is meant for the starting process; its end is our signal
    things: dict[str, set[str]] = {"pid": set(), "folder": set()}
    for line in sys.stdin:
        kind, value = line[1:].rstrip("\n").split(" ", 1)
        if line.startswith("+"):
            things[kind].add(value)
        else:
            things[kind].discard(value)
    for pid in things["pid"]:
        end(int(pid))
    for folder in things["folder"]:
        delete(folder)


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:  # until init has reaped it: a dying JVM still writes into its folder
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)


def delete(folder: str) -> None:
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()

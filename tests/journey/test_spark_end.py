"""The end of Spark, in a process of its own: a JVM that does not end in time is killed, and that is nobody's error."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import signal, time
from heliograph.cli import logs
logs.configure()
from heliograph.spark.engine import Engine
engine = Engine(master=None, slots=1, settings={}, address="127.0.0.1")
engine.session.sparkContext._gateway.proc.send_signal(signal.SIGSTOP)
engine.stop(0.3)
time.sleep(1)
print("over")
"""


def test_a_jvm_killed_before_it_has_ended_is_not_spoken_of() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")

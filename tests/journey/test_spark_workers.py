"""Which Python processes a local Spark starts before a query's first task: no more than it must. (No broker.)"""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, time
import psutil
from heliograph.spark import archive
from heliograph.spark.engine import Engine

def started(module):
    "Processes that the JVM itself started, by the module they run; not those forked from them."
    found = []
    for one in jvm.children():
        try:
            if module in " ".join(one.cmdline()):
                found.append(one.pid)
        except psutil.Error:  # it has ended, or is a zombie
            pass
    return found

def until(holds):
    while not holds():
        time.sleep(0.1)

engine = Engine(master=None, slots=8, settings={}, address="127.0.0.1")
jvm = psutil.Process(engine.session.sparkContext._gateway.proc.pid)
engine.session.dataSource.register(archive.WarmSource)
looked = started("lookup_data_sources")
query = engine.session.readStream.format(archive.WarmSource.name()).load().writeStream.format("noop").start()
until(lambda: not query.isActive or len(query.recentProgress) > 1)
print(json.dumps({
    "parents": len(started("heliograph.spark.daemon")),
    "looked": bool(looked or started("lookup_data_sources")),
    "failure": str(query.exception() or ""),
}))
engine.stop(5)
"""


def test_nothing_looks_for_data_sources_and_workers_have_one_parent() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"parents": 1, "looked": False, "failure": ""}

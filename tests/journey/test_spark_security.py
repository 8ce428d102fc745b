"""A local Spark: its ports answer nobody without its secret, which is nowhere to be read (no broker)."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import json, socket
from pathlib import Path
import psutil
from heliograph.spark.engine import Engine
engine = Engine(master=None, slots=1, settings={"spark.hadoop.some.password": "hunter2"}, address="127.0.0.1")
context = engine.session.sparkContext
process = psutil.Process(context._gateway.proc.pid)
family = [process, *process.children(recursive=True)]

def seen(ask):
    try:
        return list(ask())
    except psutil.NoSuchProcess:  # a zombie, too
        return []

conf = dict(context.getConf().getAll())
hadoop = context._jvm.org.apache.hadoop  # where SecurityManager keeps the secret that it made
credentials = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
secret = bytes(credentials.getSecretKey(hadoop.io.Text("sparkCookie")) or b"").decode()
lines = " ".join(word for one in family for word in seen(one.cmdline))
print(json.dumps({
    "authenticated": conf["spark.authenticate"],
    "encrypted": [conf[key] for key in ("spark.network.crypto.enabled", "spark.io.encryption.enabled")],
    "long": len(secret) >= 32,
    "in_argv": secret in lines or "hunter2" in lines,
    "in_conf": secret in conf.values(),
    "password": conf["spark.hadoop.some.password"],
    "listening": sorted({
        end.laddr.ip for one in family for end in seen(lambda: one.net_connections("tcp")) if end.status == "LISTEN"
    }),
    "sum": context.parallelize(range(10), 2).map(lambda number: number * 2).sum(),
}))
engine.stop(5)
"""


def test_a_local_sparks_ports_are_authenticated_and_its_secret_is_nowhere_to_be_read() -> None:
    import json

    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("listening") in (["127.0.0.1"], ["127.0.0.1", "::ffff:127.0.0.1"], ["::ffff:127.0.0.1"])
    assert found == {
        "authenticated": "true",
        "encrypted": ["true", "true"],
        "long": True,
        "in_argv": False,
        "in_conf": False,
        "password": "hunter2",
        "sum": 90,
    }

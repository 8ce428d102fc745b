"""All tests, in two runs of pytest at the same time: `python -m tests`, or `make test`. With arguments: just pytest.
`--quick` (`make quick`): units in one, properties in the other.

Brokers and Spark make tests wait, so that one run leaves nearly half of two cores idle. Beside the first run go tests
that do not mind how busy the machine is: units, properties, and those of brokers that nobody kills, freezes or times.
The first begins with those that mind least. Both runs end with pytest's own closing line; what the second one said
comes when both are over. The code is 0 only if both are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PYTEST = (sys.executable, "-m", "pytest")
NICE = 5
QUICK = ("unit", "property")

BESIDE = (
    *QUICK,
    *(
        f"broker/test_{name}.py"
        for name in (
            *("batch_real", "config_against_mm2", "connect_clients", "connect_worker", "connectors", "embedded"),
            *("embedded_security", "java_client", "messages", "mm2_scenarios", "plan", "secure_copy", "seeds"),
            *("start_points", "strangers", "swap", "topic_sync", "topologies", "translation", "wire_security"),
        )
    ),
    *(
        f"journey/test_{name}.py"
        for name in (
            "cli_doctor",
            "connect_described",
            "demo",
            "hub_spoke",
            "spark_end",
        )
    ),
)
FIRST = ("content", "both_ways", "honest", "partition_counts", "bad_input", "wire_cluster", "wire_groups")


def first_run() -> list[str]:
    """Every file that is not in the other run, those of FIRST before the others."""
    found = [f"{path.parent.name}/{path.name}" for path in sorted(HERE.glob("*/test_*.py"))]
    early = [f"broker/test_{name}.py" for name in FIRST]
    return early + [name for name in found if name not in {*early, *BESIDE} and name.split("/")[0] not in BESIDE]


def paths(names: Sequence[str]) -> list[str]:
    return [str(HERE / name) for name in names]


def main(arguments: list[str]) -> int:
    quick, more = arguments[:1] == ["--quick"], [one for one in arguments if one != "--quick"]
    if more:
        return subprocess.call([*PYTEST, *(paths(QUICK) if quick else ()), *more])
    return both(QUICK[:1], QUICK[1:], nice=0) if quick else both(first_run(), BESIDE, nice=NICE)


def both(first: Sequence[str], second: Sequence[str], *, nice: int) -> int:
    with tempfile.TemporaryFile("w+") as said:
        # A cache each: the first run's would be written over by the second's.
        command = [*PYTEST, *paths(second), "-o", "cache_dir=.pytest_cache/beside"]
        with subprocess.Popen(command, stdout=said, stderr=said, preexec_fn=lambda: os.nice(nice)) as beside:
            print(f"a second run goes beside this one, and is told at its end: {', '.join(second)}", flush=True)
            code = subprocess.call([*PYTEST, *paths(first)])
            beside_code = beside.wait()
        said.seek(0)
        print(f"\nbeside those, code {beside_code}:\n{said.read()}", flush=True)
    return code or beside_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

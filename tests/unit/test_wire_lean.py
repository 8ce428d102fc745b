"""What a task does not need is not imported by it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import heliograph.mirror.task
assert not {"hypothesis", "numba", "numpy", "pyspark"} & sys.modules.keys(), sorted(sys.modules)
import hypothesis.strategies
"""


def test_a_task_imports_neither_hypothesis_nor_numba() -> None:
    """And whoever wants hypothesis afterwards gets it."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)

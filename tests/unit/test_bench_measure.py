"""The stop-watch of the benchmark: windows, percentiles, and a tree of processes that loses a child."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import pytest
from bench.measure import Tree, copy_window, median, percentile, percentiles, value_at


def test_window_runs_from_five_percent_to_the_moment_all_is_there() -> None:
    progress = [(0.0, 0), (10.0, 0), (10.5, 40), (11.0, 60), (12.0, 500), (13.0, 1000), (20.0, 1000)]
    window = copy_window(progress, 1000)
    assert window is not None
    assert (window.begin_s, window.end_s) == (11.0, 13.0)
    assert window.records == 940
    assert window.records_per_s == 470


def test_window_of_a_copy_that_did_not_finish_ends_at_its_last_progress() -> None:
    window = copy_window([(0.0, 0), (1.0, 10), (2.0, 100), (60.0, 100)], 1000)
    assert window is not None
    assert (window.begin_s, window.end_s, window.records) == (1.0, 2.0, 90)


def test_window_of_a_doubled_copy_ends_when_the_count_is_reached() -> None:
    window = copy_window([(0.0, 0), (1.0, 100), (2.0, 1100), (3.0, 1500)], 1000)
    assert window is not None
    assert (window.end_s, window.records) == (2.0, 900)


@pytest.mark.parametrize("progress", [[], [(0.0, 0), (1.0, 0)], [(0.0, 0), (1.0, 1000)]])
def test_no_window_without_two_moments(progress: list[tuple[float, float]]) -> None:
    assert copy_window(progress, 1000) is None


def test_value_between_samples_lies_on_the_line() -> None:
    series = [(1.0, 10.0), (2.0, 20.0), (4.0, 20.0)]
    assert value_at(series, 1.5) == 15.0
    assert value_at(series, 3.0) == 20.0
    assert value_at(series, 0.0) == 10.0
    assert value_at(series, 9.0) == 20.0
    assert value_at([], 9.0) == 0.0


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(v) for v in range(1, 1001)]
    assert [percentile(values, p) for p in (0, 50, 95, 99, 99.9, 100)] == [1, 500, 950, 990, 999, 1000]
    assert percentile([7.0], 99.9) == 7.0
    assert math.isnan(percentile([], 50))
    assert percentiles([3.0, 1.0, 2.0]) == {"p50_ms": 2.0, "p95_ms": 3.0, "p99_ms": 3.0, "p99.9_ms": 3.0}


def test_median_of_even_and_odd() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0]) == 2.5


BURN = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
PARENT = f"""
import subprocess, sys, time
subprocess.run([sys.executable, '-c', {BURN!r}])
print('dead', flush=True)
time.sleep(60)
"""


def test_tree_keeps_the_cpu_of_a_child_that_died() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        try:
            with Tree(parent.pid) as tree:
                assert parent.stdout is not None
                assert parent.stdout.readline() == "dead\n"
                before = len(tree.cpu)
                deadline = time.monotonic() + 10
                while len(tree.cpu) < before + 2 and time.monotonic() < deadline:
                    time.sleep(0.01)
                tree.sample_memory()
                assert tree.cpu_s >= 0.1  # the child burnt 0.3 s; one sampling interval of it may be missed
                assert tree.peak_mb > 1
        finally:
            parent.kill()
    values = [value for _, value in tree.cpu]
    assert values == sorted(values)

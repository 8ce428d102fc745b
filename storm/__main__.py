"""`python -m storm`: two clusters mirrored both ways, faults at seeded random, and a verdict. See `make storm`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from confluent_kafka import KafkaException
from rich.console import Console

from heliograph.errors import HeliographError
from storm.clusters import Side, properties, two_sides
from storm.course import Course, Say
from storm.mirror import Mirror
from storm.plan import BY_NAME, KINDS, SECONDS_A_FAULT, draw_plan
from storm.report import Bounds, Summary, as_json, show


def _kinds(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise click.BadParameter(f"no kind of fault called {', '.join(unknown)}; there are: {', '.join(BY_NAME)}")
    return names


@click.command(epilog="Kinds: " + "; ".join(f"{kind.name} ({kind.says})" for kind in KINDS))
@click.option("--faults", type=click.IntRange(min=0), default=1000, show_default=True, help="How many.")
@click.option("--seed", default=1, show_default=True, help="Draws every fault, its victim, time and length.")
@click.option("--old", is_flag=True, help="Records three days old; brokers look for expired producers every second.")
@click.option("--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Of each cluster.")
@click.option("--minutes", type=click.FloatRange(min=0.1), help="Spread over so long.  [default: 1.8 s a fault]")
@click.option("--only", callback=_kinds, default="", metavar="KIND,...", help="Faults of these kinds alone.")
@click.option("--rate", default=3000.0, show_default=True, help="Records a second into each cluster.")
@click.option("--level-seconds", default=60.0, show_default=True, help="Bound: level again after the last fault.")
@click.option("--task-mb", default=512.0, show_default=True, help="Bound: memory of one task.")
@click.option("--driver-mb", default=512.0, show_default=True, help="Bound: memory of a driver, without its JVM.")
@click.option("--keep", is_flag=True, help="Keep the logs also when all is well.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    faults: int,
    seed: int,
    old: bool,
    brokers: str,
    minutes: float | None,
    only: tuple[str, ...],
    rate: float,
    level_seconds: float,
    task_mb: float,
    driver_mb: float,
    keep: bool,
    output: str,
) -> None:
    """Mirror two clusters both ways under load, do faults to everything, and judge the copies and the groups.

    Exit code 0: every acknowledged record is in the copy once and in order, no group was put past a record it had not
    read, both sides were level in time, memory stayed within its bounds. 1: the summary says what is wrong.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every `finally` runs, as it does for Ctrl-C
    summary = Summary(seed, old, int(brokers))
    minutes = minutes if minutes is not None else faults * SECONDS_A_FAULT / 60
    lanes = draw_plan(seed, faults, minutes=minutes, brokers=int(brokers), only=only)
    say = _say(time.monotonic())
    with _logs(summary, keep) as folder, ExitStack() as stack:
        say(f"starting two clusters of {brokers} broker(s); logs in {folder}")
        sides = stack.enter_context(two_sides(brokers=int(brokers), old=old))
        stack.callback(_keep_broker_logs, sides, folder)
        files = {
            "first": properties(sides, tasks_max=2),
            # Other tasks.max alone would be the same work, which two processes may share.
            "other": properties(sides, tasks_max=3, emit_checkpoints_interval_seconds=3),
        }
        mirror = Mirror(folder, files)
        stack.callback(mirror.close)
        course = Course(sides, mirror, seed=seed, rate=rate, old=old, say=say)
        stack.callback(course.abandon)
        try:
            course.begin()
            say("both flows copy; the faults begin")
            course.run(lanes)
            course.settle(summary)
            code = mirror.stop()
            if code != 0:
                summary.trouble.append(f"the last process ended with {code}:\n{mirror.main.words(10)}")
            course.judge(summary)
            left = mirror.left_over()
            if left:
                summary.trouble.append(f"processes outlived the driver they belonged to: {', '.join(left)}")
        except (TimeoutError, HeliographError, KafkaException, AssertionError, ValueError) as error:
            summary.trouble.append(f"the storm could not go on: {type(error).__name__}: {error}")
        summary.judge(Bounds(level_seconds, task_mb, driver_mb))
    if output == "json":
        click.echo(as_json(summary))
    show(summary, Console(stderr=output == "json", soft_wrap=True))
    sys.exit(0 if summary.passed else 1)


def _say(began: float) -> Say:
    def say(text: str) -> None:
        click.echo(f"[{_clock(time.monotonic() - began)}] {text}", err=True)

    return say


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@contextmanager
def _logs(summary: Summary, keep: bool) -> Iterator[Path]:
    """A folder for what the processes say: kept when asked, and when something is wrong."""
    folder = Path(tempfile.mkdtemp(prefix=f"storm-{summary.seed}-{os.getpid()}-"))
    try:
        yield folder
    finally:
        if keep or not summary.passed:
            summary.logs = str(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _keep_broker_logs(sides: Mapping[str, Side], folder: Path) -> None:
    for name, side in sides.items():
        for broker in side.kafka.brokers:
            if broker.log_path.exists():
                shutil.copyfile(broker.log_path, folder / f"{name}-broker-{broker.id}.log")


if __name__ == "__main__":
    main()

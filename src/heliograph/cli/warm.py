"""`heliograph warm`: what only needs to be done once on a machine, done now, so that starts are quick."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heliograph.cli import out

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option("--again", is_flag=True, help="Make them anew even if they are there.")
@click.option(
    "--kafka", is_flag=True, help="Also an archive of Kafka's classes, for demos, tests and embedded clusters."
)
def command(again: bool, kafka: bool) -> None:
    """Prepare this machine: compiled kernels, and an archive of Spark's classes.

    Both are kept in the user's cache folder. `heliograph run` works without them; with them it copies its first record
    in about half the time. Run it once after an installation, and after Java or PySpark was upgraded.
    """
    console = out.console(stderr=True)
    with console.status("compiling kernels …"):
        began = time.monotonic()
        from heliograph.flow import warm

        warm.kernels()
    console.print(f"kernels ready ({time.monotonic() - began:.1f} s)")
    path = warm.classes()
    if path is None:
        console.print("no Java found: `heliograph doctor` says what is missing")
        raise SystemExit(2)
    _archive(console, "Spark", path, again, lambda: warm.record_classes(path))
    if kafka:
        from heliograph.embedded import archive
        from heliograph.embedded.jars import fetch_jars

        jars = fetch_jars()
        _archive(console, "Kafka", archive.path(jars), again, lambda: archive.make(jars))


def _archive(console: Console, whose: str, path: Path, again: bool, make: Callable[[], object]) -> None:
    if path.exists() and not again:
        console.print(f"{whose}'s class archive is there")
        return
    with console.status(f"recording {whose}'s classes (half a minute at most, once) …"):
        began = time.monotonic()
        make()
    console.print(f"{whose}'s class archive written ({path.stat().st_size >> 20} MB, {time.monotonic() - began:.0f} s)")

"""`heliograph warm`: what only needs to be done once on a machine, done now, so that starts are quick."""

from __future__ import annotations

import time

import click
from rich.console import Console


@click.command()
@click.option("--again", is_flag=True, help="Make them anew even if they are there.")
def command(again: bool) -> None:
    """Prepare this machine: compiled kernels, and an archive of Spark's classes.

    Both are kept in the user's cache folder. `heliograph run` works without them; with them it copies its first record
    in about half the time. Run it once after an installation, and after Java or PySpark was upgraded.
    """
    console = Console(stderr=True)
    with console.status("compiling kernels …"):
        began = time.monotonic()
        from heliograph.flow import warm

        warm.kernels()
    console.print(f"kernels ready ({time.monotonic() - began:.1f} s)")
    path = warm.classes()
    if path is None:
        console.print("no Java found: `heliograph doctor` says what is missing")
        raise SystemExit(2)
    if path.exists() and not again:
        console.print("Spark's class archive is there")
        return
    with console.status("recording Spark's classes (some 30 s, once) …"):
        began = time.monotonic()
        warm.record_classes(path)
    console.print(f"Spark's class archive written ({path.stat().st_size >> 20} MB, {time.monotonic() - began:.0f} s)")

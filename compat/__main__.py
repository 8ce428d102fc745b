"""`python -m compat`: hard topics between the pinned Kafka and other releases. See `make compat`."""

from __future__ import annotations

import datetime
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from compat import results
from compat.course import Say, run_row
from heliograph import __version__
from heliograph.embedded.releases import PINNED, RELEASES
from heliograph.errors import HeliographError

OTHERS = tuple(name for name in RELEASES if name != PINNED)
ROLES = ("source", "target")


def _several(known: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], tuple[str, ...]]:
    def check(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise click.BadParameter(f"{', '.join(unknown) or 'nothing'}: there are {', '.join(known)}")
        return names

    return check


@click.command()
@click.option("--releases", default=",".join(OTHERS), show_default=True, callback=_several(OTHERS), help="Of Kafka.")
@click.option(
    "--roles", default=",".join(ROLES), show_default=True, callback=_several(ROLES), help="Of those releases."
)
@click.option("--seed", default=1, show_default=True, help="Draws the moment of the kill -9.")
@click.option("--save/--no-save", default=True, show_default=True, help="Into compat/results.json and the README.")
@click.option("--keep", is_flag=True, help="Keep the logs of the processes.")
def main(releases: tuple[str, ...], roles: tuple[str, ...], seed: int, save: bool, keep: bool) -> None:
    """Copy hard topics between Kafka releases, with a kill -9 in between, and compare every record.

    Prints the matrix of what was run now. Exit code 1: a copy differs, or a flow did not come to its end.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every `finally` runs, as it does for Ctrl-C
    began = time.monotonic()
    rows: list[results.Row] = []

    def say(text: str) -> None:
        spent = int(time.monotonic() - began)
        click.echo(f"[{spent // 60}:{spent % 60:02d}] {text}", err=True)

    for number, (source, target) in enumerate(_pairs(releases, roles)):
        folder = Path(tempfile.mkdtemp(prefix=f"compat-{source}-{target}-"))
        try:
            row = run_row(source, target, folder, seed + number, say)
        except HeliographError as error:
            row = results.Row(source, target, trouble=str(error)[:600])
        row.when, row.heliograph = datetime.datetime.now(datetime.UTC).date().isoformat(), __version__
        rows.append(row)
        _end(folder, keep or not row.passed, say)
        say(f"{row.name}: {'exact' if row.passed else 'FAILED'} in {row.seconds:.0f} s")
        if save:
            _save(row)
    click.echo(results.markdown(rows))
    for said in results.wrong(rows):
        click.echo(said, err=True)
    sys.exit(0 if all(row.passed for row in rows) else 1)


def _pairs(releases: tuple[str, ...], roles: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(one, PINNED) if role == "source" else (PINNED, one) for one in releases for role in roles]


def _end(folder: Path, keep: bool, say: Say) -> None:
    if keep:
        say(f"logs: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _save(row: results.Row) -> None:
    """After each row: what was run stays, also when a later one is interrupted."""
    rows = results.merge(results.read(), [row])
    results.write(rows)
    text = results.README.read_text()
    renewed = results.in_readme(text, rows)
    if renewed != text:
        results.README.write_text(renewed)


if __name__ == "__main__":
    main()

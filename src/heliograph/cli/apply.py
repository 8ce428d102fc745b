"""`heliograph apply FILE`: a running process takes up its edited file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from heliograph.cli.logs import log_options
from heliograph.cli.out import echo
from heliograph.cli.steered import of_file, who

ANSWER_S = 120.0  # flows that begin anew end first, and reach their clusters


@click.command("apply", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@log_options
def command(file: Path) -> int:
    """Let the process that runs FILE take it up as it is now, without a restart; SIGHUP to the process does the same.

    The file is checked as a whole first: with a problem in it nothing changes, the process goes on as before, all
    problems are said, and the exit code is 2. Then only flows that the file touches are touched: one that is new is
    started, one that is gone is stopped, one whose settings changed takes them up as it runs; one whose clusters,
    security or naming changed begins anew, alone. What changed is said key by key, secrets masked, with what that did.

    \b
    Examples:
      heliograph apply mm2.properties
      kill -HUP PID

    Exit codes: 0 taken up (or nothing to do), 2 the file must be put right, or nobody runs it.
    """
    from heliograph.control.client import speak

    for process in of_file(file):
        answer = speak(process.place, {"do": "apply", "by": who()}, ANSWER_S)
        for warning in answer["warnings"]:
            echo(f"warning: {warning}", err=True)
        echo(f"{process}: {head(answer)}")
        for line in answer["lines"]:
            echo(f"  {line}")
    return 0


def head(answer: Mapping[str, Any]) -> str:
    if not answer["lines"]:
        return f"nothing to do, generation {answer['generation']} stays"
    return f"taken up as generation {answer['generation']} ({answer['digest']})"

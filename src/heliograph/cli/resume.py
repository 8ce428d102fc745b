"""`heliograph resume FLOW [TOPIC[:PARTITION]]`: lets what was paused or stopped go on."""

from __future__ import annotations

from pathlib import Path

import click

from heliograph.cli.logs import log_options
from heliograph.cli.steered import order, whose


@click.command("resume", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@whose
@log_options
def command(flow: str, what: str | None, file: Path | None) -> int:
    """Let FLOW, one of its topics, or one partition go on, where it stood; each record is copied once.

    It takes back the order about just this, and all orders about what is in it: resuming a flow resumes its topics and
    partitions too. What is still held back by a wider order is said.

    The process is found on this machine, among those that you started; with several of the same file each is told.

    \b
    Examples:
      heliograph resume 'us->eu'
      heliograph resume 'us->eu' orders
      heliograph resume 'us->eu' orders:3 --file mm2.properties

    Exit codes: 0 done, 2 no such process, flow, topic or partition.
    """
    return order("resume", flow, what, file)

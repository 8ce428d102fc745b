"""`heliograph pause FLOW [TOPIC[:PARTITION]]`: pauses a flow, a topic or a partition that runs."""

from __future__ import annotations

from pathlib import Path

import click

from heliograph.cli.logs import log_options
from heliograph.cli.steered import order, whose


@click.command("pause", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@whose
@log_options
def command(flow: str, what: str | None, file: Path | None) -> int:
    """Pause FLOW, one of its topics, or one partition, within a second; everything else goes on.

    What is paused keeps its place and goes on where it stood, each record once. It stays paused over restarts and for
    every process that runs the flow, until `heliograph resume`: the order is kept on the target. Paused is healthy:
    `/health` says so and stays 200; lag grows meanwhile, and retention does not wait.

    The process is found on this machine, among those that you started; with several of the same file each is told.

    \b
    Examples:
      heliograph pause 'us->eu'
      heliograph pause 'us->eu' orders
      heliograph pause 'us->eu' orders:3 --file mm2.properties

    Exit codes: 0 done, 2 no such process, flow, topic or partition.
    """
    return order("pause", flow, what, file)

"""`heliograph stop FLOW [TOPIC[:PARTITION]]`: stops a flow, a topic or a partition; the rest goes on."""

from __future__ import annotations

from pathlib import Path

import click

from heliograph.cli.logs import log_options
from heliograph.cli.steered import order, whose


@click.command("stop", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@whose
@log_options
def command(flow: str, what: str | None, file: Path | None) -> int:
    """Stop FLOW, one of its topics, or one partition, within a second; everything else goes on.

    As `pause`, and tasks give it up: it is in no plan until `heliograph resume`. Of a flow that is stopped as a whole
    everything rests, also checkpoints, heartbeats and what follows topics' settings. The process goes on (Ctrl-C or
    SIGTERM ends that).

    The process is found on this machine, among those that you started; with several of the same file each is told.

    \b
    Examples:
      heliograph stop 'us->eu'
      heliograph stop 'us->eu' orders
      heliograph stop 'us->eu' orders:3 --file mm2.properties

    Exit codes: 0 done, 2 no such process, flow, topic or partition.
    """
    return order("stop", flow, what, file)

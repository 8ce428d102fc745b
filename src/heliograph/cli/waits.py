"""`--wait`: how long a verb waits for clusters that are away when it starts."""

from __future__ import annotations

import click

WAIT_S = 60.0  # a broker that restarts is back by then, and so is a name in a cluster of containers

wait_option = click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="For clusters that are away at the start; 0: not at all.",
)

"""`heliograph connect FILE`: a node of a Connect cluster, until somebody stops it."""

from __future__ import annotations

import time
from pathlib import Path

import click

from heliograph.cli.logs import log_options
from heliograph.cli.out import echo
from heliograph.cli.pairs import HELP
from heliograph.cli.waits import wait_option


@click.command("connect", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--master", metavar="URL", help="Spark to run on. Unset: local, on this machine.")
@click.option("-X", "settings", multiple=True, metavar="KEY=VALUE", help=f"Any Spark setting; may be repeated. {HELP}")
@click.option(
    "--epoch-seconds",
    type=click.FloatRange(min=1),
    help="Between two plans. Unset: 60, or 5 for each flow if that is more.",
)
@click.option("--seconds", type=click.FloatRange(min=0), help="End by itself after so long.")
@click.option("--users", type=click.Path(path_type=Path), help="Who may: a file that `heliograph users` writes.")
@wait_option
@click.option("--insecure", is_flag=True, help="Listen beyond loopback although nobody is asked for a password.")
@click.option(
    *("--allow-host", "allowed_hosts"),
    multiple=True,
    metavar="NAME",
    help="A further name that requests may call this server by (.example.org: all below it); may be repeated.",
)
@log_options
def command(
    file: Path,
    master: str | None,
    settings: tuple[str, ...],
    epoch_seconds: float | None,
    seconds: float | None,
    users: Path | None,
    wait: float,
    insecure: bool,
    allowed_hosts: tuple[str, ...],
) -> int:
    """Run MirrorMaker 2's connectors as FILE says, a connect-distributed.properties of Kafka Connect.

    Connectors are made, changed and watched by Connect's own REST API, on the port that FILE names; they are kept in
    the topics that it names. Several nodes with one group.id share the work.

    \b
    Examples:
      heliograph connect connect-distributed.properties
      curl -X PUT -H 'Content-Type: application/json' --data @mm2.json localhost:8083/connectors/mm2/config

    The cluster of the worker's own topics is waited for when it is away (--wait); clusters of connectors are tried
    again for as long as the node runs, and their connectors are FAILED meanwhile.

    \b
    Exit codes: 0 stopped in order, 1 it failed, 2 FILE or the cluster must be put right, 75 the cluster
    is unreachable: the same call may work later.
    """
    from heliograph.cli import watch
    from heliograph.cli.run import spark_settings
    from heliograph.config.worker import load
    from heliograph.connect.node import Node
    from heliograph.connect.serving import Serving

    found = load(file)
    for warning in found.warnings:
        echo(f"warning: {warning}", err=True)
    with watch.stopping() as stop:
        how = {"master": master, "spark_settings": spark_settings(settings), "epoch_seconds": epoch_seconds}
        node = Node(found, **how, name=str(file.absolute()), wait_s=wait)  # type: ignore[arg-type]
        serving = Serving(node, users=users, insecure=insecure, allowed_hosts=allowed_hosts)
        try:
            if not watch.start(serving, stop):
                return 0
            for url in serving.urls:
                echo(f"serving {url}", err=True)
            deadline = None if seconds is None else time.monotonic() + seconds
            while not stop.wait(0.2) and (deadline is None or time.monotonic() < deadline):
                pass
        finally:
            serving.stop(stop.left_s)
    return 0

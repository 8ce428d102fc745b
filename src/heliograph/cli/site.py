"""The one cluster that a verb is about: an alias of the file, or an address where there is no file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from heliograph.cli.chosen import load_config
from heliograph.errors import ConfigError
from heliograph.types import Cluster, Flow

DEFAULT_FILE = "mm2.properties"

F = TypeVar("F", bound=Callable[..., Any])


class Site(NamedTuple):
    cluster: Cluster
    flows: tuple[Flow, ...] = ()  # those of the file, whose names of topics count here


def site_options(function: F) -> F:
    """`[FILE] --cluster ALIAS`, or `--bootstrap-server HOST:PORT`."""
    for decorate in (
        click.option("--lenient", is_flag=True, help="Warn about unknown keys instead of refusing the file."),
        click.option("--bootstrap-server", metavar="HOST:PORT", help="A cluster without a file, PLAINTEXT."),
        click.option("--cluster", "alias", metavar="ALIAS", help="Which cluster of FILE."),
        click.argument("file", required=False, type=click.Path(path_type=Path)),
    ):
        function = decorate(function)
    return function


def site(file: Path | None, alias: str | None, bootstrap_server: str | None, lenient: bool) -> Site:
    if bootstrap_server is not None:
        if file is not None or alias is not None:
            raise click.UsageError(
                "--bootstrap-server stands in the place of FILE and --cluster: name one or the other"
            )
        return Site(Cluster(bootstrap_server, {"bootstrap.servers": bootstrap_server}))
    if file is None:
        file = Path(DEFAULT_FILE)
        if not file.exists():
            raise click.UsageError(
                f"no FILE is named and there is no {DEFAULT_FILE} here; or name a --bootstrap-server"
            )
    config = load_config(file, lenient)
    if alias is None or alias not in config.clusters:
        there = ", ".join(config.clusters)
        asked = "say which cluster with --cluster" if alias is None else f"--cluster {alias} is not in the file"
        raise ConfigError(f"{asked}: it has {there}", source=str(file))
    return Site(config.clusters[alias], (*config.flows, *config.heartbeat_only))

"""`heliograph kafka start NAME`: a real Kafka to play with, until Ctrl-C. How it is done: `heliograph.embedded`."""

from __future__ import annotations

import json
import signal
import threading
from types import FrameType

import click

from heliograph.cli.out import echo, echo_document
from heliograph.embedded.jars import fetch_jars
from heliograph.embedded.java import find_java
from heliograph.embedded.kafka import Kafka
from heliograph.embedded.listeners import MECHANISMS, PROTOCOLS


@click.group("kafka")
def command() -> None:
    """A real Kafka on this machine, from pinned jars, to play with."""


def _settings(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    wrong = [value for value in values if "=" not in value]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not KEY=VALUE")
    return dict(value.split("=", 1) for value in values)


@command.command("start")
@click.argument("name", default="kafka")
@click.option("--brokers", type=click.IntRange(1, 3), default=1, show_default=True, help="How many brokers.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the first broker, the next get the next; else any."
)
@click.option(
    "--security",
    type=click.Choice(PROTOCOLS, case_sensitive=False),
    multiple=True,
    default=("PLAINTEXT",),
    show_default=True,
    help="A listener each; may be given several times.",
)
@click.option("--mechanism", type=click.Choice(MECHANISMS), default="SCRAM-SHA-512", show_default=True, help="Shown.")
@click.option("--acls", is_flag=True, help="Authorize by ACLs; the user admin may do everything.")
@click.option("--mutual-tls", is_flag=True, help="The SSL listener asks for a client certificate.")
@click.option("--config", multiple=True, callback=_settings, metavar="KEY=VALUE", help="A broker setting; repeatable.")
@click.option("--output", "-o", type=click.Choice(("text", "json")), default="text", show_default=True)
def start(
    name: str,
    brokers: int,
    port: int | None,
    security: tuple[str, ...],
    mechanism: str,
    acls: bool,
    mutual_tls: bool,
    config: dict[str, str],
    output: str,
) -> None:
    """Start the cluster NAME, print how to reach it, and run until Ctrl-C. Its data is thrown away at the end."""
    find_java()
    fetch_jars()  # before the signals are ours: a Ctrl-C during a long download ends it at once
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    protocols = tuple(dict.fromkeys(one.upper() for one in security))
    kafka = Kafka(name, brokers=brokers, port=port, security=protocols, acls=acls, mutual_tls=mutual_tls, config=config)
    try:
        echo(f"starting {name}: {brokers} broker{'s' if brokers > 1 else ''}", err=True)
        kafka.launch()
        kafka.wait_ready(give_up=ended.is_set)
        if not ended.is_set():
            echo_document((_json if output == "json" else _text)(kafka, protocols, mechanism))
            echo(f"{name} is up; Ctrl-C ends it and deletes its data", err=True)
        while not ended.wait(0.5):
            kafka.require_running()
        echo(f"stopping {name}", err=True)
    finally:
        kafka.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _json(kafka: Kafka, protocols: tuple[str, ...], mechanism: str) -> str:
    listeners = {one: dict(kafka.cluster(security=one, mechanism=mechanism).properties) for one in protocols}
    pids = [broker.pid for broker in kafka.brokers]
    about = {"name": kafka.name, "cluster_id": kafka.cluster_id, "bootstrap": kafka.bootstrap, "pids": pids}
    return json.dumps({**about, "listeners": listeners}, indent=2)


def _text(kafka: Kafka, protocols: tuple[str, ...], mechanism: str) -> str:
    """Per listener: a section for an mm2.properties (or, without the alias, any Java client), and a line of Python."""
    parts = []
    for protocol in protocols:
        cluster = kafka.cluster(security=protocol, mechanism=mechanism)
        client = kafka.confluent(security=protocol, mechanism=mechanism)
        lines = [f"{kafka.name}.{key} = {value}" for key, value in cluster.properties.items()]
        parts.append("\n".join([f"# {protocol}, cluster id {kafka.cluster_id}", *lines]))
        parts.append(f"# Python: from confluent_kafka import Producer\nproducer = Producer({client!r})")
    return "\n\n".join(parts)

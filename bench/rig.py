"""The two clusters everything runs on: one broker a side, as Kafka's own scripts would start it.

A far side has a second listener: the copiers' listener is advertised behind a proxy that delays every byte by half a
round trip, the benchmark's own clients take the direct one (which asks for a password, since an embedded cluster tells
its listeners apart by protocol).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.scenarios import ROUND_TRIP_MS, Side
from bench.watch import Watch
from heliograph.embedded.broker import SERVER_JVM
from heliograph.embedded.kafka import Kafka, running
from heliograph.embedded.ports import LOOPBACK
from heliograph.embedded.proxy import Link
from heliograph.types import Cluster

BROKER_CONFIG = {
    "auto.create.topics.enable": "false",  # only the copier under test makes its topic
    "log.segment.delete.delay.ms": "500",  # what a peer wrote is off the disk before the next one's turn
}


DIRECT = "SASL_PLAINTEXT"  # the listener of a far cluster that the benchmark's own clients use


@dataclass(frozen=True, slots=True)
class Face:
    """One cluster: as the copiers reach it, and as the benchmark's own clients do."""

    copier: str  # bootstrap servers
    cluster: Cluster
    watch: Watch


@dataclass(frozen=True, slots=True)
class Rig:
    source: Face
    target: Face


@contextmanager
def rig(far: Side = "", more: Mapping[str, str] | None = None) -> Iterator[Rig]:
    """Both clusters up, with `more` settings, one of them far away if asked; all gone at the end."""
    config = {**BROKER_CONFIG, **(more or {})}
    with ExitStack() as stack:
        source, target = (_kafka(stack, name, far == name, config) for name in ("source", "target"))
        stack.enter_context(running(source, target))
        yield Rig(_face(source, far == "source"), _face(target, far == "target"))


def _kafka(stack: ExitStack, name: str, far: bool, config: Mapping[str, str]) -> Kafka:
    if not far:
        return Kafka(name, config=config, jvm=SERVER_JVM)

    def behind_the_link(_: int, listener: str, port: int) -> str:
        if listener == DIRECT:
            return f"{LOOPBACK}:{port}"
        return stack.enter_context(Link(port, delay_ms=ROUND_TRIP_MS / 2)).address

    return Kafka(name, config=config, jvm=SERVER_JVM, security=("PLAINTEXT", DIRECT), advertised=behind_the_link)


def _face(kafka: Kafka, far: bool) -> Face:
    security = DIRECT if far else ""
    cluster = kafka.cluster(security=security)
    return Face(kafka.bootstrap, cluster, Watch(kafka.confluent(security=security), cluster))

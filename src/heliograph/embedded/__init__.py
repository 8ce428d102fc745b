"""A real Kafka from pinned jars: for the demo, the tests and the benchmark. Nothing of the mirroring depends on it."""

from heliograph.embedded.broker import QUICK_JVM, SERVER_JVM, Broker
from heliograph.embedded.connect import ConnectWorker, connect_properties
from heliograph.embedded.kafka import Kafka, running
from heliograph.embedded.mirrormaker import MM2_JVM, QUICK_MM2_JVM, MirrorMaker, mm2_properties
from heliograph.embedded.proxy import Counts, Cuts, Link, Links

__all__ = [
    "MM2_JVM",
    "QUICK_JVM",
    "QUICK_MM2_JVM",
    "SERVER_JVM",
    "Broker",
    "ConnectWorker",
    "Counts",
    "Cuts",
    "Kafka",
    "Link",
    "Links",
    "MirrorMaker",
    "connect_properties",
    "mm2_properties",
    "running",
]

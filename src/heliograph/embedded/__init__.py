"""A real Kafka from pinned jars: for the demo, the tests and the benchmark. Nothing of the mirroring depends on it."""

from heliograph.embedded.broker import QUICK_JVM, Broker
from heliograph.embedded.kafka import Kafka, running

__all__ = ["QUICK_JVM", "Broker", "Kafka", "running"]

"""Heliograph: Kafka topics mirrored between clusters, by record batches, exactly once, on Spark."""

__version__ = "0.1.0"

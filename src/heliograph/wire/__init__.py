"""Kafka on sockets: connections, logins, metadata, calls. Schemas come from kio; batches go through untouched."""

from heliograph.wire.codes import broker_error, is_retriable, name_of
from heliograph.wire.connection import Connection
from heliograph.wire.fetch import Fetched, FetchSession
from heliograph.wire.link import Address, bootstrap_addresses
from heliograph.wire.messages import build
from heliograph.wire.produce import Produced, produce_request, produced

__all__ = [
    "Address",
    "Connection",
    "FetchSession",
    "Fetched",
    "Produced",
    "bootstrap_addresses",
    "broker_error",
    "build",
    "is_retriable",
    "name_of",
    "produce_request",
    "produced",
]

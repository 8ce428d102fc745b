"""Kafka on sockets: connections, logins, metadata, calls. Schemas come from kio; batches go through untouched.

The data path uses Connection, FetchSession, produce_request and Dialer, in an event loop that never blocks. Everything
else uses Client, which waits and retries.
"""

from heliograph.wire import lean  # noqa: F401 - before everything that imports kio
from heliograph.wire.acks import Produced, produced
from heliograph.wire.acls import Acl
from heliograph.wire.cluster import Client, ProducerState
from heliograph.wire.codes import broker_error, is_retriable, name_of
from heliograph.wire.connection import Connection
from heliograph.wire.dial import Dialer
from heliograph.wire.fetch import FetchSession
from heliograph.wire.fetched import Fetched
from heliograph.wire.groups import Committed
from heliograph.wire.link import Address, bootstrap_addresses
from heliograph.wire.messages import build, throttle_ms
from heliograph.wire.metadata import Metadata, PartitionMeta, TopicMeta
from heliograph.wire.produce import produce_request
from heliograph.wire.topics import ConfigEntry, Foreseen, NewTopic

__all__ = [
    "Acl",
    "Address",
    "Client",
    "Committed",
    "ConfigEntry",
    "Connection",
    "Dialer",
    "FetchSession",
    "Fetched",
    "Foreseen",
    "Metadata",
    "NewTopic",
    "PartitionMeta",
    "Produced",
    "ProducerState",
    "TopicMeta",
    "bootstrap_addresses",
    "broker_error",
    "build",
    "is_retriable",
    "name_of",
    "produce_request",
    "produced",
    "throttle_ms",
]

"""Names of the settings that Kafka's own consumer, producer and admin client have, and Connect's worker.

Answers for telling a setting that exists and has nothing to act on here (`us.consumer.fetch.min.bytes`) from a typing
error. A broker test holds the lists to the classes of the pinned Kafka. Addresses and security are in `keys`, because
they are honoured.
"""

from __future__ import annotations

CLIENTS = ("consumer", "producer", "admin")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EVERY_CLIENT = _names("""
    auto.include.jmx.reporter bootstrap.servers client.dns.lookup client.id client.rack config.providers
    connections.max.idle.ms default.api.timeout.ms enable.metrics.push interceptor.classes metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metadata.cluster.check.enable metric.reporters
    metric.names.formats metrics.num.samples metrics.recording.level metrics.sample.window.ms receive.buffer.bytes
    reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms security.providers
    send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
""")

_OF_ONE = {
    "consumer": _names("""
        allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs enable.auto.commit
        exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id
        group.protocol group.remote.assignor heartbeat.interval.ms internal.leave.group.on.close
        internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer max.partition.fetch.bytes
        max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms
        share.acknowledgement.mode share.acquire.mode value.deserializer
    """),
    "producer": _names("""
        acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type
        compression.zstd.level delivery.timeout.ms enable.idempotence internal.auto.downgrade.txn.commit
        internal.transactional.producer key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
        max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable
        partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys transaction.timeout.ms
        transaction.two.phase.commit.enable transactional.id value.serializer
    """),
    "admin": _names("bootstrap.controllers"),
}

WORKER = _names("""
    admin.listeners client.dns.lookup connections.max.idle.ms metadata.max.age.ms
    metric.names.formats
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms rest.extension.classes retry.backoff.max.ms retry.backoff.ms
    send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    internal.key.converter internal.value.converter rest.host.name rest.port offset.storage.file.filename
""")


def knows(client: str, name: str) -> bool:
    """Whether that client of Kafka has a setting of this name, address and security apart."""
    return name in _EVERY_CLIENT or name in _OF_ONE[client]


def client_of(name: str) -> str | None:
    """A client that has this setting: whom a bare `us.fetch.min.bytes` was meant for."""
    return next((client for client in CLIENTS if knows(client, name)), None)


def names_of(client: str) -> frozenset[str]:
    return _EVERY_CLIENT | _OF_ONE[client]

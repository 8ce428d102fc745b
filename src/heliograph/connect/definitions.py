"""What Connect would say of the three connectors' keys: types, defaults, importance, places in a form. Pure.

Names, types and defaults are Connect's and MM2's own, since forms are drawn of them and files checked against them; the
words about each key are the table's of `config.keys`. Keys that only Heliograph has are not among them: a form that is
drawn of this is MirrorMaker 2's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from heliograph.config import keys
from heliograph.config.connectors import Kind
from heliograph.config.shape import Scope
from heliograph.types import Cluster, Flow

MIRROR = keys.MIRROR


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    type: str  # BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD
    default: str | None  # as text
    required: bool = False
    importance: str = "LOW"
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display: str = ""
    doc: str = ""
    allowed: tuple[str, ...] = ()
    at_least: int | None = None

    def json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "type": self.type,
            "required": self.required,
            "default_value": self.default,
            "importance": self.importance,
            "documentation": self.doc,
            "group": self.group,
            "order_in_group": self.order,
            "width": self.width,
            "display_name": self.display or self.name,
            "dependents": [],
        }


# name | type | default (- none, ! required) | importance | group | order in it | width | display
_COMMON = """
name | STRING | ! | HIGH | Common | 1 | MEDIUM | Connector name
connector.class | STRING | ! | HIGH | Common | 2 | LONG | Connector class
connector.plugin.version | STRING | - | MEDIUM | Common | 3 | MEDIUM | Connector version
tasks.max | INT | 1 | HIGH | Common | 4 | SHORT | Tasks max
tasks.max.enforce | BOOLEAN | true | LOW | Common | 5 | SHORT | Enforce tasks max
key.converter | CLASS | - | LOW | Common | 6 | SHORT | Key converter class
key.converter.plugin.version | STRING | - | LOW | Common | 7 | SHORT | Key converter version
value.converter | CLASS | - | LOW | Common | 8 | SHORT | Value converter class
value.converter.plugin.version | STRING | - | LOW | Common | 9 | SHORT | Value converter version
header.converter | CLASS | - | LOW | Common | 10 | SHORT | Header converter class
header.converter.plugin.version | STRING | - | LOW | Common | 11 | SHORT | Header converter version
transforms | LIST | "" | LOW | Transforms | 12 | LONG | Transforms
predicates | LIST | "" | LOW | Predicates | 13 | LONG | Predicates
config.action.reload | STRING | restart | LOW | Common | 14 | MEDIUM | Reload Action
errors.retry.timeout | LONG | 0 | MEDIUM | Error Handling | 1 | MEDIUM | Retry Timeout for Errors
errors.retry.delay.max.ms|LONG|60000|MEDIUM|Error Handling|2|MEDIUM|Maximum Delay Between Retries for Errors
errors.tolerance | STRING | none | MEDIUM | Error Handling | 3 | SHORT | Error Tolerance
errors.log.enable | BOOLEAN | false | MEDIUM | Error Handling | 4 | SHORT | Log Errors
errors.log.include.messages | BOOLEAN | false | MEDIUM | Error Handling | 5 | SHORT | Log Error Details
"""

_SOURCE_COMMON = """
topic.creation.groups | LIST | "" | LOW | Topic Creation | 1 | LONG | Topic Creation Groups
exactly.once.support | STRING | requested | MEDIUM | Exactly Once Support | 2 | SHORT | Exactly once support
transaction.boundary | STRING | poll | MEDIUM | Exactly Once Support | 3 | SHORT | Transaction Boundary
transaction.boundary.interval.ms | LONG | - | LOW | Exactly Once Support | 4 | SHORT | Transaction boundary interval
offsets.storage.topic | STRING | - | LOW | offsets.topic | 1 | LONG | Offsets topic
"""

# name | type | default | importance
_MIRROR = f"""
enabled | BOOLEAN | true | LOW
source.cluster.alias | STRING | ! | HIGH
target.cluster.alias | STRING | target | HIGH
admin.timeout.ms | LONG | 60000 | LOW
replication.policy.class | CLASS | {MIRROR}DefaultReplicationPolicy | LOW
replication.policy.separator | STRING | . | LOW
replication.policy.internal.topic.separator.enabled | BOOLEAN | true | LOW
forwarding.admin.class | CLASS | org.apache.kafka.clients.admin.ForwardingAdmin | LOW
metric.reporters | LIST | org.apache.kafka.common.metrics.JmxReporter | LOW
"""

_SECURITY = """
security.protocol | STRING | PLAINTEXT | MEDIUM
config.providers | LIST | "" | LOW
ssl.protocol | STRING | TLSv1.3 | MEDIUM
ssl.provider | STRING | - | MEDIUM
ssl.cipher.suites | LIST | "" | LOW
ssl.enabled.protocols | LIST | TLSv1.2,TLSv1.3 | MEDIUM
ssl.keystore.type | STRING | JKS | MEDIUM
ssl.keystore.location | STRING | - | HIGH
ssl.keystore.password | PASSWORD | - | HIGH
ssl.key.password | PASSWORD | - | HIGH
ssl.keystore.key | PASSWORD | - | HIGH
ssl.keystore.certificate.chain | PASSWORD | - | HIGH
ssl.truststore.certificates | PASSWORD | - | HIGH
ssl.truststore.type | STRING | JKS | MEDIUM
ssl.truststore.location | STRING | - | HIGH
ssl.truststore.password | PASSWORD | - | HIGH
ssl.keymanager.algorithm | STRING | SunX509 | LOW
ssl.trustmanager.algorithm | STRING | PKIX | LOW
ssl.endpoint.identification.algorithm | STRING | https | LOW
ssl.secure.random.implementation | STRING | - | LOW
ssl.engine.factory.class | CLASS | - | LOW
sasl.kerberos.service.name | STRING | - | MEDIUM
sasl.kerberos.kinit.cmd | STRING | /usr/bin/kinit | LOW
sasl.kerberos.ticket.renew.window.factor | DOUBLE | 0.8 | LOW
sasl.kerberos.ticket.renew.jitter | DOUBLE | 0.05 | LOW
sasl.kerberos.min.time.before.relogin | LONG | 60000 | LOW
sasl.login.refresh.window.factor | DOUBLE | 0.8 | LOW
sasl.login.refresh.window.jitter | DOUBLE | 0.05 | LOW
sasl.login.refresh.min.period.seconds | SHORT | 60 | LOW
sasl.login.refresh.buffer.seconds | SHORT | 300 | LOW
sasl.mechanism | STRING | GSSAPI | MEDIUM
sasl.jaas.config | PASSWORD | - | MEDIUM
sasl.client.callback.handler.class | CLASS | - | MEDIUM
sasl.login.callback.handler.class | CLASS | - | MEDIUM
sasl.login.class | CLASS | - | MEDIUM
sasl.login.connect.timeout.ms | INT | - | LOW
sasl.login.read.timeout.ms | INT | - | LOW
sasl.login.retry.backoff.max.ms | LONG | 10000 | LOW
sasl.login.retry.backoff.ms | LONG | 100 | LOW
sasl.oauthbearer.jwt.retriever.class | CLASS | org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever | MEDIUM
sasl.oauthbearer.jwt.validator.class | CLASS | org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator | MEDIUM
sasl.oauthbearer.scope | STRING | - | MEDIUM
sasl.oauthbearer.client.credentials.client.id | STRING | - | MEDIUM
sasl.oauthbearer.client.credentials.client.secret | PASSWORD | - | MEDIUM
sasl.oauthbearer.assertion.algorithm | STRING | RS256 | MEDIUM
sasl.oauthbearer.assertion.claim.aud | STRING | - | MEDIUM
sasl.oauthbearer.assertion.claim.exp.seconds | INT | 300 | LOW
sasl.oauthbearer.assertion.claim.iss | STRING | - | MEDIUM
sasl.oauthbearer.assertion.claim.jti.include | BOOLEAN | false | MEDIUM
sasl.oauthbearer.assertion.claim.nbf.seconds | INT | 60 | LOW
sasl.oauthbearer.assertion.claim.sub | STRING | - | MEDIUM
sasl.oauthbearer.assertion.file | STRING | - | MEDIUM
sasl.oauthbearer.assertion.private.key.file | STRING | - | MEDIUM
sasl.oauthbearer.assertion.private.key.passphrase | PASSWORD | - | MEDIUM
sasl.oauthbearer.assertion.template.file | STRING | - | MEDIUM
sasl.oauthbearer.scope.claim.name | STRING | scope | LOW
sasl.oauthbearer.sub.claim.name | STRING | sub | LOW
sasl.oauthbearer.token.endpoint.url | STRING | - | MEDIUM
sasl.oauthbearer.jwks.endpoint.url | STRING | - | MEDIUM
sasl.oauthbearer.jwks.endpoint.refresh.ms | LONG | 3600000 | LOW
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | LONG | 10000 | LOW
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | LONG | 100 | LOW
sasl.oauthbearer.clock.skew.seconds | INT | 30 | LOW
sasl.oauthbearer.expected.audience | LIST | "" | HIGH
sasl.oauthbearer.expected.issuer | STRING | - | HIGH
sasl.oauthbearer.header.urlencode | BOOLEAN | false | LOW
"""

_OF_KIND: Mapping[Kind, str] = {
    "source": f"""
topics | LIST | .* | HIGH
topics.exclude | LIST | mm2.*\\.internal,.*\\.replica,__.* | HIGH
config.properties.exclude | LIST | _EXCLUDE_ | HIGH
topic.filter.class | CLASS | {MIRROR}DefaultTopicFilter | LOW
config.property.filter.class | CLASS | {MIRROR}DefaultConfigPropertyFilter | LOW
consumer.poll.timeout.ms | LONG | 1000 | LOW
refresh.topics.enabled | BOOLEAN | true | LOW
refresh.topics.interval.seconds | LONG | 600 | LOW
sync.topic.configs.enabled | BOOLEAN | true | LOW
sync.topic.configs.interval.seconds | LONG | 600 | LOW
sync.topic.acls.enabled | BOOLEAN | true | LOW
sync.topic.acls.interval.seconds | LONG | 600 | LOW
replication.factor | INT | 2 | LOW
offset-syncs.topic.replication.factor | SHORT | 3 | LOW
offset.lag.max | LONG | 100 | LOW
offset-syncs.topic.location | STRING | source | LOW
emit.offset-syncs.enabled | BOOLEAN | true | LOW
heartbeats.replication.enabled | BOOLEAN | true | LOW
""",
    "checkpoint": f"""
consumer.poll.timeout.ms | LONG | 1000 | LOW
groups | LIST | .* | HIGH
groups.exclude | LIST | console-consumer-.*,connect-.*,__.* | HIGH
group.filter.class | CLASS | {MIRROR}DefaultGroupFilter | LOW
refresh.groups.enabled | BOOLEAN | true | LOW
refresh.groups.interval.seconds | LONG | 600 | LOW
emit.checkpoints.enabled | BOOLEAN | true | LOW
emit.checkpoints.interval.seconds | LONG | 60 | LOW
sync.group.offsets.enabled | BOOLEAN | false | LOW
sync.group.offsets.interval.seconds | LONG | 60 | LOW
checkpoints.topic.replication.factor | SHORT | 3 | LOW
offset-syncs.topic.location | STRING | source | LOW
topic.filter.class | CLASS | {MIRROR}DefaultTopicFilter | LOW
""",
    "heartbeat": """
emit.heartbeats.enabled | BOOLEAN | true | LOW
emit.heartbeats.interval.seconds | LONG | 1 | LOW
heartbeats.topic.replication.factor | SHORT | 3 | LOW
""",
}

_EXCLUDE = ",".join(Flow(Cluster(""), Cluster("")).config_properties_exclude)
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "config.action.reload": ("none", "restart"),
    "errors.tolerance": ("none", "all"),
    "offset-syncs.topic.location": ("source", "target"),
    "exactly.once.support": ("requested", "required"),
    "transaction.boundary": ("poll", "interval", "connector"),
    "security.protocol": keys.PROTOCOLS,
}


@cache
def of(kind: Kind) -> Mapping[str, Definition]:
    """In the order in which Connect lists them."""
    rows = [*_grouped(_COMMON), *_plain(_MIRROR), *_plain(_SECURITY), *_plain(_OF_KIND[kind])]
    if kind != "heartbeat":
        rows += _plain("metric.names.formats | LIST | legacy | LOW")
    rows += _grouped(_SOURCE_COMMON)
    return {row.name: row for row in rows}


def _grouped(text: str) -> Iterator[Definition]:
    for line in text.strip().splitlines():
        name, kind, default, importance, group, order, width, display = (cell.strip() for cell in line.split("|"))
        yield _definition(name, kind, default, importance, group, int(order), width, display)


def _plain(text: str) -> Iterator[Definition]:
    for line in text.strip().splitlines():
        name, kind, default, importance = (cell.strip() for cell in line.split(" | "))
        yield _definition(name, kind, _EXCLUDE if default == "_EXCLUDE_" else default, importance)


def _definition(
    name: str,
    kind: str,
    default: str,
    importance: str,
    group: str | None = None,
    order: int = -1,
    width: str = "NONE",
    display: str = "",
) -> Definition:
    plain = Definition(name, kind, None if default in ("-", "!") else default.strip('"'), default == "!", importance)
    return replace(
        plain,
        group=group,
        order=order,
        width=width,
        display=display,
        doc=doc_of(name),
        allowed=_ALLOWED.get(name, ()),
        at_least=1 if name == "tasks.max" else None,
    )


def doc_of(name: str) -> str:
    key = keys.find(name, (Scope.FLOW, Scope.CLIENT))
    return key.doc if key is not None else ""

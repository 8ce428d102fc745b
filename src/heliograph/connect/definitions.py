"""What Connect would say of the three connectors' keys: types, defaults, importance, places in a form. Pure.

Names, types and defaults are Connect's and MM2's own, since forms are drawn of them and files checked against them; the
words about each key are the table's of `config.keys`. Keys that only Heliograph has stand last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from heliograph.config import keys
from heliograph.config.connectors import Kind
from heliograph.config.shape import Kind as KeyKind
from heliograph.config.shape import Scope

MIRROR = keys.MIRROR
REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    type: str  # BOOLEAN, STRING, INT, SHORT, LONG, LIST, CLASS, PASSWORD
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
            "width": self.width,
            "display_name": self.display or self.name,
            "dependents": [],
            "order_in_group": self.order,
        }


# name | type | default (- none, ! required) | importance | group | width | display
_COMMON = """
name | STRING | ! | HIGH | Common | MEDIUM | Connector name
connector.class | STRING | ! | HIGH | Common | LONG | Connector class
connector.plugin.version | STRING | - | MEDIUM | Common | LONG | Connector version
tasks.max | INT | 1 | HIGH | Common | SHORT | Tasks max
tasks.max.enforce | BOOLEAN | true | LOW | Common | SHORT | Enforce tasks max
key.converter | CLASS | - | LOW | Common | SHORT | Key converter class
key.converter.plugin.version | STRING | - | LOW | Common | SHORT | Key converter version
value.converter | CLASS | - | LOW | Common | SHORT | Value converter class
value.converter.plugin.version | STRING | - | LOW | Common | SHORT | Value converter version
header.converter | CLASS | - | LOW | Common | SHORT | Header converter class
header.converter.plugin.version | STRING | - | LOW | Common | SHORT | Header converter version
transforms | LIST | "" | LOW | Transforms | LONG | Transforms
predicates | LIST | "" | LOW | Predicates | LONG | Predicates
config.action.reload | STRING | restart | LOW | Common | MEDIUM | Reload Action
errors.retry.timeout | LONG | 0 | MEDIUM | Error Handling | MEDIUM | Retry Timeout for Errors
errors.retry.delay.max.ms | LONG | 60000 | MEDIUM | Error Handling | MEDIUM | Maximum Delay Between Retries for Errors
errors.tolerance | STRING | none | MEDIUM | Error Handling | SHORT | Error Tolerance
errors.log.enable | BOOLEAN | false | MEDIUM | Error Handling | SHORT | Log Errors
errors.log.include.messages | BOOLEAN | false | MEDIUM | Error Handling | SHORT | Log Error Details
"""

_SOURCE_COMMON = """
topic.creation.groups | LIST | "" | LOW | Topic Creation | LONG | Topic Creation Groups
exactly.once.support | STRING | requested | MEDIUM | Exactly Once Support | SHORT | Exactly once support
transaction.boundary | STRING | poll | MEDIUM | Exactly Once Support | SHORT | Transaction Boundary
transaction.boundary.interval.ms | LONG | - | LOW | Exactly Once Support | SHORT | Transaction boundary interval
offsets.storage.topic | STRING | - | LOW | offsets.topic | LONG | Offsets topic
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

_EXCLUDE = (
    "follower\\.replication\\.throttled\\.replicas,leader\\.replication\\.throttled\\.replicas,"
    "message\\.timestamp\\.difference\\.max\\.ms,message\\.timestamp\\.type,unclean\\.leader\\.election\\.enable,"
    "min\\.insync\\.replicas"
)
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "config.action.reload": ("none", "restart"),
    "errors.tolerance": ("none", "all"),
    "offset-syncs.topic.location": ("source", "target"),
    "exactly.once.support": ("requested", "required"),
    "transaction.boundary": ("poll", "interval", "connector"),
    "security.protocol": keys.PROTOCOLS,
}
_TYPES = {
    KeyKind.BOOL: "BOOLEAN",
    KeyKind.PASSWORD: "PASSWORD",
    KeyKind.LIST: "LIST",
    KeyKind.CLASS: "CLASS",
    KeyKind.LONG: "LONG",
    KeyKind.INT: "INT",
}
# Heliograph's own, which MM2 has not.
_OWN = ("target.partitions", "start", "max.bytes.per.second", "sync.topic.configs.lower.durability")
_OWN_ALSO = ("on.gap", "on.source.recreated", "on.source.truncated", "on.target.lost", "on.refused")


@cache
def of(kind: Kind) -> Mapping[str, Definition]:
    """In the order in which Connect lists them."""
    rows = [*_grouped(_COMMON), *_plain(_MIRROR), *_security(), *_plain(_OF_KIND[kind])]
    rows += [*_grouped(_SOURCE_COMMON)]
    if kind == "source":
        rows += [_own(name) for name in (*_OWN, *_OWN_ALSO)]
    return {row.name: row for row in rows}


def _grouped(text: str) -> Iterator[Definition]:
    orders: dict[str, int] = {}
    for line in text.strip().splitlines():
        name, kind, default, importance, group, width, display = (cell.strip() for cell in line.split("|"))
        orders[group] = orders.get(group, 0) + 1
        yield _definition(name, kind, default, importance, group, orders[group], width, display)


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
    return Definition(
        *(name, kind, None if default in ("-", "!") else default.strip('"'), default == "!", importance),
        *(group, order, width, display, doc_of(name), _ALLOWED.get(name, ())),
        at_least=1 if name == "tasks.max" else None,
    )


def _security() -> Iterator[Definition]:
    for key in keys.KEYS:
        if key.scope is Scope.CLIENT and not key.is_family and key.name.startswith(("security.", "ssl.", "sasl.")):
            allowed = _ALLOWED.get(key.name, ())
            kind = _TYPES.get(key.kind, "STRING")
            yield Definition(key.name, kind, key.default, importance="MEDIUM", doc=key.doc, allowed=allowed)


def _own(name: str) -> Definition:
    key = keys.find(name, (Scope.FLOW,))
    assert key is not None
    return Definition(name, _TYPES.get(key.kind, "STRING"), key.default, doc=key.doc, allowed=key.allowed)


def doc_of(name: str) -> str:
    key = keys.find(name, (Scope.FLOW, Scope.CLIENT))
    return key.doc if key is not None else ""

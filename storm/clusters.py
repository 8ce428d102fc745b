"""The two clusters of a storm: what is in them, how the mirror and the storm itself come in, what the mirror may do.

The mirror comes in as User:mirror through links that can be cut, with just the permissions of `PERMISSIONS`; load,
groups and the final reading come in directly, as a super user, so that a fault for the mirror is none for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.kit import SOON_BACK, create_topic, wait_until

from heliograph.embedded import Kafka, Links, running
from storm.plan import SIDES

LINKED, DIRECT = "SASL_PLAINTEXT", "PLAINTEXT"
MIRROR = "mirror"
OLD_MS = 3 * 24 * 3600 * 1000
# Both settings are internal to Kafka: state of idempotent producers is forgotten a day (the default) behind the newest
# timestamp of their records, and old state is looked for every so often (default: ten minutes).
EXPIRE_SOON = {"producer.id.expiration.check.interval.ms": "1000"}
CALL_S = 20.0
RESTORE_S = 120.0


@dataclass(frozen=True, slots=True)
class TopicShape:
    name: str
    partitions: int
    copies: int = 0  # target.partitions; 0: as many as the source has
    recreated: bool = False
    share: float = 1.0  # of the load


TOPICS = (
    TopicShape("plain", 4, share=0.5),
    TopicShape("divided", 4, copies=3, share=0.4),
    TopicShape("recreated", 2, recreated=True, share=0.1),
)

_TOPIC_OPERATIONS = ("READ", "WRITE", "CREATE", "DESCRIBE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
PERMISSIONS: Sequence[tuple[ResourceType, str, str]] = (
    *((ResourceType.TOPIC, "*", one) for one in _TOPIC_OPERATIONS),
    *((ResourceType.GROUP, "*", one) for one in ("READ", "DESCRIBE")),
    *((ResourceType.BROKER, "kafka-cluster", one) for one in ("DESCRIBE", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")),
)
WITHDRAWN = tuple(one for one in PERMISSIONS if one[2] in ("READ", "WRITE", "DESCRIBE"))


@dataclass
class Side:
    """One cluster. `lock`: held by a fault that stops a broker, and by whatever needs all brokers for a while."""

    name: str
    kafka: Kafka
    links: Links
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def other(self) -> str:
        return SIDES[1 - SIDES.index(self.name)]

    @property
    def client(self) -> dict[str, str]:
        """For confluent-kafka, directly and with every permission."""
        return self.kafka.confluent(security=DIRECT)

    def remote(self, topic: str) -> str:
        """The name of a topic of this side's copy on the other side."""
        return f"{self.name}.{topic}"

    def admin(self) -> AdminClient:
        return AdminClient({**self.client, "log_level": 0})

    # Topics

    def create(self, shape: TopicShape) -> None:
        create_topic(self.client, shape.name, shape.partitions, replication_factor=len(self.kafka.brokers))

    def recreate(self, shape: TopicShape, pause_s: float) -> None:
        """Delete the topic, wait until it is gone, create it again."""
        admin = self.admin()
        admin.delete_topics([shape.name], operation_timeout=CALL_S)[shape.name].result(CALL_S)
        wait_until(lambda: shape.name not in admin.list_topics(timeout=CALL_S).topics, what="the topic's deletion")
        time.sleep(pause_s)
        persist(lambda: self.create(shape), what=f"topic {shape.name} on {self.name}")

    # Permissions

    def allow(self, permissions: Sequence[tuple[ResourceType, str, str]] = PERMISSIONS) -> None:
        bindings = [AclBinding(*_rule(one)) for one in permissions]
        admin = self.admin()
        for future in admin.create_acls(bindings, request_timeout=CALL_S).values():
            future.result(CALL_S)

    def withdraw(self, permission: tuple[ResourceType, str, str]) -> None:
        admin = self.admin()
        for future in admin.delete_acls([AclBindingFilter(*_rule(permission))], request_timeout=CALL_S).values():
            future.result(CALL_S)


def _rule(permission: tuple[ResourceType, str, str]) -> tuple[object, ...]:
    kind, name, operation = permission
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return kind, name, literal, f"User:{MIRROR}", "*", getattr(AclOperation, operation), allow


def persist(action: Callable[[], object], *, what: str) -> None:
    """Repeat until it is done: what a fault took away has to come back."""
    deadline = time.monotonic() + RESTORE_S
    while True:
        try:
            action()
            return
        except (KafkaException, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come back in {RESTORE_S:g} s: {error}") from error
            time.sleep(0.5)


@contextmanager
def two_sides(*, brokers: int, old: bool) -> Iterator[dict[str, Side]]:
    """Both clusters up, with their topics and permissions; all gone at the end."""
    config = {"auto.create.topics.enable": "false", **SOON_BACK, **(EXPIRE_SOON if old else {})}
    if brokers == 3:
        config["min.insync.replicas"] = "2"
    with ExitStack() as stack:
        sides = {}
        for name in SIDES:
            links = stack.enter_context(Links())
            kafka = Kafka(
                name,
                brokers=brokers,
                security=(LINKED, DIRECT),
                acls=True,
                users={MIRROR: "mirror-secret"},
                super_users=("ANONYMOUS",),  # every client of the listener without a login
                advertised=_behind(links),
                config=config,
            )
            sides[name] = Side(name, kafka, links)
        stack.enter_context(running(*(side.kafka for side in sides.values())))
        for side in sides.values():
            side.allow()
            for shape in TOPICS:
                side.create(shape)
        yield sides


def _behind(links: Links) -> Callable[[int, str, int], str]:
    def advertise(broker: int, listener: str, port: int) -> str:
        return f"127.0.0.1:{port}" if listener == DIRECT else links.advertise(broker, listener, port)

    return advertise


def properties(sides: dict[str, Side], **more: object) -> dict[str, str]:
    """An mm2.properties of both flows. `more`: keys with `_` for `.`."""
    copies = str(min(len(next(iter(sides.values())).kafka.brokers), 3))
    lines = {
        "clusters": ", ".join(sides),
        "topics": ", ".join(shape.name for shape in TOPICS),
        "target.partitions": ", ".join(f"{shape.name}:{shape.copies}" for shape in TOPICS if shape.copies),
        "groups": "readers-.*",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "2",
        "emit.checkpoints.interval.seconds": "2",
        "refresh.groups.interval.seconds": "5",
        "refresh.topics.interval.seconds": "3",
        "sync.topic.acls.enabled": "false",  # the storm's own permissions are no part of the copy
        "on.source.recreated": "restart",
        **dict.fromkeys(
            (
                *("replication.factor", "offset.storage.replication.factor", "checkpoints.topic.replication.factor"),
                *("heartbeats.topic.replication.factor", "offset-syncs.topic.replication.factor"),
            ),
            copies,
        ),
    }
    for side in sides.values():
        cluster = side.kafka.cluster(security=LINKED, user=MIRROR)
        lines |= {f"{side.name}.{key}": str(value) for key, value in cluster.properties.items()}
        lines[f"{side.name}->{side.other}.enabled"] = "true"
    return lines | {key.replace("_", "."): str(value) for key, value in more.items()}

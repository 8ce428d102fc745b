"""Kafka's error codes: their names, whether trying again may help, and what a person can do about them.

The one place that turns a number in a response into a BrokerError. Names and Kafka's own view of "retriable" come from
kio; the differences from it, and the reasons, are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from heliograph.errors import BrokerError

NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
REPLICA_NOT_AVAILABLE = 9
MESSAGE_TOO_LARGE = 10
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC = 17
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
UNKNOWN_MEMBER_ID = 25
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
INVALID_TIMESTAMP = 32
UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40
NOT_CONTROLLER = 41
POLICY_VIOLATION = 44
OUT_OF_ORDER_SEQUENCE = 45
DUPLICATE_SEQUENCE = 46
INVALID_PRODUCER_EPOCH = 47
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
SECURITY_DISABLED = 54
KAFKA_STORAGE_ERROR = 56
SASL_AUTHENTICATION_FAILED = 58
UNKNOWN_PRODUCER_ID = 59
GROUP_ID_NOT_FOUND = 69
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
OFFSET_NOT_AVAILABLE = 78
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100
INCONSISTENT_TOPIC_ID = 103
FETCH_SESSION_TOPIC_ID_ERROR = 106

# After these, ask for the metadata again before the next try: the partition is led elsewhere, or not known there yet.
LEADER_MOVED = frozenset(
    {
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        REPLICA_NOT_AVAILABLE,
        KAFKA_STORAGE_ERROR,
        FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH,
        UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID,
    }
)

# After these, find the group's coordinator again before the next try.
COORDINATOR_MOVED = frozenset({COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})

# Where we see it otherwise than Kafka's clients do.
_RETRIABLE_FOR_US: Mapping[int, bool] = {
    CORRUPT_MESSAGE: False,  # we renew the CRC ourselves: the same bytes would be refused again
    8: True,  # BROKER_NOT_AVAILABLE: a broker that restarts
    FENCED_LEADER_EPOCH: True,  # our metadata is old: refresh
    INCONSISTENT_TOPIC_ID: True,  # the topic was made anew: refresh
    FETCH_SESSION_TOPIC_ID_ERROR: True,  # start a new session
    89: True,  # THROTTLING_QUOTA_EXCEEDED: later
}

_FIXES: Mapping[int, str] = {
    OFFSET_OUT_OF_RANGE: "The offset is not in the log: retention removed it, or the topic was made anew",
    UNKNOWN_TOPIC_OR_PARTITION: "Create the topic, or check its name and the DESCRIBE permission on it",
    MESSAGE_TOO_LARGE: "Raise max.message.bytes of the target topic (and message.max.bytes of its brokers)",
    INVALID_TOPIC: "Topic names have at most 249 letters, digits, '.', '_' and '-'; internal topics cannot be written",
    NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas: bring brokers back or lower the setting",
    NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Fewer replicas are in sync than min.insync.replicas: bring brokers back",
    UNKNOWN_MEMBER_ID: "The group has members here: its offsets are theirs while they live",
    TOPIC_AUTHORIZATION_FAILED: "Give this principal READ and DESCRIBE (source) or READ, WRITE, CREATE and DESCRIBE "
    "(target) on the topic, e.g. with kafka-acls --add",
    GROUP_AUTHORIZATION_FAILED: "Give this principal READ and DESCRIBE on the consumer group",
    CLUSTER_AUTHORIZATION_FAILED: "Give this principal the cluster permission (CREATE to make topics, "
    "IDEMPOTENT_WRITE to append before Kafka 2.8), e.g. with kafka-acls --add --cluster",
    INVALID_TIMESTAMP: "The records' times are outside message.timestamp.before/after.max.ms of the target topic",
    TOPIC_ALREADY_EXISTS: "The topic is there already",
    INVALID_PARTITIONS: "Partitions can only be added, and at least one is needed",
    INVALID_REPLICATION_FACTOR: "The cluster has fewer brokers than that: set replication.factor lower (or -1 for the "
    "broker's default)",
    INVALID_CONFIG: "The cluster does not know this setting, or not with this value: list it in "
    "config.properties.exclude",
    POLICY_VIOLATION: "The cluster's create.topic.policy refuses this: ask its operators, or create the topic by hand",
    INVALID_PRODUCER_EPOCH: "A newer writer took over this producer id",
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Give this principal WRITE and DESCRIBE on the transactional id",
    SECURITY_DISABLED: "The cluster has no authorizer.class.name, so there are no ACLs to read or to write",
    KAFKA_STORAGE_ERROR: "A disk of the broker failed or is full, its log says which: make room, then restart the "
    "broker, which takes a log directory back only then",
    SASL_AUTHENTICATION_FAILED: "Check the credentials",
    OFFSET_NOT_AVAILABLE: "The partition's leader is new and does not serve all records yet: try again",
    INVALID_RECORD: "The broker refused a record: a compacted topic needs keys, for one",
}


def name_of(code: int) -> str:
    """Kafka's name of a code: 29 -> TOPIC_AUTHORIZATION_FAILED."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"ERROR_{code}"  # a newer broker's code


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed later, with refreshed metadata where LEADER_MOVED says so."""
    ours = _RETRIABLE_FOR_US.get(code)
    if ours is not None:
        return ours
    try:
        return bool(ErrorCode(code).retriable)
    except ValueError:
        return False  # not known, so not assumed harmless


def broker_error(code: int, message: str | None = "", **context: Any) -> BrokerError:
    """The exception for an error code; `context` says what it is about (topic, partition, cluster …)."""
    code = int(code)
    return BrokerError(
        code, name_of(code), message or "", retriable=is_retriable(code), fix=_FIXES.get(code, ""), **context
    )

"""A cluster as it shows itself to us: its topics, and what we may do to topics, groups and the cluster itself.

Everything is asked in ways that change nothing: metadata with the operations we are allowed, topic creations that the
broker only validates, and the heartbeat of a group member that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from heliograph.errors import BrokerError
from heliograph.types import Cluster
from heliograph.wire.cluster import Client
from heliograph.wire.codes import GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED
from heliograph.wire.security import principal_of
from heliograph.wire.topics import NewTopic

ASKED_AT_ONCE = 500  # topics in one question
UNTOLD = -(2**31)  # the broker did not say: it is too old, or has no authorizer


@dataclass(frozen=True, slots=True)
class Seen:
    """A topic as a cluster shows it to us. One that is not there says what we might do if it were."""

    partitions: int
    operations: int
    error: int

    def allows(self, operation: int) -> bool:
        """`operation`: Kafka's code, which is a bit of `operations`."""
        return self.error != TOPIC_AUTHORIZATION_FAILED and _allows(self.operations, operation)


def _allows(operations: int, operation: int) -> bool:
    return operations == UNTOLD or bool(operations >> operation & 1)


@dataclass(slots=True)
class Patient:
    cluster: Cluster
    client: Client
    cluster_id: str = ""
    topics: dict[str, Seen] = field(default_factory=dict)  # those that are there

    @property
    def principal(self) -> str:
        """Ours, as kafka-acls wants it, where the file tells."""
        return principal_of(self.cluster) or "User:<our name>"

    def see(self, names: Sequence[str] | None) -> dict[str, Seen]:
        """These topics, there or not; None: all that are there."""
        if names is None:
            return self._see(None)
        found: dict[str, Seen] = {}
        for start in range(0, len(names), ASKED_AT_ONCE):
            found |= self._see(names[start : start + ASKED_AT_ONCE])
        return found

    def _see(self, names: Sequence[str] | None) -> dict[str, Seen]:
        answer = self.client.call(
            "metadata",
            topics=None if names is None else [{"name": name, "topic_id": None} for name in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        )
        return {
            str(topic.name): Seen(
                len(topic.partitions), int(getattr(topic, "topic_authorized_operations", UNTOLD)), int(topic.error_code)
            )
            for topic in answer.topics
            if topic.name is not None
        }

    def refused(self, topics: Iterable[str], *operations: int) -> dict[str, frozenset[int]]:
        """Topic, there or not -> which of these we may not do to it; only those where there is any."""
        names = sorted(set(topics))
        seen = self.topics | self.see([name for name in names if name not in self.topics])
        lacking = {name: frozenset(one for one in operations if not seen[name].allows(one)) for name in names}
        return {name: lacks for name, lacks in lacking.items() if lacks}

    def may(self, operation: int) -> bool:
        """On the cluster itself."""
        answer = self.client.call("describe_cluster", include_cluster_authorized_operations=True, endpoint_type=1)
        return _allows(int(answer.cluster_authorized_operations), operation)

    def may_describe_group(self, group: str) -> bool:
        """Any broker may be asked: whether we are allowed is looked at before whose the group is."""
        answer = self.client.call("describe_groups", groups=[group], include_authorized_operations=False)
        return all(int(one.error_code) != GROUP_AUTHORIZATION_FAILED for one in answer.groups)

    def may_read_group(self, group: str) -> bool:
        answer = self.client.call("heartbeat", group_id=group, generation_id=-1, member_id="heliograph-doctor")
        return int(answer.error_code) != GROUP_AUTHORIZATION_FAILED

    def uncreatable(self, new: Sequence[NewTopic]) -> dict[str, BrokerError]:
        """Topic -> why it could not be made."""
        results = self.client.create_topics(new, validate_only=True) if new else {}
        return {
            topic: problem
            for topic, problem in results.items()
            if isinstance(problem, BrokerError) and problem.name != "TOPIC_ALREADY_EXISTS"
        }

"""Which labels in the records of a shared topic are followed. Whoever can write to the topic can write any label: so a
record goes only where records of its kind may go, and everything else is strange, and kept (`mirror.incident_handler`).

Answers for names alone, the same in the coordinator that makes the targets and in the task that divides records. What
partitions a topic can have is known where its source is asked (`survey.places`), and told as `PutBack.refused`.

Invariant: the judgement is about the target, which has a prefix, not about the name in the label. A label may name the
shared topic without its prefix, and lead into it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heliograph import policy
from heliograph.batch.labels import is_internal
from heliograph.types import Demux, TopicPartition

LONGEST_NAME = 249  # of a topic: Kafka takes no longer one


@dataclass(frozen=True, slots=True)
class Following:
    prefix: str = ""  # of targets, before what the label says
    shared: frozenset[str] = frozenset()  # topics that are divided here: nobody's targets
    topics: tuple[str, ...] = (".*",)  # what labels may say: names or regular expressions, matched in full

    @classmethod
    def of(cls, rule: Demux, rules: Iterable[Demux]) -> Following:
        """By one of the rules of a hub."""
        return cls(rule.prefix, frozenset({*rule.shared, *(one.topic for one in rules)}), rule.topics)

    def target(self, origin: TopicPartition) -> TopicPartition:
        return TopicPartition(self.prefix + origin.topic, origin.partition)

    def origin(self, target: TopicPartition) -> TopicPartition:
        return TopicPartition(target.topic.removeprefix(self.prefix), target.partition)

    def refuses(self, origin: TopicPartition) -> bool:
        """Whether records are not put back there, whatever is there."""
        target = self.prefix + origin.topic
        if len(target) > LONGEST_NAME or self.leads_inside(target) or is_internal(origin.topic):
            return True
        return not policy.fits(self.topics, origin.topic)

    def leads_inside(self, target: str) -> bool:
        """Whether this is a topic that is our own, or the cluster's."""
        return target in self.shared or is_internal(target)


FREELY = Following()

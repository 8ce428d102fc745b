"""Which topics are divided: copies with another number of partitions than their source (`target.partitions`).

Answers for how many partitions a copy is to have, and for refusing what would break the order of records with the same
key: a copy that is there with another number, positions of a copy that was begun otherwise. What is refused is parked
whole, before anything is made or written. How records find their partition is `batch.split`'s affair.

Invariant: a topic stays as it was begun, divided over n partitions or partition by partition, for as long as it has
claimed positions. So a source that grows to the very number of its divided copy stays divided, and one that was copied
partition by partition is not divided in the middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from heliograph import policy
from heliograph.mirror.positions import Position
from heliograph.survey.starts import created_again
from heliograph.types import Flow, TopicPartition


@dataclass(frozen=True, slots=True)
class Shape:
    partitions: int  # of the remote topic, when it is made
    divided: bool = False
    fixed: bool = False  # chosen by the file: not grown with the source


@dataclass(frozen=True, slots=True)
class Misfit:
    reason: str
    fix: str


def shape(flow: Flow, topic: str, count: int, there: int, begun: Iterable[int] = ()) -> Shape | Misfit:
    """Of a topic's copy. `count`: the source's partitions, `there`: the copy's, 0 if there is none yet; `begun`: over
    how many its positions say it is divided, 0 for partition by partition."""
    begun, chosen = set(begun), policy.partitions_of(flow, topic)
    now = 0 if chosen is None or (chosen == count and chosen not in begun) else chosen
    remote = policy.remote_topic(flow, topic)
    if begun - {now}:
        return Misfit(
            f"its copy was begun {_words(max(begun - {now}))} and is now to be {_words(now)}: the order of records "
            f"with the same key would break",
            f"put {flow.name}.target.partitions back; or copy {topic} anew: stop, delete {remote}, and heliograph "
            f"offsets reset FILE '{flow.name}' {topic} --yes",
        )
    if chosen is not None and there not in (0, chosen):
        return Misfit(
            f"{remote} has {there} partitions, and target.partitions chooses {chosen}: records with the same key would "
            f"lie in two of them",
            f"set {flow.name}.target.partitions = {topic}:{there}, or delete {remote}",
        )
    return Shape(now or count, divided=bool(now), fixed=chosen is not None)


def begun(known: Mapping[TopicPartition, Position], ids: Mapping[str, UUID | None]) -> dict[str, set[int]]:
    """By source topic: what its positions say. Those of a topic that was there before this one say nothing."""
    found: dict[str, set[int]] = {}
    for tp, position in known.items():
        if tp.topic in ids and position.claimed and not created_again(position, ids[tp.topic]):
            found.setdefault(tp.topic, set()).add(len(position.strands))
    return found


def _words(strands: int) -> str:
    return f"divided over {strands} partitions" if strands else "copied partition by partition"

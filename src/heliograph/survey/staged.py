"""The lanes of a source partition whose records go through a stage: one for each strand of its position.

Answers for every strand having a lane, also where a target is gone; which targets have a place is said by the route
(`survey.stages`), where strands stand by the position.
"""

from __future__ import annotations

from heliograph.mirror.assignment import LaneSpec, PutBack
from heliograph.mirror.positions import Position
from heliograph.survey.topics import Route
from heliograph.types import TopicPartition


def may_begin(route: Route, position: Position) -> bool:
    """The first strand of the position has its place: the anchor, or the only one. Of others that have none the lanes
    stand (`staged_lanes`)."""
    return bool(position.targets) and position.targets[0] == route.strands[0]


def staged_lanes(
    route: Route, position: Position, told: frozenset[tuple[str, int, str]], *, history: bool
) -> list[LaneSpec]:
    """A lane for each strand of the position, also for one that has no place now. (A position that is written without
    one of them could be all that compaction leaves, and that strand would be begun twice.)"""
    place_of = {target: place for place, target in enumerate(route.strands)}
    assert len(place_of) == len(route.strands), f"{route.tp}: a target twice"  # its stage would be another's
    lanes: list[LaneSpec] = []
    for index, (target, own) in enumerate(zip(position.targets, position.strands, strict=True)):
        place = place_of.get(target)
        lanes.append(
            LaneSpec(
                *(
                    route.tp,
                    route.topic_id,
                    target,
                    own,
                    route.max_batch_bytes if place is None else route.limits[place],
                ),
                told=told,
                strands=len(position.strands),
                history=history,
                stage=_without_place(route, target) if place is None else route.stages[place],
                strand=index,
                absent=f"{target} is not there: its records wait in {route.tp.topic}" if place is None else "",
            )
        )
    return lanes


def _without_place(route: Route, target: TopicPartition) -> PutBack:
    """The stage of a strand that is in no route: its records are its own all the same, and nobody else's."""
    anchor = route.stages[0]
    assert isinstance(anchor, PutBack), f"{route.tp}: only an anchor's strands may be without a place"
    return PutBack(anchor.following.origin(target), anchor.keep_labels, weight=anchor.weight)

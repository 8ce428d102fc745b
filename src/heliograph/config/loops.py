"""Rings of flows in which a record would go round for ever: what MM2 lets through and Heliograph refuses at the start.

Under the default policy a topic's name tells where it has been, and loops end by themselves. A flow that keeps names
(IdentityReplicationPolicy) takes that away. Answers for walking names of topics through the enabled flows, by the same
rules that copy them; two clusters under one address are found at run time, by their ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from heliograph import policy
from heliograph.javaregex import java_regex
from heliograph.types import Flow

# Enough for any topology that a person drew; a bound, because paths through N clusters are N! many.
MOST_STEPS = 5_000


def find_loop(flows: Sequence[Flow]) -> str | None:
    """The first loop, in words, or None."""
    for flow in flows:
        if flow.naming.policy != policy.IDENTITY_POLICY:
            continue
        for topic in _probes(flow):
            path = _round_trip(flow, topic, flows)
            if path:
                return (
                    f"{' and '.join(path)} would copy the topic {topic!r} round and round: {flow.name} keeps names "
                    f"(IdentityReplicationPolicy), so nothing tells that a record has been there before"
                )
    return None


def _round_trip(start: Flow, topic: str, flows: Sequence[Flow]) -> list[str] | None:
    """The flows that bring a topic back to where it began under a name that is taken again."""
    if not policy.should_replicate(start, topic):
        return None
    waiting = [(start.target.alias, policy.remote_topic(start, topic), [start.name])]
    seen = set()
    for _ in range(MOST_STEPS):
        if not waiting:
            return None
        at, name, path = waiting.pop()
        for flow in flows:
            if flow.source.alias != at or not policy.should_replicate(flow, name):
                continue
            arrived = (flow.target.alias, policy.remote_topic(flow, name))
            if arrived[0] == start.source.alias and policy.should_replicate(start, arrived[1]):
                return [*path, flow.name]
            if arrived not in seen:
                seen.add(arrived)
                waiting.append((*arrived, [*path, flow.name]))
    return None


def _probes(flow: Flow) -> Iterator[str]:
    """Names of topics that the flow takes: the ones it lists, and a guess at what each expression is meant for."""
    for pattern in flow.topics:
        guess = re.sub(r"\\(.)", r"\1", re.sub(r"(?<!\\)\.[*+]?\??|\[[^\]]*\][*+]?", "x", pattern))
        guess = guess.partition("|")[0].strip("()")
        try:
            if java_regex(pattern).fullmatch(guess):
                yield guess
        except ValueError:
            continue  # one half of an expression with a comma in it

"""Whose turn it is where several parties write by one connection: shares by weight, and nobody waits behind a flood.

A party is a spoke of a hub: all lanes that put back the records of its shared topic. Other flows have one party, and
nothing here is asked for them. Every party is charged for what it sent, bytes divided by its weight; who was charged
least goes first, and who is ahead of another that has something to send by more than a request lets it go first. So
weights count only while the target is the limit: a party alone, or beside others that are idle, gets everything.

Invariants:
  a. A party that had nothing to send is charged, when it comes back, as the least of those that had, but for one
     request: it goes first, and what it did not use is not saved up.
  b. Somebody who can send is always admitted: nothing stands still for the sake of shares.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heliograph.mirror.assignment import LaneSpec, PutBack


class Party(NamedTuple):
    name: str
    weight: int


def party_of(spec: LaneSpec) -> Party:
    stage = spec.stage
    return Party(spec.tp.topic, stage.weight) if isinstance(stage, PutBack) else Party("", 1)


def shares(parties: Iterable[Party], whole_bytes: int) -> dict[str, int]:
    """What each may hold of something that all use, by weight."""
    weights = dict(parties)
    together = sum(weights.values())
    return {name: whole_bytes * weight // together for name, weight in weights.items()}


@dataclass(slots=True)
class Turns:
    """Of one connection."""

    _charged: dict[str, float] = field(default_factory=dict)  # bytes over weight, by party
    _ready: frozenset[str] = frozenset()  # who could send when it was last asked

    def order(self, ready: Sequence[Party], request_bytes: int) -> tuple[list[str], list[str]]:
        """Of the parties that can send now: those whose turn it is, first things first; and those that let others go
        first, for a request that would be empty otherwise."""
        weights: Mapping[str, int] = dict(ready)
        if not weights:
            self._ready = frozenset()
            return [], []
        stayed = [self._charged[name] for name in weights if name in self._ready]
        least = min(stayed, default=max(self._charged.values(), default=0.0))
        for name, weight in weights.items():
            if name not in self._ready:  # invariant a
                self._charged[name] = max(self._charged.get(name, 0.0), least - request_bytes / weight)
        self._ready = frozenset(weights)
        least = min(self._charged[name] for name in weights)
        line = sorted(weights, key=lambda name: self._charged[name])
        ahead = [name for name in line if self._charged[name] - least > request_bytes / weights[name]]
        return [name for name in line if name not in ahead], ahead

    def took(self, party: Party, size: int) -> None:
        self._charged[party.name] = self._charged.get(party.name, 0.0) + size / party.weight

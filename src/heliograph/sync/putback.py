"""The settings of topics that records are put back into follow those of their spokes.

Answers for every spoke being asked for its own topics alone, and for one that does not answer keeping nobody else from
following: that it is dead is shown elsewhere. The rules are those of all remote topics (`sync.configs`).

Invariant: a topic follows one spoke, the first of the file whose records are in it, also while that one is dead. Else
two that disagree would alter it in turn for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from heliograph.errors import HeliographError, TimedOut, Unreachable
from heliograph.sync.configs import ConfigSync, Refusal
from heliograph.types import Cluster, Demux, Flow
from heliograph.wire import Client

log = structlog.get_logger()

EARLY = 0.9  # of an interval: whoever looks has a clock of its own, and must not come a moment too soon every time
Pairs = Mapping[str, Mapping[str, str]]  # by shared topic: a spoke's topic -> what it is called here


@dataclass(slots=True)
class _Followed:
    rule: Demux
    configs: ConfigSync
    every_s: float
    due_s: float = 0.0


class PutBackConfigs:
    def __init__(
        self,
        flow: Flow,
        target: Client,
        client: Callable[[Cluster], Client],
        pairs: Callable[[], Pairs],
        altered: Callable[[set[str]], None] = lambda topics: None,
    ) -> None:
        """`client`: makes one for a spoke, which does not wait long; `pairs`: what is put back now."""
        self._flow, self._pairs = flow, pairs
        self._followed = [
            _Followed(rule, ConfigSync(of, client(rule.spoke), target, altered=altered), rule.sync_configs_s)
            for rule in flow.demux
            if rule.sync_configs_s is not None
            for of in (_as_pair(flow, rule),)
        ]

    @property
    def every_s(self) -> float | None:
        """How often somebody has to look; None: nothing is to follow."""
        return min((one.every_s for one in self._followed), default=None)

    @property
    def refusals(self) -> dict[str, tuple[Refusal, ...]]:
        """By topic, as of the last sync of each spoke."""
        return {topic: refused for one in self._followed for topic, refused in one.configs.refusals.items()}

    def sync(self) -> None:
        """Those that are due. Raises what is wrong with a spoke that answered, when all others have been looked at."""
        pairs, wrong = self._pairs(), None
        taken: set[str] = set()
        for one in self._followed:
            topics = {theirs: ours for theirs, ours in pairs.get(one.rule.topic, {}).items() if ours not in taken}
            taken |= {*topics.values()}
            if not topics or time.monotonic() < one.due_s:
                continue
            one.due_s = time.monotonic() + one.every_s * EARLY
            try:
                one.configs.sync(topics)
            except (Unreachable, TimedOut) as error:
                log.info("a spoke's settings cannot be asked for", flow=self._flow.name, why=str(error))
            except HeliographError as error:
                wrong = wrong or error
        if wrong is not None:
            raise wrong


def _as_pair(flow: Flow, rule: Demux) -> Flow:
    """The flow with what the spoke's own pair allows: the first pair must not decide for the others."""
    return replace(
        flow,
        source=rule.spoke,
        lower_durability=rule.lower_durability,
        shorten_retention=rule.shorten_retention,
    )

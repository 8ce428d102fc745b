"""Which faults a storm has, when and for how long: all drawn from the seed before it begins.

Faults of one lane happen one after another (a broker is not frozen while it is restarted); lanes run side by side.
What remains open until a fault happens is only what the machine decides: which task holds which partition then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

SIDES = ("west", "east")
SECONDS_A_FAULT = 1.8  # 1,000 faults in half an hour


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: its share of the plan, how long it lasts, and where it queues."""

    name: str
    weight: float
    low_s: float
    high_s: float
    lane: str
    per_side: bool  # each side has a lane of its own
    says: str
    brokers: int = 1  # clusters of at least so many

    def lane_of(self, side: str) -> str:
        return f"{self.lane}-{side}" if self.per_side else self.lane


KINDS = (
    Kind("cut", 560, 0, 0, "links", False, "every connection through one broker's link is cut, at once or mid-request"),
    Kind("refuse", 50, 0.5, 8, "links", False, "a broker's link is cut and refuses connections"),
    Kind("task-kill", 140, 0, 0, "tasks", False, "one or two Spark Python workers are killed with SIGKILL"),
    Kind("task-freeze", 30, 1, 25, "tasks", False, "one Spark Python worker stands still (SIGSTOP)"),
    Kind("driver-freeze", 8, 5, 60, "process", False, "the driver stands still, with or without its JVM"),
    Kind("process-kill", 34, 0, 5, "process", False, "the process is killed with SIGKILL and started again"),
    Kind("second-process", 6, 5, 20, "process", False, "a second process runs the same file for a while"),
    Kind("other-file", 6, 5, 15, "process", False, "a process with another file is refused, or takes over"),
    Kind("broker-kill", 60, 0, 2, "brokers", True, "a broker is killed with SIGKILL and started again"),
    Kind("broker-freeze", 46, 1, 12, "brokers", True, "a broker stands still (SIGSTOP)"),
    Kind(
        "leader-move", 40, 1, 4, "brokers", True, "a broker is shut down in order; its leaders move, and move back", 3
    ),
    Kind("topic-recreate", 12, 0, 2, "topics", True, "a source topic is deleted and created again"),
    Kind("permission", 24, 1, 10, "topics", True, "a permission of the mirror is withdrawn, and given back"),
)
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Fault:
    """One decision. `draw`: a number from 0 to 1 that picks the victim among those alive; `variant`: another."""

    number: int
    kind: str
    side: str
    at_s: float  # since the storm began; later if the fault before it in the same lane is not over
    hold_s: float
    draw: float
    variant: float

    @property
    def lane(self) -> str:
        return BY_NAME[self.kind].lane_of(self.side)


def draw_plan(
    seed: int, faults: int, *, minutes: float, brokers: int = 1, only: Collection[str] = ()
) -> dict[str, list[Fault]]:
    """The faults of every lane, in their order; spread over about so many minutes."""
    kinds = [kind for kind in KINDS if kind.brokers <= brokers and (not only or kind.name in only)]
    dice = random.Random(seed)
    chosen = _shares(kinds, faults)
    dice.shuffle(chosen)
    sides = [dice.choice(SIDES) for _ in chosen]
    sizes = Counter(kind.lane_of(side) for kind, side in zip(chosen, sides, strict=True))
    # Every lane has its faults at random moments of the same while: none is left waiting alone at the end.
    moments = {lane: sorted(dice.uniform(0, minutes * 60) for _ in range(size)) for lane, size in sizes.items()}
    lanes: dict[str, list[Fault]] = {}
    for number, (kind, side) in enumerate(zip(chosen, sides, strict=True)):
        name = kind.lane_of(side)
        lane = lanes.setdefault(name, [])
        hold_s = dice.uniform(kind.low_s, kind.high_s)
        at_s = moments[name][len(lane)]
        lane.append(Fault(number, kind.name, side, at_s, hold_s, dice.random(), dice.random()))
    return lanes


def _shares(kinds: list[Kind], faults: int) -> list[Kind]:
    """Each kind by its weight, the largest remainders first; every kind at least once where there is room."""
    if not kinds:
        return []
    total = sum(kind.weight for kind in kinds)
    exact = {kind.name: faults * kind.weight / total for kind in kinds}
    counts = {name: int(share) for name, share in exact.items()}
    if faults >= 2 * len(kinds):
        counts = {name: max(1, count) for name, count in counts.items()}
    while sum(counts.values()) > faults:
        counts[max(counts, key=lambda name: counts[name])] -= 1
    short = sorted(exact, key=lambda name: counts[name] - exact[name])
    for place in range(faults - sum(counts.values())):
        counts[short[place % len(short)]] += 1
    return [kind for kind in kinds for _ in range(counts[kind.name])]

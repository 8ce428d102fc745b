"""Spokes as `heliograph spoke` shows them: what a running process says of their flows, what the clusters say, in a row.

Answers for the words and the columns, and for waiting until a spoke's shared topic is drained. What is left in one is
counted by `review.spokes`, by positions and logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from heliograph.cli.chosen import columns
from heliograph.config.spokes import Spoke
from heliograph.errors import HeliographError

if TYPE_CHECKING:
    from heliograph.control.client import Process
    from heliograph.review.spokes import Waiting

Outlines = Mapping[str, Mapping[str, Any]]  # by flow, of those that run here

WHOLE = ("starting", "restarting", "failed", "paused", "stopped", "standby")  # states of a flow that are every topic's
LOOK_S = 1.0  # between two looks at what is left: positions are written once a second
OUTLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Left:
    """Records on their way; None: not known, and why."""

    on_spoke: int | None  # in an intermediate topic, not carried over yet
    on_hub: int | None  # not put back yet
    why: str = ""

    @property
    def records(self) -> int | None:
        known = [one for one in (self.on_spoke, self.on_hub) if one is not None]
        return sum(known) if len(known) == 2 else None


@dataclass(frozen=True, slots=True)
class Row:
    spoke: str
    hub: str
    state: str
    reason: str
    lag_records: int | None  # in the chosen topics, not in the shared one yet
    waiting_records: int | None  # in the shared one, not put back yet
    records_per_s: float | None
    bytes_per_s: float | None
    weight: int
    cap_bytes_per_s: int | None
    shared_topic: str


def outlines(spokes: Sequence[Spoke], running: Sequence[Process]) -> Outlines:
    """What the processes say of these spokes' flows."""
    from heliograph.control.client import speak

    names = sorted({flow.name for one in spokes for flow in (one.mux, one.own, one.demux) if flow is not None})
    found: dict[str, Mapping[str, Any]] = {}
    for process in running:
        found |= speak(process.place, {"do": "outline", "flows": names}, OUTLINE_S)["flows"]
    return found


def state_of(spoke: Spoke, said: Outlines, dead: str) -> tuple[str, str]:
    """One word and the reason. A spoke that is not there is dead, whatever its flows make of it."""
    if dead:
        return "dead", dead
    mux = said.get(spoke.mux.name)
    if mux is None:
        here = [name for name in (spoke.demux and spoke.demux.name, spoke.own and spoke.own.name) if name in said]
        return ("elsewhere", f"{spoke.mux.name} is not run here") if here else ("not running", "")
    if mux["ordered"] or not mux["healthy"]:
        return str(mux["ordered"] or mux["state"]), str(mux["reason"])
    for flow, topic in _further(spoke):
        outline = said.get(flow, {})
        if outline.get("state") in WHOLE:
            return str(outline["state"]), f"{flow}: {outline['reason']}"
        trouble = outline.get("parked", {}).get(topic) or outline.get("topics", {}).get(topic, {}).get("reason")
        if trouble and outline.get("topics", {}).get(topic):
            return "stalled", f"{flow}: {trouble}"
    return str(mux["state"]), str(mux["reason"])


def _further(spoke: Spoke) -> list[tuple[str, str]]:
    """The flows behind the mux that its shared topic goes through, as it is called there."""
    shared = spoke.mux.mux.topic if spoke.mux.mux else ""
    found = [(spoke.own.name, shared)] if spoke.own and spoke.intermediate else []
    return found + ([(spoke.demux.name, spoke.rule.topic)] if spoke.demux and spoke.rule else [])


def row(spoke: Spoke, said: Outlines, dead: str, left: Left) -> Row:
    state, reason = state_of(spoke, said, dead)
    mux = said.get(spoke.mux.name)
    rates: Mapping[str, Any] | None = mux
    if spoke.demux and spoke.rule and spoke.demux.name in said:
        nothing = {"records_per_s": 0.0, "bytes_per_s": 0.0}
        rates = said[spoke.demux.name]["topics"].get(spoke.rule.topic, nothing)
    return Row(
        *(spoke.alias, spoke.hub, state, reason if reason or not left.why else left.why),
        lag_records=None if mux is None or dead else mux["lag_records"],
        waiting_records=left.records,
        records_per_s=None if rates is None else float(rates["records_per_s"]),
        bytes_per_s=None if rates is None else float(rates["bytes_per_s"]),
        weight=spoke.weight,
        cap_bytes_per_s=None if spoke.cap is None else spoke.cap.bytes_per_s,
        shared_topic=spoke.mux.mux.topic if spoke.mux.mux else "",
    )


def rows(spokes: Sequence[Spoke], said: Outlines) -> list[Row]:
    from heliograph.review.spokes import dead

    if not spokes:
        return []
    with ThreadPoolExecutor(min(len(spokes), 16), thread_name_prefix="spoke") as pool:
        troubles = list(pool.map(lambda one: dead(one.mux.source), spokes))
        lefts = list(pool.map(left_of, spokes, troubles))
    return [row(one, said, why, left) for one, why, left in zip(spokes, troubles, lefts, strict=True)]


def described(one: Row) -> dict[str, Any]:
    return asdict(one)


def table(found: Sequence[Row]) -> str:
    headings = ["spoke", "hub", "state", "lag", "waiting", "records/s", "MB/s", "weight", "cap MB/s", ""]
    cells = [
        [
            *(one.spoke, one.hub, one.state, _number(one.lag_records), _number(one.waiting_records)),
            *(_rate(one.records_per_s, 1), _rate(one.bytes_per_s, 1e6)),
            *(str(one.weight), _rate(one.cap_bytes_per_s, 1e6), one.reason),
        ]
        for one in found
    ]
    return columns(headings, cells, frozenset(range(3, 9)))


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _rate(value: float | None, unit: float) -> str:
    if value is None:
        return "-"
    return f"{value / unit:,.0f}" if unit == 1 else f"{value / unit:.3g}"


# ---------------------------------------------------------------- what is left


def left_of(spoke: Spoke, dead: str) -> Left:
    """Asked once."""
    with Drain(spoke, dead) as drain:
        return drain.look()


class Drain:
    """A spoke's shared topic, looked at again and again."""

    def __init__(self, spoke: Spoke, dead: str) -> None:
        self._spoke, self._dead = spoke, dead
        self._open = ExitStack()
        self._watches: dict[str, Any] = {}
        self._ends: list[Mapping[Any, int]] = []

    def __enter__(self) -> Drain:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def look(self) -> Left:
        why = ""
        found: dict[str, int | None] = {"own": 0, "demux": 0}
        self._ends = []
        for key, flow, topic in self._places():
            if key == "own" and self._dead:
                found[key], why = None, f"what {self._spoke.alias} still holds cannot be known: {self._dead}"
                continue
            try:
                waiting = self._watch(key, flow, topic)
                found[key] = waiting.records
                self._ends.append(waiting.ends)
            except HeliographError as error:
                found[key], why = None, f"what is left cannot be counted: {error}"
                self._open.close()
                self._watches.clear()
        return Left(found["own"], found["demux"], why)

    def wait(
        self, seconds: float, tell: Callable[[Left], None], *, pause: Callable[[float], None] = time.sleep
    ) -> Left:
        """Until nothing is left, seen twice with nothing come in between; or so long."""
        deadline = time.monotonic() + seconds
        before: list[Mapping[Any, int]] | None = None
        while True:
            left = self.look()
            drained = not left.on_hub and left.on_hub is not None and (left.on_spoke == 0 or bool(self._dead))
            if drained and before == self._ends:
                return left
            before = self._ends if drained else None
            if time.monotonic() > deadline:
                return left
            tell(left)
            pause(LOOK_S)

    def _places(self) -> list[tuple[str, Any, str]]:
        spoke = self._spoke
        shared = spoke.mux.mux.topic if spoke.mux.mux else ""
        found = [("own", spoke.own, shared)] if spoke.own and spoke.intermediate else []
        return found + ([("demux", spoke.demux, spoke.rule.topic)] if spoke.demux and spoke.rule else [])

    def _watch(self, key: str, flow: Any, topic: str) -> Waiting:
        from heliograph.review.spokes import watching

        if key not in self._watches:
            self._watches[key] = self._open.enter_context(watching(flow, topic))
        found: Waiting = self._watches[key].look()
        return found

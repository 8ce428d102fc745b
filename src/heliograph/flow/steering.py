"""What can be asked of a running process from outside: who it is, how flows are, and pause, resume, stop and apply.

Answers for what a request means and for refusing one that means nothing; it knows no sockets, so that whoever can reach
the process may use it: the control socket (`control`), or an HTTP API.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from heliograph.errors import ControlError, FlowError
from heliograph.flow.helm import Steered
from heliograph.flow.outline import outline
from heliograph.health.status import FlowReport, Generation, Scope, Word

WORDS: Mapping[str, Word] = {"pause": "paused", "stop": "stopped", "resume": "running"}
CHANGES = (*WORDS, "apply")  # the requests that change something, which are logged with who made them


class Steerable(Protocol):
    """What is needed of a runner."""

    generation: Generation

    @property
    def flows(self) -> tuple[str, ...]: ...

    def report(self) -> tuple[FlowReport, ...]: ...

    def steer(self, flow: str, scope: Scope, word: Word, by: str) -> Steered: ...


class Steering:
    def __init__(self, runner: Steerable, apply: Callable[[str], Mapping[str, Any]]) -> None:
        """`apply`: read the file again and take it up, for somebody; raises what is wrong with it."""
        self._runner, self._apply = runner, apply

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises HeliographError for what cannot be done."""
        word = request["do"]
        if word == "about":
            return self._about()
        if word == "outline":
            return {"flows": self._outlines(request)}
        if word == "apply":
            return self._apply(_text(request, "by"))
        if word in WORDS:
            return self._steer(word, request)
        raise ControlError(f"no word {word!r}: there is about, outline, apply, {', '.join(WORDS)}")

    def _about(self) -> dict[str, Any]:
        generation = asdict(self._runner.generation)
        return {"pid": os.getpid(), "file": generation["file"], "flows": self._runner.flows, "generation": generation}

    def _outlines(self, request: Mapping[str, Any]) -> dict[str, Any]:
        wanted = request.get("flows")
        if not isinstance(wanted, list) or not all(isinstance(one, str) for one in wanted):
            raise ControlError("'flows' is a list of their names")
        return {one.status.name: outline(one) for one in self._runner.report() if one.status.name in wanted}

    def _steer(self, word: str, request: Mapping[str, Any]) -> dict[str, Any]:
        flow, scope = _text(request, "flow"), _scope(request)
        if word != "resume":  # an order may stand about what is not there any more
            self._require_known(flow, scope)
        done = self._runner.steer(flow, scope, WORDS[word], _text(request, "by"))
        return {
            "flow": flow,
            "orders": [f"{one.where}: {one.words}" for one in done.given],
            "standing": [f"{one.where}: {one.words}" for one in done.standing],
            "partitions": done.partitions,
            "unwritten": done.unwritten,
        }

    def _require_known(self, flow: str, scope: Scope) -> None:
        topic, partition = scope
        report = next((one for one in self._runner.report() if one.status.name == flow), None)
        if report is None or topic is None:
            return  # whether there is such a flow is the runner's to say
        known = {one.topic for one in report.partitions} | {one.topic for one in report.status.parked}
        if topic not in known:
            near = difflib.get_close_matches(topic, known, n=1)
            guess = f"did you mean {near[0]!r}?" if near else "`heliograph offsets list FILE` names those it copies"
            raise FlowError(f"{flow} copies no topic {topic!r}", fix=guess)
        has = {one.partition for one in report.partitions if one.topic == topic}
        if partition is not None and partition not in has:
            there = f"0 to {max(has)}" if has else "none that can be copied"
            raise FlowError(f"{topic} has no partition {partition} in {flow}", fix=f"its partitions are {there}")


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value or len(value) > 1000:
        raise ControlError(f"{name!r} is missing, or no text")
    return value


def _scope(request: Mapping[str, Any]) -> Scope:
    topic, partition = request.get("topic"), request.get("partition")
    if topic is not None and (not isinstance(topic, str) or not topic):
        raise ControlError("'topic' is no text")
    whole = isinstance(partition, int) and not isinstance(partition, bool) and partition >= 0
    if partition is not None and (not whole or topic is None):
        raise ControlError("'partition' is a number from 0 on, of a 'topic'")
    return topic, partition

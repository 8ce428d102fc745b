"""`run --until-current`: how far it is, when it is over, and what it came to. What is looked at: `review.goal`,
`review.audit`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.cli.chosen import columns
from heliograph.cli.main import say
from heliograph.cli.out import echo, echo_lines
from heliograph.errors import HeliographError
from heliograph.health.status import Runner
from heliograph.review.audit import Checked, audit, compared
from heliograph.review.goal import Goal, Left
from heliograph.types import Flow

NAMED = 20  # partitions in the summary before "and n more"


class Course:
    """From the ends as they are when this is made."""

    def __init__(self, flows: Sequence[Flow], runner: Runner, *, compare: bool = False) -> None:
        """`compare`: read both sides afterwards, and compare every record."""
        self._flows, self._runner, self._compare = flows, runner, compare
        self._goal = Goal(flows, runner.report())
        self._began = time.monotonic()
        self._left: dict[str, list[Left]] = {}

    def look(self) -> bool:
        """Whether it is over."""
        self._left = self._goal.left(self._runner.report())
        return self._goal.reached(self._left, time.monotonic())

    def conclude(self) -> int:
        """After the end: check the copy, say what it came to. The exit code."""
        took_s = time.monotonic() - self._began
        try:
            checked = self._check()
        except HeliographError as problem:  # the copying went well, so it is no bad input
            say(problem.condition, f"copied, but not checked: {problem.message}", problem.fix)
            return 1
        document = {name: summary(checks, self._left.get(name, [])) for name, checks in checked.items()}
        if sys.stdout.isatty():
            echo_lines(lines(document, took_s))
        else:
            echo(json.dumps({"until_current": document, "seconds": round(took_s, 3)}))
        wrong = any(not flow["complete"] for flow in document.values())
        for line in _complaints(document):
            echo(line, err=True)
        return 1 if wrong else 0

    def _check(self) -> dict[str, list[Checked]]:
        checked = {flow.name: audit(flow, self._goal.ends.get(flow.name, {})) for flow in self._flows}
        if not self._compare:
            return checked
        echo("comparing every record with its copy", err=True)
        return {flow.name: compared(flow, checked[flow.name]) for flow in self._flows}


def summary(checks: Sequence[Checked], left: Sequence[Left]) -> dict[str, Any]:
    """One flow. What was left is told by its reason, in the place of what an audit finds of it."""
    told = {(one.topic, one.partition) for one in left}
    problems = [str(one) for one in left]
    problems += [f"{one.tp}: {one.problem}" for one in checks if one.problem and tuple(one.tp) not in told]
    return {
        "complete": not problems,
        "topics": len({one.tp.topic for one in checks}),
        "partitions": len(checks),
        "records": sum(one.records for one in checks),
        "compared": sum(one.compared or 0 for one in checks),
        "problems": problems,
    }


def lines(document: Mapping[str, Mapping[str, Any]], took_s: float) -> list[str]:
    rows = [
        [
            name,
            "complete" if flow["complete"] else "NOT complete",
            *(f"{flow[key]:,}" for key in ("topics", "partitions", "records", "compared")),
        ]
        for name, flow in document.items()
    ]
    head = ["flow", "copy", "topics", "partitions", "records", "compared"]
    return [columns(head, rows, right=frozenset({2, 3, 4, 5})), f"took {took_s:.1f} s"]


def _complaints(document: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = []
    for name, flow in document.items():
        problems = flow["problems"]
        found += [f"{name}: {problem}" for problem in problems[:NAMED]]
        if len(problems) > NAMED:
            found.append(f"{name}: and {len(problems) - NAMED} more")
    return found

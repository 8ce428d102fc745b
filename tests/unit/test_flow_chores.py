"""Recurring work goes on whatever a turn raises, and says what went wrong when that changes."""

from __future__ import annotations

from structlog.typing import EventDict

from heliograph.errors import HeliographError, Unreachable
from heliograph.flow.chores import Chore
from tests.kit import wait_until


def test_a_chore_outlives_whatever_its_turns_raise(logs: list[EventDict]) -> None:
    class Panic(BaseException):
        """As a panic in Rust code reaches Python: not an Exception."""

    troubles: list[BaseException | None] = [Unreachable("gone"), Panic("a"), Panic("a"), KeyError("b"), None]
    seen: list[HeliographError | None] = []

    def turn() -> None:
        seen.append(chore.trouble)
        error = troubles.pop(0) if troubles else None
        if error is not None:
            raise error

    chore = Chore("us->eu", "checkpoints", turn, interval_s=0.0)
    chore.start()
    wait_until(lambda: len(seen) > 5, what="the turn behind those that failed")
    assert not chore.ended
    assert [error.condition if error else "" for error in seen[:6]] == [
        "", "UNREACHABLE", "INTERNAL_ERROR", "INTERNAL_ERROR", "INTERNAL_ERROR", "",
    ]  # fmt: skip
    assert chore.trouble is None
    tracebacks = [line for line in logs if "exc_info" in line]
    assert [(line["thread"], line["flow"]) for line in tracebacks] == [("checkpoints", "us->eu")] * 2
    chore.stop()
    chore.join(5)
    assert chore.ended

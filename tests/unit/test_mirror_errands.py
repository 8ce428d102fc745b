"""Blocking calls beside the loop: every one is answered, whatever it raises."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

from structlog.typing import EventDict

from heliograph.errors import HeliographError, InternalError, TimedOut
from heliograph.mirror.errands import Errands

Answer = tuple[Any, HeliographError | None]


class Loop:
    """Waits for answers as a task's event loop does."""

    def __init__(self) -> None:
        self.errands = Errands("eu")
        self.answers: list[Answer] = []

    def call(self, *calls: Callable[[], Any]) -> list[Answer]:
        self.answers = []
        for one in calls:
            self.errands.submit(one, lambda result, error: self.answers.append((result, error)))
        while len(self.answers) < len(calls):
            assert select.select([self.errands.fileno()], [], [], 10)[0], f"unanswered after {self.answers}"
            self.errands.settle()
        return self.answers


def raising(error: BaseException) -> Callable[[], Any]:
    def call() -> None:
        raise error

    return call


def test_a_result_and_an_error_of_ours_come_as_they_are() -> None:
    loop, error = Loop(), TimedOut("late")
    assert loop.call(lambda: 1, raising(error)) == [(1, None), (None, error)]
    loop.errands.close()


def test_an_unforeseen_exception_is_answered_and_the_calls_behind_it_run(logs: list[EventDict]) -> None:
    """A setting that a target does not list was a KeyError, which ended the thread: metadata never came again."""
    loop, settings = Loop(), dict[str, str]()
    answers = loop.call(
        lambda: settings["max.message.bytes"],
        raising(SystemExit(1)),
        lambda: "metadata",
        lambda: settings["max.message.bytes"],
    )
    assert answers[2] == ("metadata", None)
    for result, error in (answers[0], answers[1], answers[3]):
        assert result is None
        assert isinstance(error, InternalError)
        assert (error.condition, error.retriable) == ("INTERNAL_ERROR", False)
    assert "KeyError" in str(answers[0][1])
    assert [type(line["exc_info"]) for line in logs if "exc_info" in line] == [KeyError, SystemExit, KeyError]
    loop.errands.close()


def test_the_traceback_of_a_call_that_is_repeated_is_logged_once(logs: list[EventDict]) -> None:
    loop = Loop()
    call = raising(ValueError("x"))
    for _ in range(3):
        [(_, error)] = loop.call(call)
        assert isinstance(error, InternalError)
    assert len([line for line in logs if "exc_info" in line]) == 1
    loop.errands.close()

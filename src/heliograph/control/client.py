"""Speaking to running processes of this machine: who runs which file, and one request to one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from heliograph.control.places import Place, connect, places
from heliograph.control.server import read_line
from heliograph.errors import ControlError, HeliographError

ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """A running `heliograph run`."""

    place: Place
    file: str
    flows: tuple[str, ...]

    def __str__(self) -> str:
        return f"process {self.place.pid} ({self.file})"


def processes(file: Path | None = None) -> list[Process]:
    """Those that run this file, or any. One that does not answer is left out: its flows cannot be known."""
    found = []
    for place in places(file):
        try:
            about = speak(place, {"do": "about"}, ASK_S)
            found.append(Process(place, str(about["file"]), tuple(map(str, about["flows"]))))
        except (HeliographError, KeyError, TypeError):
            continue
    return found


def speak(place: Place, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
    """The answer. Raises what the process answered that is wrong, or that it does not answer."""
    who = f"process {place.pid}"
    try:
        with connect(place) as connection:
            connection.sendall(msgspec.json.encode(request) + b"\n")
            line = read_line(connection, timeout_s)
    except (OSError, ControlError) as error:
        raise ControlError(f"{who} does not answer: {error}", fix="its log may know why; it may be ending") from error
    try:
        answer = msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        raise ControlError(f"{who} answers with what is no JSON: {line[:80]!r}") from error
    if not isinstance(answer, dict):
        raise ControlError(f"{who} answers with what is no object: {line[:80]!r}")
    if isinstance(wrong := answer.get("error"), dict):
        raise Answered(str(wrong.get("condition")), str(wrong.get("message")), str(wrong.get("fix") or ""))
    return answer


class Answered(ControlError):
    """An error that the process answered with; it keeps its name."""

    def __init__(self, condition: str, message: str, fix: str) -> None:
        super().__init__(message, fix=fix)
        self.condition = condition  # type: ignore[misc]  # the other side's class decides

"""Bodies of requests taken for what they should be, or refused with what they are not. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from heliograph.connect.asking import Refusal


def object_of(body: Any, what: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the body must be a JSON object, {what}")
    return body


def texts_of(body: Any, what: str) -> dict[str, str | None]:
    """A map of texts; numbers and truth values become texts, as in Connect."""
    given: dict[str, str | None] = {}
    for key, value in object_of(body, what).items():
        if value is None or isinstance(value, str):
            given[key] = value
        elif isinstance(value, bool):
            given[key] = str(value).lower()
        elif isinstance(value, int | float):
            given[key] = str(value)
        else:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{what}: {key!r} must be a text, not a list or an object")
    return given

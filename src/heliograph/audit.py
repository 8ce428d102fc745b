"""One line for each change that somebody made to a running process: who, what, and the outcome.

Written at INFO whatever the program's own level is, so that a quiet log, or one that an admin made quiet, still says
who changed what. Never any value of a configuration: paths and words only.
"""

from __future__ import annotations

import logging

import structlog


def record(who: str, where: str, what: str, outcome: int | str, **more: object) -> None:
    """`who`: user or process; `where`: the address it came from; `outcome`: a status, or words."""
    made = structlog.get_config()
    log = structlog.wrap_logger(
        made["logger_factory"](), wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)
    )
    log.info("audit", who=_printable(who), where=where, what=_printable(what), outcome=outcome, **more)


def _printable(text: str) -> str:
    """Names come from outside: on a terminal they must not move the cursor, nor begin a line of their own."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)

"""Changes that a command makes by itself, on a cluster or to a file: one audit line each, on stderr, like those that a
running process writes about changes made through it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from heliograph import audit
from heliograph.cli.steered import who
from heliograph.errors import HeliographError


class Change:
    """`outcome`: in words, for a change that was made in part, or of which there is more to say."""

    outcome = "done"


@contextmanager
def audited(what: str) -> Iterator[Change]:
    """Around the change itself, not around what is only shown. `what`: names and numbers, no values of a file."""
    change, outcome = Change(), "failed"
    try:
        yield change
        outcome = change.outcome
    except HeliographError as error:
        outcome = f"refused: {error.condition}"
        raise
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        audit.record(f"{who()} (uid {os.getuid()}, pid {os.getpid()})", "command line", what, outcome)

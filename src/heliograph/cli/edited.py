"""A file that a verb edits, and the process that runs it: both change, or neither.

Answers for writing it whole or not at all, with the owner and mode it had, for asking every process that runs it to
take it up, and for putting it back if one will not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.cli.apply import ANSWER_S, head
from heliograph.cli.out import echo
from heliograph.cli.steered import who
from heliograph.errors import ConfigError, HeliographError

if TYPE_CHECKING:
    from heliograph.control.client import Process


def read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise ConfigError(f"{file}: cannot be read: {problem.strerror or problem}") from problem


def replace(file: Path, before: bytes, after: bytes) -> None:
    """Raises ConfigError if it is not what it was read as: somebody else edits it."""
    if read(file) != before:
        raise ConfigError(f"{file} was changed by somebody else meanwhile", fix="look at it, and say it again")
    real = Path(os.path.realpath(file))  # a link stays one
    try:
        handle, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    except OSError as problem:
        raise _unwritable(file, problem) from problem
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(after)
            new.flush()
            os.fsync(new.fileno())
        shutil.copymode(real, name)
        if os.geteuid() == 0:
            about = real.stat()
            os.chown(name, about.st_uid, about.st_gid)
        os.replace(name, real)
    except OSError as problem:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise _unwritable(file, problem) from problem


def _unwritable(file: Path, problem: OSError) -> ConfigError:
    why = f"{file}: cannot be written: {problem.strerror or problem}"
    return ConfigError(why, fix="edit it where it comes from, then: heliograph apply FILE")


def take_up(file: Path, before: bytes, after: bytes, running: Sequence[Process]) -> None:
    """Says what changed. Raises what a process has against it; then the file is as before, and so is every process."""
    from heliograph.control.client import Answered, speak

    replace(file, before, after)
    done: list[Process] = []
    for process in running:
        try:
            answer = speak(process.place, {"do": "apply", "by": who()}, ANSWER_S)
        except Answered:
            replace(file, after, before)
            _take_back(done)
            raise
        except HeliographError as error:  # whether it has taken it up cannot be known: the file is what is wanted
            error.fix = f"the file is edited; when the process answers: heliograph apply {file}"
            raise
        done.append(process)
        for warning in answer["warnings"]:
            echo(f"warning: {warning}", err=True)
        echo(f"{process}: {head(answer)}")
        for line in answer["lines"]:
            echo(f"  {line}")
    if not running:
        echo(f"{file} is edited; nobody runs it here, `heliograph run {file}` takes it up", err=True)


def _take_back(done: Sequence[Process]) -> None:
    from heliograph.control.client import speak

    for process in done:
        try:
            speak(process.place, {"do": "apply", "by": who()}, ANSWER_S)
        except HeliographError as error:
            echo(f"warning: {process} still goes by the edited file: {error}", err=True)

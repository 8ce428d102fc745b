"""The file of a running process, read again and taken up: asked for by `heliograph apply` or by SIGHUP.

A file with problems changes nothing: the one before goes on, and what is wrong is said to whoever asked, in the log,
and in the status. Answers for reading, comparing and saying; what becomes of flows is the runner's business.
"""

from __future__ import annotations

import hashlib
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from heliograph import audit
from heliograph.config import load as loading
from heliograph.config.diff import Difference, differences
from heliograph.config.keys import HTTPS
from heliograph.config.model import Config
from heliograph.errors import ConfigError, HeliographError
from heliograph.health.status import Generation
from heliograph.types import Flow

if TYPE_CHECKING:
    from heliograph.flow.runner import Outcome

log = structlog.get_logger()


class Changing(Protocol):
    """What is needed of a runner."""

    generation: Generation

    def change(self, flows: Sequence[Flow]) -> list[Outcome]: ...


class Applying:
    def __init__(
        self,
        file: Path,
        config: Config,
        runner: Changing,
        *,
        lenient: bool,
        targets: Sequence[str],
        serves_https: bool = False,
    ) -> None:
        """`serves_https`: `--http https://…` goes by the file's `listeners.https.*`, read at the start."""
        self._file, self._config, self._runner = file, config, runner
        self._lenient, self._targets, self._serves_https = lenient, targets, serves_https
        self._lock = threading.Lock()
        runner.generation = Generation(1, _now_ms(), _digest(file), str(file.absolute()))

    def apply(self, by: str) -> dict[str, Any]:
        """Raises what is wrong with the file or the clusters it names; then nothing has changed."""
        with self._lock:
            before = self._runner.generation
            try:
                digest = _digest(self._file)
                new = loading.load(self._file, lenient=self._lenient).serving(self._targets)
                self._require_same_listener(new)
                keys = differences(self._config, new)
                self._runner.generation = replace(before, count=before.count + 1)  # flows that change say this one
                outcomes = self._runner.change((*new.flows, *new.heartbeat_only))
            except HeliographError as error:
                self._runner.generation = replace(before, refused=before.refused + 1, problem=str(error))
                log.error(
                    "the edited file is not taken up, the one before goes on",
                    file=str(self._file),
                    by=by,
                    why=str(error),
                )
                raise
            except BaseException:
                self._runner.generation = before
                raise
            self._config = new
            count = before.count + 1 if outcomes else before.count
            at_ms = _now_ms() if outcomes else before.at_ms
            self._runner.generation = replace(before, count=count, at_ms=at_ms, digest=digest, problem="")
            lines = list(_lines(outcomes, keys))
            log.warning("the edited file is taken up", file=str(self._file), by=by, generation=count, changes=lines)
            return {"generation": count, "digest": digest, "lines": lines, "warnings": list(new.warnings)}

    def _require_same_listener(self, new: Config) -> None:
        """`listeners.https.*` say who may connect. They are read at the start only, so an edit of them is refused:
        ConfigError."""
        old = self._config.https
        changed = sorted(key for key in old.keys() | new.https.keys() if old.get(key) != new.https.get(key))
        if self._serves_https and changed:
            raise ConfigError(
                [f"{self._file}: {HTTPS}{key} changed: --http goes by what it was when it started" for key in changed],
                fix="restart this process; files of certificates are read again by themselves, also under the old name",
            )

    def apply_quietly(self, by: str) -> None:
        """For somebody who cannot be answered: what is wrong was logged."""
        outcome = "failed"
        try:
            self.apply(by)
            outcome = "done"
        except HeliographError as error:
            outcome = f"refused: {error.condition}"
        except Exception:  # the top of a thread: said, and the next signal finds us
            log.exception("the edited file could not be taken up")
        finally:
            audit.record(by, "signal", f"apply {self._file}", outcome)


def _lines(outcomes: Sequence[Outcome], keys: Mapping[str, Sequence[Difference]]) -> Iterator[str]:
    for one in outcomes:
        yield f"{one.flow}: {one.what}: {one.words}"
        yield from (f"  {key}" for key in keys.get(one.flow, ()))


@contextmanager
def on_hangup(again: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
    """Inside, SIGHUP means to read the file again; but where it says that our terminal is gone, it means to end, as
    it always did. Who was started to ignore it (nohup) goes on to."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_IGN:
        yield
        return
    had_terminal = sys.stdout.isatty()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if had_terminal and not _has_terminal():
            end()
        else:
            threading.Thread(target=again, name="apply", daemon=True).start()

    signal.signal(signal.SIGHUP, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _has_terminal() -> bool:
    try:
        termios.tcgetattr(sys.stdout.fileno())
    except (termios.error, OSError, ValueError):
        return False
    return True


def _digest(file: Path) -> str:
    if not file.is_file():
        return ""  # a pipe can be read once; what is not there is said by who loads it
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError as problem:
        raise ConfigError(f"{file}: cannot be read: {problem.strerror or problem}") from problem


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""How much the program says, by logger, as Connect's API names and sets it.

`root` is everything we say ourselves; other names are those of Python's logging, where libraries speak.
"""

from __future__ import annotations

import logging
import threading
import time

import structlog

from heliograph.connect.asking import Level

ROOT = "root"
NUMBERS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
    "ALL": logging.DEBUG,
}


class Loggers:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: dict[str, Level] = {}
        self._followed: dict[str, str] = {}  # of all nodes: what was last heard

    def levels(self) -> dict[str, Level]:
        """Of those whose level was set, by us or by the program."""
        found = {ROOT: Level(_word(logging.getLogger().level))}
        for name, one in list(logging.root.manager.loggerDict.items()):
            if isinstance(one, logging.Logger) and one.level:
                found[name] = Level(_word(one.level))
        with self._lock:
            return {**found, **self._set}

    def set(self, name: str, level: str) -> None:
        number = NUMBERS[level]
        if name.lower() == ROOT:
            name = ROOT
            logging.getLogger().setLevel(number)
            structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(min(number, logging.CRITICAL)))
        else:
            logging.getLogger(name).setLevel(number)
        with self._lock:
            self._set[name] = Level(level, time.time_ns() // 1_000_000)

    def follow(self, name: str, level: str) -> None:
        """What was said to all nodes, once."""
        if self._followed.get(name) != level and level in NUMBERS:
            self._followed[name] = level
            self.set(name, level)


def _word(number: int) -> str:
    return next((word for word, one in NUMBERS.items() if one <= number), "ALL")

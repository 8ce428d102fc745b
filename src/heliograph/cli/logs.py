"""What the program says about itself on stderr: by structlog, readable on a terminal, JSON lines otherwise.

Warnings and worse by default, `-v` adds the course of events, `--debug` everything. Records of the standard library's
logging (PySpark, py4j, confluent-kafka) come out in the same form.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

NOISY = ("py4j", "pyspark", "numba", "jgo", "asyncio")

F = TypeVar("F", bound=Callable[..., Any])


def configure(*, verbose: bool = False, debug: bool = False) -> None:
    import structlog

    level = logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render = _renderers()
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_args: structlog.PrintLogger(_Stderr()),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(_Stderr())
    formatter = structlog.stdlib.ProcessorFormatter
    handler.setFormatter(formatter(foreign_pre_chain=shared, processors=[formatter.remove_processors_meta, *render]))
    if not debug:
        handler.addFilter(_is_not_raised)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.DEBUG if debug and name == "pyspark" else logging.WARNING)


def _is_not_raised(record: logging.LogRecord) -> bool:
    """py4j raises every trouble that it logs, and logs one, by the root logger, when its JVM is killed on purpose."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _renderers() -> list[Any]:
    import structlog

    if sys.stderr.isatty():
        from heliograph.textlog import text_renderers

        return text_renderers(colors="NO_COLOR" not in os.environ)
    # Always with the traceback: a fault that happened once, at night, is not there any more when --debug is on.
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


class _Stderr:
    """Whatever sys.stderr is at the moment: while the live table is up, rich stands there and writes above it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def log_options(function: F) -> F:
    """`-v` and `--debug` after the verb as well as before it."""

    def verbose(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        _again(ctx, "verbose", value)

    def debug(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        _again(ctx, "debug", value)

    function = click.option(
        "--debug", is_flag=True, expose_value=False, callback=debug, help="Say everything on stderr."
    )(function)
    return click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=verbose, help="Say more on stderr."
    )(function)


def _again(ctx: click.Context, name: str, value: bool) -> None:
    if value:
        chosen = {"verbose": False, "debug": False, **(ctx.obj or {}), name: True}
        ctx.obj = chosen
        configure(verbose=chosen["verbose"], debug=chosen["debug"])

"""What only needs to be done once on a machine: kernels compiled, Spark's classes recorded. For `heliograph warm`."""

from __future__ import annotations

from pathlib import Path

from heliograph import batch


def kernels() -> None:
    batch.warm()


def prepare_kernels() -> None:
    """Compiled in a process beside this one, if they never were."""
    batch.prepare()


def classes() -> Path | None:
    """Where Spark's class archive is, or would be; None without Java."""
    from heliograph.spark import archive

    return archive.path()


def record_classes(path: Path) -> None:
    from heliograph.spark import archive

    archive.make(path)

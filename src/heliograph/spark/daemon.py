"""The parent of Spark's Python workers, with the mirror task already imported.

Workers are forked from it, so a task starts (and starts again, after a kill) without importing anything, and a dozen
workers share one copy of the code. Nothing here may start a thread or open a socket: those do not survive a fork.

Spark starts such a parent for every kind of worker it needs, also for those that only look at the data source's class
once; they stay bare.
"""

import gc
import sys

from pyspark import daemon

if __name__ == "__main__":
    if sys.argv[1:] == ["pyspark.worker"]:
        import structlog

        import heliograph.spark.source  # noqa: F401
        from heliograph.mirror import task
        from heliograph.textlog import text_renderers

        # Standard output belongs to Spark's protocol.
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                *text_renderers(colors=False),
            ],
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        task.warm()
        # What is imported stays: looking through it would stop a task for 80 ms now and then, and unshare its pages.
        gc.freeze()
    daemon.manager()

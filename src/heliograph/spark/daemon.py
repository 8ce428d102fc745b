"""The parent of Spark's Python workers, with the mirror task already imported.

Workers are forked from it, so a task starts (and starts again, after a kill) without importing anything, and a dozen
workers share one copy of the code. Nothing here may start a thread or open a socket: those do not survive a fork.
"""

from pyspark import daemon

import heliograph.mirror.task
import heliograph.spark.source  # noqa: F401

if __name__ == "__main__":
    daemon.manager()

"""Topics that hold state: one reader that never takes a partial read for a complete one, one writer whose repeats count
once. What the records mean is the callers' business."""

from heliograph.topiclog.reader import TopicReader, fetch_below
from heliograph.topiclog.writer import WRITE_HEADER, TopicWriter

__all__ = ["WRITE_HEADER", "TopicReader", "TopicWriter", "fetch_below"]

"""What an operator should see to before it becomes a fault: a certificate that ends, a file that cannot be read.

Shown by /status and /health, beside the log. A notice never makes the process unhealthy: records are copied.
"""

from __future__ import annotations

import threading


class Notices:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}

    def set(self, topic: str, text: str) -> bool:
        """`text`, empty: it is settled. Whether anything changed, so that it is logged once."""
        with self._lock:
            if self._texts.get(topic, "") == text:
                return False
            if text:
                self._texts[topic] = text
            else:
                self._texts.pop(topic, None)
            return True

    def lines(self) -> list[str]:
        with self._lock:
            return [text for _, text in sorted(self._texts.items())]

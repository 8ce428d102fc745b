"""What `run --http` serves, asked as a scraper asks, for broker tests."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.exposition import Family, parse
from tests.kit import wait_until

TOLD_S = 10.0  # what is wrong is said within this


class Site:
    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, accept: str = "") -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def health(self) -> tuple[int, dict[str, Any]]:
        code, text = self.get("/health")
        return code, json.loads(text)["flows"][0]

    def partitions(self, topic: str) -> dict[int, dict[str, Any]]:
        flow = json.loads(self.get("/status")[1])["flows"][0]
        return {one["partition"]: one for one in flow["partition_status"] if one["topic"] == topic}

    def metrics(self, *, openmetrics: bool = False) -> dict[str, Family]:
        accept = "application/openmetrics-text;version=1.0.0" if openmetrics else ""
        code, text = self.get("/metrics", accept)
        assert code == 200
        return parse(text, openmetrics=openmetrics)

    def wait_sound(self, timeout_seconds: float = 60) -> None:
        self._wait(lambda code, _: code == 200, "health", timeout_seconds)

    def wait_told(self, *words: str, since: float | None = None) -> str:
        """Until it is 503 and a reason holds all these words; the reason. Fails when that takes too long."""
        began = since or time.monotonic()
        told: list[str] = []

        def holds(code: int, flow: dict[str, Any]) -> bool:
            told[:] = [reason for reason in flow["reasons"] if all(word in reason for word in words)]
            return code == 503 and bool(told)

        self._wait(holds, f"a reason with {words}", began + TOLD_S - time.monotonic())
        print(f"after {time.monotonic() - began:.1f} s: {told[0]}")  # pytest -s shows the words
        return told[0]

    def _wait(self, holds: Callable[[int, dict[str, Any]], bool], what: str, timeout_seconds: float) -> None:
        try:
            wait_until(lambda: holds(*self.health()), what=what, timeout_seconds=timeout_seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.health()}") from None

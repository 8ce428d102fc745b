"""Connect's REST API, asked by the standard library, for broker tests."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.kit import wait_until


class Answer(NamedTuple):
    code: int
    body: Any
    headers: Mapping[str, str]


class Api:
    def __init__(self, url: str, **headers: str) -> None:
        self.url, self._headers = url, headers

    def __call__(self, method: str, path: str, body: object = None) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, **({"Content-Type": "application/json"} if data is not None else {})}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(answer.status, _json(answer.read()), dict(answer.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _json(error.read()), dict(error.headers))

    def up(self) -> bool:
        try:
            return self("GET", "/health").code == 200
        except OSError:
            return False

    def state(self, name: str) -> str:
        answer = self("GET", f"/connectors/{name}/status")
        return str(answer.body["connector"]["state"]) if answer.code == 200 else ""

    def wait_state(self, name: str, state: str, timeout_seconds: float = 60, *, least_tasks: int = 0) -> dict[str, Any]:
        """The connector in this state, and each of its tasks."""

        def there() -> bool:
            answer = self("GET", f"/connectors/{name}/status")
            if answer.code != 200 or answer.body["connector"]["state"] != state:
                return False
            tasks = answer.body["tasks"]
            return len(tasks) >= least_tasks and all(one["state"] == state for one in tasks)

        try:
            wait_until(there, timeout_seconds=timeout_seconds)
        except TimeoutError:
            raise AssertionError(f"{name} is not {state}: {self('GET', f'/connectors/{name}/status')}") from None
        return dict(self("GET", f"/connectors/{name}/status").body)


def _json(data: bytes) -> Any:
    return json.loads(data) if data else None

"""One client of a Connect group's REST API: a request, a bounded answer, an error that names address and fix.

Any worker of a group answers for all, so the addresses are tried in turn when one cannot be reached. An answer that
means "later" (while the group rebalances) is asked for again until the deadline. What the answers mean is not
decided here.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from heliograph.errors import LoginFailed, NoSuchConnector, TimedOut, Unreachable, Untrusted, WorkerError
from heliograph.workers.access import Access, Address

CONNECT_S = 5.0
ANSWER_S = 95.0  # Connect itself gives up after 90 s, and says at which stage
LATER_S = 30.0  # a rebalance takes seconds
PAUSE_S = 0.3
LIMIT_BYTES = 64 << 20  # a thousand connectors with their configs have some megabytes
SHOWN = 500  # characters of an answer that is no JSON, in an error

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any


class Worker:
    def __init__(
        self, access: Access, *, answer_s: float = ANSWER_S, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._access, self._answer_s, self._sleep = access, answer_s, sleep
        self._current = 0  # of the addresses: the one that answered last

    @property
    def address(self) -> Address:
        return self._access.addresses[self._current]

    # What can be asked

    def names(self) -> list[str]:
        return self._read("GET", "/connectors", lambda body: [str(name) for name in _list(body)])

    def all(self) -> dict[str, dict[str, Any]]:
        """By name: `info` and `status`."""
        path = "/connectors?expand=status&expand=info"
        return self._read("GET", path, lambda body: {name: _object(one) for name, one in _object(body).items()})

    def info(self, name: str) -> dict[str, Any]:
        """`name`, `config`, `tasks`, `type`."""
        return self._read(
            "GET", _path(name), lambda body: {**_object(body), "config": _object(body["config"]), "name": body["name"]}
        )

    def config(self, name: str) -> dict[str, str] | None:
        """None where there is no such connector."""
        try:
            return self._read("GET", _path(name, "config"), _object)
        except NoSuchConnector:
            return None

    def status(self, name: str) -> dict[str, Any] | None:
        """None where it has none: no such connector, or one that nobody has begun with yet."""
        try:
            return self._read("GET", _path(name, "status"), _object)
        except NoSuchConnector:
            return None

    def tasks(self, name: str) -> list[Any]:
        return self._read("GET", _path(name, "tasks"), _list)

    def topics(self, name: str) -> list[str]:
        return self._read("GET", _path(name, "topics"), lambda body: sorted(map(str, body[name]["topics"])))

    def offsets(self, name: str) -> list[dict[str, Any]]:
        path = _path(name, "offsets")
        return self._read("GET", path, lambda body: [_object(one) for one in _list(body["offsets"])])

    def validate(self, plugin: str, config: Mapping[str, Any]) -> list[str]:
        """Everything that is wrong with it, in the worker's words."""
        path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
        return self._read(
            "PUT",
            path,
            lambda body: [
                str(text) for one in _list(body["configs"]) for text in (one["value"] or {}).get("errors", [])
            ],
            config,
        )

    # What can be changed

    def put_config(self, name: str, config: Mapping[str, Any]) -> bool:
        """Whether it was created by this."""
        return self.ask("PUT", _path(name, "config"), config).status == http.client.CREATED

    def delete(self, name: str) -> None:
        self.ask("DELETE", _path(name))

    def pause(self, name: str) -> None:
        self.ask("PUT", _path(name, "pause"))

    def resume(self, name: str) -> None:
        self.ask("PUT", _path(name, "resume"))

    def stop(self, name: str) -> None:
        self.ask("PUT", _path(name, "stop"))

    def restart(self, name: str, *, tasks: bool = False, only_failed: bool = False) -> None:
        query = f"?includeTasks={str(tasks).lower()}&onlyFailed={str(only_failed).lower()}"
        self.ask("POST", _path(name, "restart") + query)

    def restart_task(self, name: str, task: int) -> None:
        self.ask("POST", _path(name, "tasks", str(task), "restart"))

    def alter_offsets(self, name: str, offsets: Any) -> str:
        return self._read("PATCH", _path(name, "offsets"), lambda body: str(body["message"]), offsets)

    def reset_offsets(self, name: str) -> str:
        return self._read("DELETE", _path(name, "offsets"), lambda body: str(body["message"]))

    # How

    def _read(self, method: str, path: str, take: Callable[[Any], T], body: Any = None) -> T:
        """What is wanted of an answer; who answers otherwise is no Connect worker."""
        answer = self.ask(method, path, body)
        try:
            return take(answer.body)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise WorkerError(
                f"{method} {self.address}{path} is answered with what no Connect worker says: {str(answer.body)[:80]}",
                fix="Is this a Connect worker's address?",
            ) from None

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """The answer to a call that went well; raises what went wrong."""
        deadline = time.monotonic() + LATER_S
        while True:
            answer = self._sent(method, path, body)
            if answer.status < http.client.BAD_REQUEST:
                return answer
            if not _later(answer) or time.monotonic() > deadline:
                raise self._refusal(f"{method} {self.address}{path}", answer)
            self._sleep(PAUSE_S)

    def _sent(self, method: str, path: str, body: Any) -> Answer:
        count, first = len(self._access.addresses), self._current
        trouble: Unreachable | None = None
        for step in range(count):
            self._current = (first + step) % count
            try:
                return self._exchange(self.address, method, path, body)
            except Unreachable as error:  # nothing was sent: another may be asked
                trouble = error
        assert trouble is not None
        if count > 1:
            every = ", ".join(map(str, self._access.addresses))
            raise Unreachable(f"no Connect worker answers at any of {every}", fix=trouble.fix) from trouble
        raise trouble

    def _exchange(self, address: Address, method: str, path: str, body: Any) -> Answer:
        connection = self._connected(address)
        url = f"{address}{path}"
        try:
            headers = {"Accept": "application/json", "User-Agent": "heliograph"}
            if self._access.authorization:
                headers["Authorization"] = self._access.authorization
            content = None if body is None else json.dumps(body).encode()
            if content is not None:
                headers["Content-Type"] = "application/json"
            elif method in ("PUT", "POST"):
                headers["Content-Length"] = "0"
            connection.request(method, f"{address.path}{path}", content, headers)
            response = connection.getresponse()
            return Answer(response.status, _read(response, url))
        except TimeoutError as error:
            raise TimedOut(
                f"no answer to {method} {url} in {self._answer_s:g} s", fix="The worker's log says what it waits for"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise WorkerError(
                f"{method} {url}: the connection ended before the answer: {error or type(error).__name__}",
                fix="See whether the worker still runs; what was asked may have been done: look before asking again",
            ) from error
        finally:
            connection.close()

    def _connected(self, address: Address) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=CONNECT_S)
        if address.scheme == "https":
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=CONNECT_S, context=self._access.context
            )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise Untrusted(
                f"the certificate of {address} is not trusted: {error.verify_message}",
                fix="Say --cacert FILE with the authority that signed it, and use the name that it was made for",
            ) from error
        except ssl.SSLError as error:
            raise Untrusted(f"no TLS with {address}: {error}", fix="Is it served as http://?") from error
        except OSError as error:
            raise Unreachable(
                f"no Connect worker answers at {address}: {_why(error)}",
                fix="Start it, or say --url http://HOST:PORT (or HELIOGRAPH_CONNECT_URL)",
            ) from error
        connection.sock.settimeout(self._answer_s)
        return connection

    def _refusal(self, asked: str, answer: Answer) -> WorkerError | LoginFailed:
        said = _message(answer)
        if answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN) and not _switched_off(asked):
            fix = "Say --credentials FILE, or set HELIOGRAPH_CONNECT_USER and _PASSWORD, or HELIOGRAPH_CONNECT_TOKEN"
            if self._access.authorization:
                fix = "These credentials are not known there, or may not do this: see its file of users and roles"
            return LoginFailed(f"{asked} is refused with {answer.status}: {said}", fix=fix)
        if answer.status == http.client.NOT_FOUND and "/connectors/" in asked:
            return NoSuchConnector(f"{asked}: {said}", answer.status, said, fix="`heliograph connectors get` lists all")
        if _later(answer):
            return WorkerError(
                f"{asked}: {said}",
                answer.status,
                said,
                fix="Its group does not settle: see the workers' logs, then ask again",
            )
        return WorkerError(f"{asked} is answered with {answer.status}: {said}", answer.status, said)


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise TypeError
    return body


def _list(body: Any) -> list[Any]:
    if not isinstance(body, list):
        raise TypeError
    return body


def _path(name: str, *more: str) -> str:
    return "/" + "/".join(["connectors", quote(name, safe=""), *more])


def _read(response: http.client.HTTPResponse, url: str) -> Any:
    content = response.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise WorkerError(f"{url} answers with more than {LIMIT_BYTES >> 20} MiB", fix="Is this a Connect worker?")
    if not content:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        if response.status < http.client.BAD_REQUEST:
            raise WorkerError(
                f"{url} answers with what is no JSON: {content[:80]!r}", fix="Is this a Connect worker's address?"
            ) from None
        return content.decode(errors="replace")


def _later(answer: Answer) -> bool:
    """Whether a group that has not settled says so. Connect answers questions for a connector's configuration with a
    500 then and all others with a 409, which also stands for a name that is taken."""
    if answer.status == http.client.CONFLICT:
        return "already exists" not in _message(answer)
    return answer.status == http.client.INTERNAL_SERVER_ERROR and "rebalance" in _message(answer)


def _switched_off(asked: str) -> bool:
    """Connect forbids to ask for topics where it does not keep track of them: that is nobody's login."""
    return asked.endswith(("/topics", "/topics/reset"))


def _message(answer: Answer) -> str:
    if isinstance(answer.body, dict) and answer.body.get("message"):
        return str(answer.body["message"]).strip()
    if isinstance(answer.body, str):
        return answer.body.strip()[:SHOWN]
    return http.client.responses.get(answer.status, "no words")


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection in {CONNECT_S:g} s"
    if isinstance(error, socket.gaierror):
        return f"the name is not known ({error.strerror})"
    return error.strerror or str(error)

"""Connect's API decided from a board, over a real socket: codes, bodies and errors as its clients know them.

The topics are a list in memory, folded as the real ones are; nothing runs. `tests/broker/test_connect.py` has a node.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliograph.batch import Record
from heliograph.config import worker as worker_file
from heliograph.connect import records
from heliograph.connect.asking import Deed, ForgetTopics, Level, Offsets, SetLevel, Sight, Write
from heliograph.connect.board import Folding
from heliograph.connect.endpoints import ENDPOINTS
from heliograph.connect.openapi import SCHEMAS, description
from heliograph.connect.records import Status
from heliograph.connect.service import Api as connect_api
from heliograph.connect.service import Service
from heliograph.connect.shapes import offsets_json
from heliograph.http.guard import Guard
from heliograph.http.hosts import Hosts
from heliograph.http.message import Request
from heliograph.http.notices import Notices
from heliograph.http.passwords import digest
from heliograph.http.server import Server
from heliograph.http.users import User
from tests.unit.test_config_connectors import FIELD, PROVIDER, config

MIRROR = "org.apache.kafka.connect.mirror.Mirror"
SOURCE = {**config("Source"), "topics": "test", "source.cluster.sasl.jaas.config": "hunter2"}


class Memory:
    """A backend whose topics are lists."""

    def __init__(self) -> None:
        self.file = worker_file.parse(FIELD)
        self.folding = Folding()
        self.offset = 0
        self.deeds: list[Deed] = []
        self.sights: dict[str, Any] = {}
        self.ended: Callable[[Offsets], object] = lambda deed: None  # what happens while a connector ends
        self.written: Callable[[], object] = lambda: None  # and while its offsets are written

    def sight(self, *, fresh: bool = False) -> Sight:
        about = {"version": "1", "cluster_id": "abc", "worker_id": "h:8083", "levels": {"root": Level("INFO")}}
        return Sight(self.folding.board(), self.file.worker, **{**about, **self.sights})  # type: ignore[arg-type]

    def do(self, deed: Deed, seen: int = 0) -> Any:
        self.deeds.append(deed)
        match deed:
            case Write(pairs):
                for key, value in pairs:
                    self.folding.config(Record(self.offset, 0, key, value, ()))
                    self.offset += 1
            case ForgetTopics(name, topics):
                for topic in topics:
                    self.tell(records.topic_key(name, topic), None)
            case Offsets(_, "alter" | "reset"):
                self.written()
            case Offsets(_, "read"):
                return offsets_json({"k": ({"cluster": "a", "partition": 0, "topic": "t"}, {"offset": 5})})
        return None

    def await_end(self, deed: Offsets) -> None:
        self.ended(deed)

    def tell(self, key: bytes, value: bytes | None) -> None:
        self.folding.status(Record(0, 0, key, value, ()))

    def runs(self, name: str, state: str = "RUNNING", tasks: int = 2, trace: str | None = None) -> None:
        """As a node would write it."""
        plain = {k: v for k, v in self.folding.board().connectors[name].config.items() if v is not None}
        for key, value in records.tasks(name, [{**plain, "task.index": str(n)} for n in range(tasks)]):
            self.folding.config(Record(self.offset, 0, key, value, ()))
        status = Status(state, "h:8083", trace)
        self.tell(records.status_key(name), records.status_value(status))
        for n in range(tasks):
            self.tell(records.status_key(name, n), records.status_value(status))


class Answer(NamedTuple):
    code: int
    body: Any
    headers: dict[str, str]


class Api:
    def __init__(self, server: Server, memory: Memory) -> None:
        self._server, self.memory = server, memory

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=10)
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            text = response.read()
            return Answer(response.status, json.loads(text) if text else None, dict(response.getheaders()))
        finally:
            connection.close()

    def created(self, name: str = "one", **more: str) -> Answer:
        answer = self("PUT", f"/connectors/{name}/config", {**SOURCE, "name": name, **more})
        assert answer.code == 201, answer
        return answer


@pytest.fixture(scope="module")
def _server() -> Iterator[tuple[Server, Memory]]:
    memory = Memory()
    server = Server("127.0.0.1", 0, connect_api(Service(memory).routes()), hosts=Hosts(more=["connect"]))
    server.start()
    yield server, memory
    server.close()


@pytest.fixture
def api(_server: tuple[Server, Memory]) -> Api:
    server, memory = _server
    memory.__init__()  # type: ignore[misc]
    return Api(server, memory)


# -------------------- the worker


def test_who_is_there(api: Api) -> None:
    assert api("GET", "/").body == {"version": "4.3.1", "commit": "heliograph-1", "kafka_cluster_id": "abc"}
    assert api("GET", "/health")[:2] == (
        200,
        {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."},
    )
    api.memory.sights = {"ready": False}
    assert api("GET", "/health").body["status"] == "starting"
    assert api("GET", "/health").code == 503
    api.memory.sights = {"trouble": "no broker"}
    assert api("GET", "/health")[:2] == (500, {"status": "unhealthy", "message": "no broker"})


def test_health_tells_addresses_only_to_who_is_known() -> None:
    memory = Memory()
    routes = connect_api(Service(memory).routes(), Guard({"bob": User("bob", "reader", digest("b"))}))

    def health(**headers: str) -> tuple[int, str]:
        answer = routes.answer(Request("GET", "/health", headers=headers))
        return int(answer.status), json.loads(answer.body)["message"]

    for ready, code in ((True, 500), (False, 503)):
        memory.sights = {"trouble": "no broker at secret-host:9092", "ready": ready}
        assert health()[0] == health(authorization="Bearer bob.b")[0] == code
        assert "secret-host" not in health()[1]
        assert "secret-host" in health(authorization="Bearer bob.b")[1]


def test_health_tells_notices_only_to_who_is_known() -> None:
    notices = Notices()
    guard = Guard({"bob": User("bob", "reader", digest("b"))})
    routes = connect_api(Service(Memory(), notices=notices).routes(), guard)

    def message(**headers: str) -> str:
        answer = routes.answer(Request("GET", "/health", headers=headers))
        assert answer.status == 200, "a notice is no fault"
        return str(json.loads(answer.body)["message"])

    well = "Worker has completed startup and is ready to handle requests."
    assert message() == message(authorization="Bearer bob.b") == well
    notices.set("certificate", "the certificate ends within 7 days")
    assert message() == well
    assert message(authorization="Bearer bob.b") == f"{well} Notice: the certificate ends within 7 days"


def test_what_is_not_there(api: Api) -> None:
    for method, path, code in (("GET", "/nowhere", 404), ("POST", "/", 405), ("DELETE", "/connectors", 405)):
        answer = api(method, path)
        assert (answer.code, answer.body["error_code"]) == (code, code)
    for path in ("", "/config", "/tasks", "/tasks-config", "/offsets", "/status", "/tasks/0/status"):
        answer = api("GET", f"/connectors/none{path}")
        assert (answer.code, answer.body["error_code"]) == (404, 404), path
    for method, path in (("PUT", "pause"), ("PUT", "resume"), ("PUT", "stop"), ("POST", "restart")):
        assert api(method, f"/connectors/none/{path}").code == 404
    assert api("POST", "/connectors/none/tasks/0/restart").code == 404
    assert api("GET", "/connectors/none/topics")[:2] == (200, {"none": {"topics": []}})
    assert not api.memory.deeds


# -------------------- made, seen, changed


def test_created_by_post_and_seen(api: Api) -> None:
    answer = api("POST", "/connectors", {"name": " one ", "config": {**SOURCE, "tasks.max": 2, "enabled": True}})
    assert answer.code == 201
    assert answer.headers["Location"].endswith("/connectors/one")
    assert answer.headers["Location"].startswith("http://127.0.0.1:")
    assert answer.body["config"]["tasks.max"] == "2"
    assert answer.body["config"]["enabled"] == "true"
    assert {**answer.body, "config": None} == {"name": "one", "config": None, "tasks": [], "type": "source"}
    again = api("POST", "/connectors", {"name": "one", "config": SOURCE})
    assert again[:2] == (409, {"error_code": 409, "message": "Connector one already exists"})
    assert api("GET", "/connectors").body == ["one"]
    assert api("GET", "/connectors/one/status").code == 404
    api.memory.runs("one")
    status = {
        "name": "one",
        "connector": {"state": "RUNNING", "worker_id": "h:8083"},
        "tasks": [{"id": n, "state": "RUNNING", "worker_id": "h:8083"} for n in range(2)],
        "type": "source",
    }
    assert api("GET", "/connectors/one/status").body == status
    assert api("GET", "/connectors/one/tasks/1/status").body == status["tasks"][1]  # type: ignore[index]
    info = api("GET", "/connectors/one").body
    assert info["tasks"] == [{"connector": "one", "task": 0}, {"connector": "one", "task": 1}]
    expanded = api("GET", "/connectors?expand=status&expand=info&expand=wings").body
    assert expanded == {"one": {"status": status, "info": info}}
    assert [one["id"] for one in api("GET", "/connectors/one/tasks").body] == info["tasks"]
    assert list(api("GET", "/connectors/one/tasks-config").body) == ["one-0", "one-1"]


def test_no_secret_is_ever_answered(api: Api) -> None:
    api.created()
    api.memory.runs("one", "FAILED", trace="oh")
    said = [api("GET", path).body for path in ("/connectors/one", "/connectors/one/config", "/connectors/one/tasks")]
    said += [api("GET", "/connectors?expand=info").body, api("GET", "/connectors/one/tasks-config").body]
    said.append(
        api("PUT", "/connector-plugins/MirrorSource/config/validate", {**SOURCE, "ssl.key.password": "hunter2"}).body
    )
    said.append(api("PUT", "/connectors/one/config", {**SOURCE, "topics": "("}).body)
    assert "hunter2" not in json.dumps(said)
    shown = api("GET", "/connectors/one/config").body
    assert api("PUT", "/connectors/one/config", {**shown, "topics": "other"}).code == 200
    stored = api.memory.folding.board().connectors["one"].config
    assert stored["source.cluster.sasl.jaas.config"] == "hunter2"
    assert stored["topics"] == "other"


def test_configured_anew_and_in_part(api: Api) -> None:
    api.created()
    assert api("PUT", "/connectors/one/config", {**SOURCE, "topics": "b"}).code == 200
    answer = api("PATCH", "/connectors/one/config", {"topics": "c", "target.cluster.alias": None, "tasks.max": 3})
    assert answer.code == 200
    config = answer.body["config"]
    assert (config["topics"], config["tasks.max"], "target.cluster.alias" in config) == ("c", "3", False)
    assert api("PATCH", "/connectors/two/config", {}).code == 404
    assert api("PATCH", "/connectors/one/config", {"tasks.max": "many"}).code == 400
    assert api("PUT", "/connectors/one/config", {**SOURCE, "name": "other"}).code == 400


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": ',
        b"",
        b"[]",
        b"7",
        b"nul",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"name": "\\ud800", "config": {}}',
        b'{"name": "x", "config": {"a": NaN}}',
        b'{"name": "x", "config": {"a": ' + b"9" * 5000 + b"}}",
        b'{"name": "x"}',
        b'{"config": {}}',
        b'{"name": 7, "config": {}}',
        b'{"name": "x", "config": []}',
        b'{"name": "x", "config": {"topics": {"a": 1}}}',
        b'{"name": "x", "config": {}, "surprise": 1}',
        json.dumps({"name": "x", "config": SOURCE, "initial_state": "SLEEPING"}).encode(),
        json.dumps({"name": "x", "config": {**SOURCE, "name": "y"}}).encode(),
        json.dumps({"name": "", "config": SOURCE}).encode(),
        json.dumps({"name": "a/b", "config": {**SOURCE, "name": "a/b"}}).encode(),
        json.dumps({"name": "a\u0007b", "config": {**SOURCE, "name": "a\u0007b"}}).encode(),
        json.dumps({"name": "one", "config": {**SOURCE, "connector.class": "com.example.No"}}).encode(),
        json.dumps({"name": "one", "config": {"connector.class": f"{MIRROR}SourceConnector"}}).encode(),
    ],
)
def test_what_cannot_be_made_is_400_in_connects_shape(api: Api, body: bytes) -> None:
    answer = api("POST", "/connectors", body)
    assert answer.code == 400
    assert set(answer.body) == {"error_code", "message"}
    assert answer.body["message"]
    assert not api.memory.deeds


def test_all_errors_are_named_in_one_message(api: Api) -> None:
    wrong = {"tasks.max": "many", "refresh.topics.enabled": "perhaps", "offset-syncs.topic.location": "moon"}
    message = api("PUT", "/connectors/one/config", {**SOURCE, **wrong}).body["message"]
    assert message.startswith("Connector configuration is invalid and contains the following 4 error(s):\n")
    assert "Invalid value many for configuration tasks.max: Not a number of type INT" in message
    assert message.endswith("`/connector-plugins/{connectorType}/config/validate`")


def test_a_class_that_is_not_there_is_said_as_clients_know_it(api: Api) -> None:
    """kcctl goes by the first words, and falls over a key that nobody defines."""
    unknown = {"name": "one", "connector.class": "com.example.No"}
    plugin = "/connector-plugins/com.example.No/config/validate"
    for answer in (api("PUT", "/connectors/one/config", unknown), api("PUT", plugin, unknown)):
        assert answer.code == 400
        assert answer.body["message"].startswith("Failed to find any class that implements Connector")


def test_other_media_and_large_bodies(api: Api) -> None:
    assert api("POST", "/connectors", b"please", Content_Type="text/plain").code == 415
    assert api("PUT", "/connectors/one/config", b" " * (10 << 20)).code == 413
    assert api("PUT", "/connectors/one/config", {**SOURCE, "more": "x" * 500_000}).code == 413
    wide = api("PUT", "/connectors/one/config", SOURCE, Content_Type="application/json; charset=utf-8")
    assert wide.code == 201


def test_a_body_of_no_type_is_not_taken(api: Api) -> None:
    """A page of any site may let a browser send one."""
    connection = http.client.HTTPConnection("127.0.0.1", api._server.port, timeout=10)
    connection.request("POST", "/connectors", json.dumps({"name": "one", "config": SOURCE}))
    assert connection.getresponse().status == 415
    connection.close()
    assert api.memory.deeds == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 204),  # curl, and Connect's clients
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[", "X_Forwarded_Host": ","}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Origin": "http://connect:8083", "Host": "connect:8083"}, 403),
        ({"Origin": "http://connect:8083", "Host": "connect:8083"}, 204),
        ({"Origin": "https://Front.example", "X_Forwarded_Host": "front.example"}, 204),
        ({"Origin": "https://front.example", "Sec_Fetch_Site": "same-origin"}, 204),
        ({"Sec_Fetch_Site": "none"}, 204),
    ],
)
def test_pages_of_other_sites_change_nothing(api: Api, headers: dict[str, str], code: int) -> None:
    api.created("one")
    api.memory.deeds.clear()
    assert api("POST", "/connectors/one/restart", **headers).code == code
    assert bool(api.memory.deeds) == (code == 204)
    assert api("GET", "/connectors", **headers).code == 200


def test_an_odd_name_is_a_name(api: Api) -> None:
    name = "odd näme?#%"
    answer = api("POST", "/connectors", {"name": name, "config": {**SOURCE, "name": name}})
    assert answer.code == 201
    assert answer.headers["Location"].endswith(f"/connectors/{quote(name, safe='')}")
    assert api("GET", f"/connectors/{quote(name, safe='')}").body["name"] == name
    for path in ("/connectors/..%2f..%2fetc", "/connectors//x", "/connectors/a%00b", "/connectors/%2e%2e/x"):
        assert api("GET", path)[:2] == (400, {"error_code": 400, "message": "Ambiguous URI path"})
    assert api("GET", "/connectors", Accept="application/xml").code == 406
    assert api("GET", "/connectors/../connectors").code == 404


def test_a_null_is_no_value(api: Api) -> None:
    answer = api("POST", "/connectors", {"name": "one", "config": {**SOURCE, "offset.lag.max": None}})
    assert answer.code == 201
    assert answer.body["config"]["offset.lag.max"] is None


def test_begun_in_a_state(api: Api) -> None:
    for state, target in (("PAUSED", "PAUSED"), ("STOPPED", "STOPPED"), ("RUNNING", "STARTED")):
        body = {"name": state, "config": {**SOURCE, "name": state}, "initial_state": state}
        assert api("POST", "/connectors", body).code == 201
        assert api.memory.folding.board().connectors[state].target == target


def test_an_unknown_key_is_taken_and_named_in_a_header(api: Api) -> None:
    assert "topcs" in api.created(topcs="x").headers["Warning"]
    assert "Warning" not in api.created("two").headers


# -------------------- steered


def test_paused_resumed_stopped_each_as_often_as_one_likes(api: Api) -> None:
    api.created()
    api.memory.runs("one")
    for word, code, target in (("pause", 202, "PAUSED"), ("stop", 204, "STOPPED"), ("resume", 202, "STARTED")):
        for _ in range(2):
            answer = api("PUT", f"/connectors/one/{word}")
            assert (answer.code, answer.body) == (code, None)
            assert api.memory.folding.board().connectors["one"].target == target
        if word == "stop":
            assert api("GET", "/connectors/one/tasks").body == []


def test_restarted(api: Api) -> None:
    api.created()
    assert api("POST", "/connectors/one/restart?includeTasks=true").code == 404  # nobody has said how it fares
    api.memory.runs("one")
    assert api("POST", "/connectors/one/restart")[:2] == (204, None)
    both = api("POST", "/connectors/one/restart?includeTasks=true")
    assert both.code == 202
    assert {both.body["connector"]["state"], *(one["state"] for one in both.body["tasks"])} == {"RESTARTING"}
    failed = api("POST", "/connectors/one/restart?includeTasks=true&onlyFailed=true").body
    assert failed["connector"]["state"] == "RUNNING"
    api.memory.runs("one", "FAILED", trace="why")
    failed = api("POST", "/connectors/one/restart?onlyFailed=true").body
    assert (failed["connector"]["state"], failed["tasks"][0]["state"]) == ("RESTARTING", "FAILED")
    assert failed["tasks"][0]["trace"] == "why"
    assert api("POST", "/connectors/one/tasks/1/restart").code == 204
    assert api("POST", "/connectors/one/tasks/2/restart").code == 404
    assert api("POST", "/connectors/one/tasks/first/restart").code == 404


def test_deleted(api: Api) -> None:
    api.created()
    assert api("DELETE", "/connectors/one")[:2] == (204, None)
    assert api("DELETE", "/connectors/one").code == 404
    assert api("GET", "/connectors").body == []


# -------------------- offsets, topics, plugins, loggers


def test_offsets_are_changed_only_of_what_is_stopped(api: Api) -> None:
    api.created()
    api.memory.runs("one")
    entry = {"partition": {"cluster": "a", "partition": 0, "topic": "t"}, "offset": {"offset": 5}}
    assert api("GET", "/connectors/one/offsets").body == {"offsets": [entry]}
    assert api("DELETE", "/connectors/one/offsets").code == 400
    assert api("PATCH", "/connectors/one/offsets", {"offsets": [entry]}).code == 400
    api("PUT", "/connectors/one/stop")
    api.memory.runs("one", "STOPPED", 0)
    answer = api("PATCH", "/connectors/one/offsets", {"offsets": [entry, {**entry, "offset": None}]})
    assert answer[:2] == (200, {"message": "The offsets for this connector have been altered successfully"})
    assert api("DELETE", "/connectors/one/offsets").body["message"].endswith("reset successfully")
    assert [deed.what for deed in api.memory.deeds if isinstance(deed, Offsets)] == ["read", "alter", "reset"]


def test_offsets_are_not_changed_of_what_was_resumed_while_it_was_waited_for(api: Api) -> None:
    api("PUT", "/connectors/one/config", SOURCE)
    api.memory.runs("one", "STOPPED", tasks=0)
    entry = {"partition": {"cluster": "a", "topic": "t", "partition": 0}, "offset": {"offset": 5}}
    api("PUT", "/connectors/one/stop")
    api.memory.ended = lambda deed: api("PUT", "/connectors/one/resume")
    assert api("PATCH", "/connectors/one/offsets", {"offsets": [entry]}).code == 400
    assert not [deed for deed in api.memory.deeds if isinstance(deed, Offsets)]
    api("PUT", "/connectors/one/stop")
    api.memory.ended = lambda deed: api("DELETE", "/connectors/one")
    assert api("DELETE", "/connectors/one/offsets").code == 404
    assert not [deed for deed in api.memory.deeds if isinstance(deed, Offsets)]


def test_a_resume_by_another_node_while_offsets_are_written_is_said(api: Api) -> None:
    api("PUT", "/connectors/one/config", SOURCE)
    api.memory.runs("one", "STOPPED", tasks=0)
    api("PUT", "/connectors/one/stop")
    api.memory.written = lambda: api.memory.do(Write((records.targeted("one", "STARTED"),)))
    answer = api("DELETE", "/connectors/one/offsets")
    assert answer.code == 409
    assert "resumed" in answer.body["message"]


@pytest.mark.parametrize(
    "entry",
    [
        {"partition": {"cluster": "a", "partition": -1, "topic": "t"}, "offset": {"offset": 1}},
        {"partition": {"cluster": "a", "partition": "0", "topic": "t"}, "offset": {"offset": 1}},
        {"partition": {"partition": 0, "topic": "t"}, "offset": {"offset": 1}},
        {"partition": {"cluster": "a", "partition": 0, "topic": "t"}, "offset": {"offset": -1}},
        {"partition": {"cluster": "a", "partition": 0, "topic": "t"}, "offset": {"offset": True}},
        {"partition": {"cluster": "a", "partition": 0, "topic": "t"}, "offset": {}},
        {"partition": {"cluster": "a", "partition": 0, "topic": "t"}, "offset": 5},
        {"offset": {"offset": 1}},
        7,
    ],
)
def test_offsets_that_cannot_be(api: Api, entry: object) -> None:
    api.created()
    api("PUT", "/connectors/one/stop")
    assert api("PATCH", "/connectors/one/offsets", {"offsets": [entry]}).code == 400
    assert api("PATCH", "/connectors/one/offsets", {"offsets": []}).code == 400
    assert api("PATCH", "/connectors/one/offsets", {}).code == 400


def test_topics_are_forgotten_when_that_is_allowed(api: Api) -> None:
    api.created()
    api.memory.tell(records.topic_key("one", "t"), records.topic_value("one", "t", 0, 1))
    assert api("GET", "/connectors/one/topics").body == {"one": {"topics": ["t"]}}
    assert api("PUT", "/connectors/one/topics/reset").code == 202
    assert api("GET", "/connectors/one/topics").body == {"one": {"topics": []}}
    api.memory.sights = {"topic_reset": False}
    assert api("PUT", "/connectors/one/topics/reset").code == 403
    api.memory.sights = {"topic_tracking": False}
    assert api("GET", "/connectors/one/topics").code == 403


def test_plugins_and_their_keys(api: Api) -> None:
    listed = api("GET", "/connector-plugins").body
    assert [one["class"] for one in listed] == [
        f"{MIRROR}{kind}Connector" for kind in ("Checkpoint", "Heartbeat", "Source")
    ]
    keys = api("GET", "/connector-plugins/MirrorSourceConnector/config").body
    by_name = {one["name"]: one for one in keys}
    assert by_name["tasks.max"].items() >= {"type": "INT", "default_value": "1", "required": False}.items()
    assert by_name["source.cluster.alias"]["required"] is True
    assert api("GET", "/connector-plugins/Nonsense/config")[:2] == (
        404,
        {"error_code": 404, "message": "Unknown plugin Nonsense."},
    )


def test_validated(api: Api) -> None:
    path = f"/connector-plugins/{MIRROR}SourceConnector/config/validate"
    sound = api("PUT", path, SOURCE)
    assert (sound.code, sound.body["error_count"], sound.body["name"]) == (200, 0, f"{MIRROR}SourceConnector")
    wrong = api("PUT", path, {**SOURCE, "tasks.max": "many", "topics": "("})
    errors = {one["value"]["name"]: one["value"]["errors"] for one in wrong.body["configs"] if one["value"]["errors"]}
    assert set(errors) == {"tasks.max", "topics"}
    assert wrong.body["error_count"] == 3
    assert api("PUT", path, {"name": "x"}).code == 400
    assert api("PUT", "/connector-plugins/MirrorHeartbeat/config/validate", SOURCE).code == 400


def test_who_may_only_read_does_not_learn_what_providers_hold() -> None:
    file = worker_file.parse(FIELD + PROVIDER, environment={"P": "hunter2"})
    users = {"alice": User("alice", "admin", digest("a")), "bob": User("bob", "reader", digest("b"))}
    memory = Memory()
    memory.file = file
    routes = connect_api(Service(memory).routes(), Guard(users))

    def validated(token: str) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        body = json.dumps({**config("Source"), "topic.filter.class": "${env:P}"}).encode()
        path = "/connector-plugins/MirrorSource/config/validate"
        found: dict[str, Any] = json.loads(routes.answer(Request("PUT", path, headers=headers, body=body)).body)
        assert "hunter2" not in json.dumps(found)
        return found

    assert validated("bob.b")["error_count"] == 0
    assert validated("alice.a")["error_count"] == 1


def test_mm2s_own_rules(api: Api) -> None:
    syncs = {"emit.offset-syncs.enabled": "false"}
    assert api("PUT", "/connectors/a/config", {**SOURCE, "name": "a", **syncs}).code == 201
    also = {**syncs, "offset-syncs.topic.location": "target"}
    assert api("PUT", "/connectors/b/config", {**SOURCE, "name": "b", **also}).code == 400
    cpc = {**config("Checkpoint"), "name": "c"}
    assert api("PUT", "/connectors/c/config", {**cpc, **syncs}).code == 400
    assert api("PUT", "/connectors/c/config", {**cpc, "emit.checkpoints.enabled": "false"}).code == 400
    assert api("PUT", "/connectors/c/config", {**cpc, **syncs, "enabled": "false"}).code == 201


def test_loggers(api: Api) -> None:
    assert api("GET", "/admin/loggers").body == {"root": {"level": "INFO", "last_modified": None}}
    assert api("GET", "/admin/loggers/nobody").code == 404
    assert api("PUT", "/admin/loggers/root", {"level": "debug"})[:2] == (200, ["root"])
    assert api.memory.deeds == [SetLevel("root", "DEBUG")]
    assert api("PUT", "/admin/loggers/root?scope=cluster", {"level": "WARN"}).code == 204
    assert api.memory.folding.board().levels == {"root": "WARN"}
    assert api("PUT", "/admin/loggers/root", {"level": "LOUD"}).code == 404
    assert api("PUT", "/admin/loggers/root", {}).code == 400


def test_a_files_flows_are_not_changed_here(api: Api) -> None:
    api.created()
    api.memory.sights = {"writable": False}
    assert api("PUT", "/connectors/one/config", SOURCE).code == 409
    assert api("DELETE", "/connectors/one").code == 409
    assert api("PUT", "/connectors/one/pause").code == 202


# -------------------- described, and whatever is sent


def test_the_description_has_every_route_and_every_schema_it_names(api: Api) -> None:
    served = api("GET", "/openapi.json").body
    assert served == json.loads(json.dumps(description(served["info"]["version"], secured=False)))
    for one in ENDPOINTS:
        operation = served["paths"][one.path][one.method.lower()]
        named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert named == {part.strip("{}") for part in one.segments if part.startswith("{")}
    text = json.dumps(served)
    assert all(f'"#/components/schemas/{name}"' in text for name in SCHEMAS)
    ids = [one["operationId"] for methods in served["paths"].values() for one in methods.values()]
    assert len(ids) == len(set(ids)) == len(ENDPOINTS)
    secured = description("1", secured=True)["paths"]
    asked = {(p, m) for p, methods in secured.items() for m, one in methods.items() if "security" not in one}
    assert asked == {("/health", "get")}


_ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(ENDPOINTS), st.text(min_size=1, max_size=8), _ANY, st.booleans())
def test_nothing_that_is_sent_is_a_500(api: Api, one: Any, name: str, body: object, known: bool) -> None:
    api.memory.__init__()  # type: ignore[misc]
    if known:
        api.created()
        name = "one"
    path = one.path.replace("{connector}", quote(name, safe="")).replace("{plugin}", "MirrorSource")
    path = path.replace("{task}", quote(name, safe="")).replace("{logger}", quote(name, safe=""))
    answer = api(one.method, path, body if one.body else None)
    assert answer.code < 500, (answer, one.method, path, body)
    if answer.code >= 400:
        assert answer.body["error_code"] == answer.code
    elif answer.code in one.answers and one.answers[answer.code] is None:
        assert answer.body is None
    else:
        assert answer.code in one.answers


def test_a_hundred_are_listed_with_everything_in_a_moment(api: Api) -> None:
    for n in range(100):
        name = f"many-{n:03}"
        made = records.configured(name, {**SOURCE, "name": name, "topics": f"topic-{n % 20}"})
        api.memory.folding.config(Record(api.memory.offset + n, 0, *made, ()))
    for n in range(100):
        api.memory.runs(f"many-{n:03}")
    board = api.memory.folding.board()  # a node folds when there is news, not when it is asked
    api.memory.folding.board = lambda: board  # type: ignore[method-assign]
    took = []
    for _ in range(10):
        began = time.perf_counter()
        answer = api("GET", "/connectors?expand=status&expand=info")
        took.append(time.perf_counter() - began)
        assert (answer.code, len(answer.body)) == (200, 100)
        assert all(len(one["status"]["tasks"]) == 2 and one["info"]["config"] for one in answer.body.values())
    assert min(took) < 0.2


def test_what_is_taken_of_a_configuration_is_described(api: Api) -> None:
    """Numbers and truth values were taken, and described as if they were not."""
    api.created("one")
    taken = SCHEMAS["GivenConfig"]["additionalProperties"]["type"]
    for kind, value in {"string": "x", "null": None, "number": 1.5, "boolean": False}.items():
        assert kind in taken
        assert api("PATCH", "/connectors/one/config", {"a.key": value}).code == 200
    for value in ([], {}):
        assert api("PATCH", "/connectors/one/config", {"a.key": value}).code == 400
    bodies = {one.body for one in ENDPOINTS if one.body is not None}
    assert "Config" not in bodies, "that is what answers hold: texts only"

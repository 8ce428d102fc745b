"""The flows of a file seen as connectors: read, paused, restarted, never configured."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.run import serving
from heliograph.connect.flows import routes
from heliograph.flow.helm import Steered
from heliograph.health.status import FlowReport, FlowStatus, Generation, Order, Scope, Word
from heliograph.http.address import Address
from heliograph.http.message import Request, Response
from heliograph.http.pages import Pages
from heliograph.http.passwords import digest
from heliograph.http.routing import Router
from heliograph.types import Cluster, Flow
from tests.kit import wait_until
from tests.unit.test_metrics import a_partition


class Flows:
    def __init__(self) -> None:
        self.said: list[Any] = []
        self.state, self.orders = "running", ()

    def report(self) -> tuple[FlowReport, ...]:
        status = FlowStatus("us->eu", self.state, "why, in 3 s", orders=self.orders)
        parts = (a_partition(topic="t", partition=0, task=0), a_partition(topic="t", partition=1, task=1))
        return (FlowReport("us", "eu", status, because="why", partitions=parts),)

    def steer(self, flow: str, scope: Scope, word: Word, by: str) -> Steered:
        self.said.append((flow, scope, word))
        return Steered((), (), 2)

    def restart(self, name: str) -> None:
        self.said.append(("restart", name))

    def flow(self, name: str) -> Flow:
        secret = {"bootstrap.servers": "a:1", "sasl.jaas.config": "hunter2"}
        return Flow(Cluster("us", secret), Cluster("eu", {"bootstrap.servers": "b:1"}), topics=("t",))


@pytest.fixture
def flows() -> Flows:
    return Flows()


@pytest.fixture
def router(flows: Flows) -> Router:
    return Router(routes(flows, Pages(flows), "127.0.0.1:8083", secured=False))


def ask(router: Router, method: str, path: str, body: object = None, accept: str = "") -> tuple[int, Any]:
    headers = {"accept": accept, "content-type": "application/json"}
    data = b"" if body is None else json.dumps(body).encode()
    response: Response = router.answer(Request(method, path, {}, headers, data, raw_path=path))
    text = response.body.decode()
    return int(response.status), json.loads(text) if response.content_type.startswith("application/json") else text


def test_a_flow_is_a_connector_that_fares_as_the_flow_does(router: Router, flows: Flows) -> None:
    assert ask(router, "GET", "/connectors") == (200, ["us->eu"])
    code, status = ask(router, "GET", "/connectors/us->eu/status")
    assert (code, status["connector"]["state"], [one["state"] for one in status["tasks"]]) == (
        200,
        "RUNNING",
        ["RUNNING"] * 2,
    )
    flows.state = "failed"
    assert ask(router, "GET", "/connectors/us->eu/status")[1]["connector"]["trace"] == "why"
    config = ask(router, "GET", "/connectors/us->eu/config")[1]
    assert (config["topics"], config["source.cluster.bootstrap.servers"]) == ("t", "a:1")
    assert "hunter2" not in json.dumps([config, ask(router, "GET", "/connectors/us->eu/tasks")])


def test_it_is_steered_and_not_configured(router: Router, flows: Flows) -> None:
    assert ask(router, "PUT", "/connectors/us->eu/pause")[0] == 202
    flows.orders = (Order(None, None, "paused", "me", 0),)  # type: ignore[assignment]
    assert ask(router, "PUT", "/connectors/us->eu/pause")[0] == 202
    assert ask(router, "PUT", "/connectors/us->eu/resume")[0] == 202
    assert ask(router, "PUT", "/connectors/us->eu/stop")[0] == 204
    assert [word for _, _, word in flows.said] == ["paused", "running", "stopped"]
    assert ask(router, "POST", "/connectors/us->eu/restart")[0] == 204
    wait_until(lambda: flows.said[-1] == ("restart", "us->eu"))
    for method, path in (("PUT", "config"), ("PATCH", "config"), ("DELETE", "offsets")):
        code, refusal = ask(router, method, f"/connectors/us->eu/{path}", {})
        assert (code, "apply" in refusal["message"]) == (409, True)
    assert ask(router, "POST", "/connectors", {})[0] == 409
    assert ask(router, "DELETE", "/connectors/us->eu")[0] == 409


def test_pages_stay_where_they_were(router: Router) -> None:
    assert "/metrics" in ask(router, "GET", "/")[1]
    assert set(ask(router, "GET", "/", accept="application/json")[1]) == {"version", "commit", "kafka_cluster_id"}
    assert ask(router, "GET", "/health")[1]["healthy"] is True
    assert "heliograph_" in ask(router, "GET", "/metrics")[1]
    roles = {route.path: route.role for route in router.routes}
    assert (roles["/health"], roles["/metrics"]) == ("anybody", "reader")


@pytest.mark.parametrize(
    ("host", "users", "code", "words"),
    [
        ("127.0.0.1", False, 202, ""),
        ("0.0.0.0", False, 403, "name --users"),
        ("0.0.0.0", True, 202, "in clear"),
        ("127.0.0.1", True, 202, ""),
    ],
)
def test_beyond_loopback_flows_are_steered_by_users_only(
    host: str, users: bool, code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "users"
    file.write_text(f"alice admin {digest('a')}\n")
    flows: Any = Flows()
    flows.generation = Generation()
    with serving(flows, Address(host, 0), file if users else None):
        said = capsys.readouterr().err
        port = re.search(r":(\d+)/metrics", said)
        assert port is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=10)
        headers = {"Authorization": "Bearer alice.a"} if users else {}
        connection.request("PUT", "/connectors/us-%3Eeu/pause", headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == code
        connection.request("GET", "/health", headers={"Connection": "close"})
        health = json.loads(connection.getresponse().read())["flows"][0]
        connection.close()
    assert ("warning" in said) == bool(words)
    assert words in said
    assert bool(flows.said) == (code == 202)
    assert ("reasons" in health) == (not users)  # why is for those who are known

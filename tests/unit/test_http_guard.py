"""Who may: secrets as hashes, roles, tokens, too many requests; and TLS on a real socket."""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from structlog.typing import EventDict

from heliograph.cli.users import command as users_command
from heliograph.embedded.certificates import Authority
from heliograph.errors import ConfigError
from heliograph.http import guard as guards
from heliograph.http import passwords
from heliograph.http.guard import Guard
from heliograph.http.message import Refused, Request, Response
from heliograph.http.passwords import digest, fits
from heliograph.http.routing import Route, Router
from heliograph.http.server import Server
from heliograph.http.users import User, load_users
from heliograph.wire.stores import StoreProblem, server_tls_of

ALICE, BOB = User("alice", "admin", digest("pass:word")), User("bob", "reader", digest("secret"))


@pytest.fixture
def guard() -> Guard:
    return Guard({"alice": ALICE, "bob": BOB})


def basic(name: str, secret: str) -> Request:
    text = base64.b64encode(f"{name}:{secret}".encode()).decode()
    return Request("GET", "/", headers={"authorization": f"Basic {text}"})


def bearer(text: str) -> Request:
    return Request("GET", "/", headers={"authorization": f"Bearer {text}"})


def refused(guard: Guard, request: Request, role: str) -> HTTPStatus:
    with pytest.raises(Refused) as problem:
        guard.check(request, role)
    return problem.value.status


def test_a_secret_is_kept_as_a_hash_that_is_another_each_time() -> None:
    assert digest("a") != digest("a")
    assert fits("a", digest("a"))
    assert not fits("b", digest("a"))
    assert not fits("a", "nonsense")


def test_whoever_is_known_is_let_in_by_either_way(guard: Guard) -> None:
    guard.check(basic("alice", "pass:word"), "admin")
    guard.check(bearer("alice.pass:word"), "admin")
    guard.check(basic("bob", "secret"), "reader")
    assert refused(guard, basic("bob", "secret"), "admin") is HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic !!", "Basic YWxpY2U=", "Bearer alice", "Bearer .x", "Digest alice", "Basic OnBhc3M="],
)
def test_anything_else_is_401(guard: Guard, header: str) -> None:
    assert refused(guard, Request("GET", "/", headers={"authorization": header}), "reader") is HTTPStatus.UNAUTHORIZED
    guard.check(Request("GET", "/"), "anybody")


def test_wrong_secrets_and_unknown_names_are_401(guard: Guard) -> None:
    for request in (basic("alice", "x"), basic("carol", "secret"), bearer("alice.x"), basic("alice", "x" * 2000)):
        assert refused(guard, request, "reader") is HTTPStatus.UNAUTHORIZED


@given(st.text(max_size=60))
def test_no_header_is_an_error_of_ours(header: str) -> None:
    name, secret = guards._credentials(header)
    assert bool(name) == bool(secret)


def test_a_secret_that_was_right_is_not_computed_again(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.check(basic("alice", "pass:word"), "admin")

    def never(secret: str, known: str) -> bool:
        raise AssertionError("argon2 once more")

    monkeypatch.setattr(passwords, "fits", never)
    guard.check(basic("alice", "pass:word"), "admin")


def test_too_many_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "BURST", 5.0)
    monkeypatch.setattr(guards, "PER_SECOND", 0.001)
    guard = Guard(None)
    for _ in range(5):
        guard.check(Request("GET", "/"), "admin")
    assert refused(guard, Request("GET", "/"), "anybody") is HTTPStatus.TOO_MANY_REQUESTS


def test_one_client_cannot_use_up_what_all_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BURST": 6.0, "CLIENT_BURST": 3.0, "PER_SECOND": 0.001, "CLIENT_PER_SECOND": 0.001}.items():
        monkeypatch.setattr(guards, name, value)
    guard = Guard(None)

    def ask(client: str) -> None:
        guard.check(Request("GET", "/", client=client), "reader")

    for _ in range(3):
        ask("10.0.0.1")
    for client in ("10.0.0.1", "::ffff:10.0.0.1") * 5:
        with pytest.raises(Refused):
            ask(client)
    ask("10.0.0.2")
    ask("2001:db8::1")
    ask("2001:db8::2")  # of one host, which has 64 bits of its own: it shares a measure, and all have none left
    with pytest.raises(Refused):
        ask("10.0.0.3")
    assert len(guard._clients) == 4


def test_clients_that_are_not_remembered_any_more_are_counted_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "CLIENTS", 2)
    monkeypatch.setattr(guards, "CLIENT_PER_SECOND", 0.001)
    guard = Guard(None)
    for n in range(9):
        guard.check(Request("GET", "/", client=f"10.0.0.{n}"), "reader")
    assert len(guard._clients) == 2


def test_without_users_changes_are_only_for_where_that_was_meant() -> None:
    guard = Guard(None, open_to_change=False)
    assert guard.check(Request("GET", "/"), "reader").role == "reader"
    with pytest.raises(Refused, match="--users FILE") as refusal:
        guard.check(Request("PUT", "/"), "admin")
    assert refusal.value.status is HTTPStatus.FORBIDDEN
    assert Guard(None).check(Request("PUT", "/"), "admin").role == "admin"


def test_what_anybody_may_ask_is_answered_by_who_asks(guard: Guard) -> None:
    assert guard.check(Request("GET", "/"), "anybody").role == "anybody"
    assert guard.check(basic("bob", "wrong"), "anybody").role == "anybody"
    assert guard.check(basic("bob", "secret"), "anybody").role == "reader"


def test_the_file_names_every_line_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "users"
    lines = [
        f"alice admin {digest('a')}",
        f"bob king {digest('b')}",
        "carol reader plain",
        f"alice reader {digest('c')}",
    ]
    file.write_text("\n".join(["# who may", "", *lines, ""]))
    with pytest.raises(ConfigError) as problem:
        load_users(file)
    assert len(problem.value.problems) == 3
    file.write_text("")
    with pytest.raises(ConfigError, match="names nobody"):
        load_users(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_users(tmp_path / "absent")


def test_users_are_written_by_the_verb_and_read_by_the_guard(tmp_path: Path, logs: list[EventDict]) -> None:
    file = tmp_path / "users"

    def run(*arguments: str, said: str = "") -> str:
        result = CliRunner().invoke(users_command, [str(file), *arguments], input=said, standalone_mode=False)
        assert result.exception is None, result.output
        return result.stdout

    run("alice", "--role", "admin", said="open sesame, please\n")
    token = run("grafana", "--token").strip()
    assert run().splitlines() == ["alice\tadmin", "grafana\treader"]
    assert file.stat().st_mode & 0o077 == 0
    assert "sesame" not in file.read_text()
    guard = Guard(load_users(file))
    guard.check(basic("alice", "open sesame, please"), "admin")
    guard.check(bearer(token), "reader")
    run("alice", "--remove")
    assert run().splitlines() == ["grafana\treader"]


# -------------------- on a socket


def hello(request: Request, named: Mapping[str, str]) -> Response:
    return Response(body=b"hello")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "heliograph")


@pytest.fixture
def server(authority: Authority, guard: Guard) -> Iterator[Server]:
    tls = server_tls_of(authority.issue("worker").key_properties("PKCS12"))
    routes = (Route("GET", "/open", hello, "", "anybody"), Route("GET", "/shut", hello, "", "admin"))
    one = Server("127.0.0.1", 0, Router(routes, guard), tls=tls)
    one.start()
    yield one
    one.close()


def ask(server: Server, authority: Authority, path: str, *credentials: str) -> int:
    context = ssl.create_default_context(cafile=authority.trust_properties("PEM")["ssl.truststore.location"])
    context.check_hostname = False
    request = urllib.request.Request(server.url + path)
    if credentials:
        text = base64.b64encode(":".join(credentials).encode()).decode()
        request.add_header("Authorization", f"Basic {text}")
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_over_tls_only_and_only_for_those_who_may(server: Server, authority: Authority) -> None:
    assert server.url.startswith("https://")
    assert ask(server, authority, "/open") == 200
    assert ask(server, authority, "/shut") == 401
    assert ask(server, authority, "/nowhere") == 401
    assert ask(server, authority, "/nowhere", "alice", "pass:word") == 404
    assert ask(server, authority, "/shut", "bob", "secret") == 403
    assert ask(server, authority, "/shut", "alice", "pass:word") == 200
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(server.url.replace("https", "http") + "/open", timeout=10)
    assert ask(server, authority, "/open") == 200


def test_a_listener_without_a_certificate_is_named() -> None:
    with pytest.raises(StoreProblem, match="needs a certificate"):
        server_tls_of({})

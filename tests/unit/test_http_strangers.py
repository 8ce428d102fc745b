"""Strangers at the HTTP server's door: silent and slow ones, too many, pages that lie about their site, and a process
without descriptors. Whoever else asks is answered meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus

import pytest
from structlog.typing import EventDict

from heliograph.embedded.certificates import Authority
from heliograph.errors import ConfigError
from heliograph.http import application, bodies, deadlines
from heliograph.http import guard as guards
from heliograph.http.connections import Connections, network
from heliograph.http.guard import Guard
from heliograph.http.hosts import Hosts
from heliograph.http.message import Refused, Request, Response
from heliograph.http.pool import Full, Pool
from heliograph.http.routing import Route, Router
from heliograph.http.server import Server
from heliograph.wire.stores import server_tls_of
from tests.kit import wait_until

RELEASED = threading.Event()


def health(request: Request, named: Mapping[str, str]) -> Response:
    return Response.json({"healthy": True})


def slow(request: Request, named: Mapping[str, str]) -> Response:
    """A handler that waits for Kafka, until the test lets it go."""
    RELEASED.wait(120)
    return Response()


def large(request: Request, named: Mapping[str, str]) -> Response:
    return Response(body=b"x" * (32 << 20))


class Deleted:
    """A connector that somebody may delete."""

    def __init__(self) -> None:
        self.by: list[str] = []

    def delete(self, request: Request, named: Mapping[str, str]) -> Response:
        self.by.append(request.role)
        return Response(HTTPStatus.NO_CONTENT, content_type="")


ROUTES = (
    Route("GET", "/health", health, "", "anybody", prompt=True),
    Route("GET", "/slow", slow, ""),
    Route("GET", "/large", large, ""),
)


BODY = b"x" * (1 << 20)


def put(server: Server, address: str, *, body: bytes = BODY) -> socket.socket:
    """A request with a body, from this address; its answer is not read."""
    connection = connected(server, address)
    head = f"PUT /slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def answer(connection: socket.socket) -> int:
    return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(("each", "addresses"), [(4, ["127.0.0.1"]), (99, ["127.0.0.1", "127.0.0.2"])])
def test_bodies_of_strangers_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, each: int, addresses: list[str]
) -> None:
    """Each body had a limit, all together had none: strangers could make the process hold a gigabyte of them."""
    RELEASED.clear()
    monkeypatch.setattr(bodies.Bodies.__init__, "__defaults__", (4 * len(BODY), each * len(BODY)))
    asked: list[int] = []

    def keep(request: Request, named: Mapping[str, str]) -> Response:
        asked.append(len(request.body))
        return slow(request, named)

    server = Server("127.0.0.1", 0, Router((*ROUTES, Route("PUT", "/slow", keep, "")), Guard(None)))
    server.start()
    try:
        with contextlib.ExitStack() as opened:
            held = [opened.enter_context(put(server, addresses[n % len(addresses)])) for n in range(4)]
            wait_until(lambda: asked == [len(BODY)] * 4)
            more = [opened.enter_context(put(server, address)) for address in addresses]
            assert [answer(one) for one in more] == [503] * len(more)
            assert is_well(server)
            assert status(server, "Host: 127.0.0.1", "Content-Length: 0", path="/health") == 200
            RELEASED.set()
            assert [answer(one) for one in held] == [200] * 4
            with put(server, addresses[0]) as again:
                assert answer(again) == 200, "what was held is given back"
    finally:
        RELEASED.set()
        server.close()


@pytest.fixture
def deleted() -> Deleted:
    return Deleted()


@pytest.fixture
def server(deleted: Deleted) -> Iterator[Server]:
    RELEASED.clear()
    routes = (*ROUTES, Route("DELETE", "/connectors/{name}", deleted.delete, "", "admin"))
    one = Server("127.0.0.1", 0, Router(routes, Guard(None)))
    one.start()
    yield one
    RELEASED.set()
    one.close()


def connected(server: Server, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30, source_address=(address, 0))


def status(server: Server, *lines: str, method: str = "GET", path: str = "/health") -> int:
    """Of a request with these headers, on a connection of its own."""
    with connected(server) as connection:
        head = "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", *lines, "Connection: close", ""))
        connection.sendall(head.encode("latin-1"))
        return int(connection.makefile("rb").readline().split()[1])


def is_well(server: Server) -> bool:
    return status(server, f"Host: 127.0.0.1:{server.port}") == 200


# -------------------- E4: DNS rebinding


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
def test_a_page_whose_name_was_bound_to_this_machine_is_refused(server: Server, deleted: Deleted, method: str) -> None:
    """E4: such a page was admin on loopback, for its Origin is the Host it names."""
    evil = f"evil.example:{server.port}"
    for more in ((), (f"Origin: http://{evil}",), (f"Origin: http://{evil}", "Sec-Fetch-Site: same-origin")):
        assert status(server, f"Host: {evil}", *more, method=method, path="/connectors/orders") == 421
    forwarded = (f"Host: {evil}", f"Origin: http://{evil}", f"X-Forwarded-Host: 127.0.0.1:{server.port}")
    assert status(server, *forwarded, method=method, path="/connectors/orders") == 421
    assert not deleted.by


def test_the_target_counts_where_it_names_a_host(server: Server) -> None:
    """RFC 9112 3.2.2: an absolute target beats the Host header."""
    assert status(server, "Host: localhost", path="http://evil.example/health") == 421
    assert status(server, "Host: evil.example", path="http://localhost/health") == 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LocalHost:8083", "localhost.", "[::1]:8083", "10.1.2.3:8083", "a.localhost"]
)
def test_names_of_this_machine_and_addresses_are_answered(server: Server, deleted: Deleted, host: str) -> None:
    assert status(server, f"Host: {host}", method="DELETE", path="/connectors/x") == 204
    assert deleted.by == ["admin"]


@pytest.mark.parametrize("host", ["", "a b", "a:b", "[::1", "evil.example/..", "[x]"])
def test_a_host_that_is_none_is_refused(server: Server, host: str) -> None:
    assert status(server, f"Host: {host}") in (400, 421)


def test_the_refusal_names_the_setting_and_the_setting_helps() -> None:
    hosts = Hosts("0.0.0.0", more=["connect.example.org"])
    hosts.require(Request("GET", "/", headers={"host": "Connect.Example.org:8083"}))
    with pytest.raises(Refused, match=r"--allow-host evil\.example") as refused:
        hosts.require(Request("GET", "/", headers={"host": "evil.example"}))
    assert refused.value.status is HTTPStatus.MISDIRECTED_REQUEST
    below = Hosts(more=[".mm2.svc.cluster.local"])
    for host in ("mm2.svc.cluster.local", "worker-0.mm2.svc.cluster.local:8083"):
        below.require(Request("GET", "/", headers={"host": host}))
    with pytest.raises(Refused):
        below.require(Request("GET", "/", headers={"host": "evilmm2.svc.cluster.local"}))
    for wrong in ("http://x", "x:80", "", "a/b", "*", "."):
        with pytest.raises(ConfigError, match="not a host name"):
            Hosts(more=[wrong])


# -------------------- E7: who holds what others need


def test_health_is_answered_while_every_handler_waits_for_kafka(server: Server) -> None:
    waiting = []
    for _ in range(application.HANDLERS + 4):
        one = connected(server)
        one.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        waiting.append(one)
    wait_until(lambda: server._handlers._started == application.HANDLERS, what="all handlers busy")
    assert is_well(server)
    RELEASED.set()
    for one in waiting:
        assert one.recv(100).startswith(b"HTTP/1.1 200 ")
        one.close()


def test_health_is_answered_when_others_have_used_up_what_all_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that is told 429 restarts a process that is well."""
    monkeypatch.setattr(guards, "BURST", 3.0)
    monkeypatch.setattr(guards, "PER_SECOND", 0.001)
    server = Server("127.0.0.1", 0, Router(ROUTES, Guard(None)))
    server.start()
    try:
        statuses = [status(server, "Host: localhost", path="/nowhere") for _ in range(5)]
        assert statuses == [404] * 3 + [429] * 2
        assert is_well(server)
    finally:
        server.close()


def test_more_requests_than_may_wait_are_told_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def ask_slowly() -> None:
        one = connected(server)
        one.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        held.append(one)

    pool = server._handlers
    for _ in range(application.HANDLERS):
        ask_slowly()
    wait_until(lambda: (pool._started, pool._queued) == (application.HANDLERS, 0), what="all handlers busy")
    monkeypatch.setattr(pool, "_waiting_each", 2)
    ask_slowly()
    ask_slowly()
    wait_until(lambda: server._handlers._queued == 2, what="a full queue")
    assert status(server, "Host: localhost", path="/slow") == 503
    assert is_well(server)
    for one in held:
        one.close()


def test_one_address_cannot_take_the_places_of_others(deleted: Deleted) -> None:
    server = Server("127.0.0.1", 0, Router(ROUTES), limit=8, limit_each=4)
    server.start()
    friend = connected(server, "127.0.0.2")
    strangers = [connected(server) for _ in range(20)]
    try:
        assert is_well(server)
        friend.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert friend.recv(100).startswith(b"HTTP/1.1 200 "), "its connection was kept"
        assert len(server.connections) <= 8
    finally:
        for one in (friend, *strangers):
            one.close()
        server.close()


def test_an_answer_that_nobody_takes_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "ANSWER_S", 0.3)
    with connected(server) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: len(server.connections) == 1, what="the connection")
        wait_until(lambda: len(server.connections) == 0, what="its end")


def test_a_process_without_descriptors_serves_again_when_it_has_some(server: Server, logs: list[EventDict]) -> None:
    """E7: acceptors died of it."""
    client = socket.socket()
    client.settimeout(30)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # No higher than needed: every number below the limit has to be taken.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 16, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        client.connect(("127.0.0.1", server.port))
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        wait_until(lambda: any("cannot be accepted" in line["event"] for line in logs), what="a word in the log")
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    client.close()
    assert is_well(server)
    assert sum("cannot be accepted" in line["event"] for line in logs) == 1, "once, not ten times a second"


def test_silent_clients_of_a_tls_port_are_counted_and_time_out(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn would count a connection only after its handshake, and give that a minute."""
    monkeypatch.setattr(deadlines, "REQUEST_S", 1.0)
    authority = Authority(tmp_path_factory.mktemp("certificates"), "heliograph")
    tls = server_tls_of(authority.issue("worker").key_properties("PKCS12"))
    server = Server("127.0.0.1", 0, Router(ROUTES), limit=8, tls=tls)
    server.start()
    try:
        silent = [connected(server) for _ in range(12)]
        wait_until(lambda: len(server.connections) == 8, what="as many as there may be")
        assert silent[0].recv(1) == b"", "the first made room"
        for one in silent[4:]:
            assert one.recv(1) == b""
        context = ssl.create_default_context(cafile=authority.trust_properties("PEM")["ssl.truststore.location"])
        context.check_hostname = False
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=30, context=context)
        connection.request("GET", "/health")
        assert json.loads(connection.getresponse().read()) == {"healthy": True}
        connection.close()
    finally:
        for one in silent:
            one.close()
        server.close()


# -------------------- counting


class Seat:
    def __init__(self, client: str) -> None:
        self.client = client
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def test_who_waits_longest_goes_first_and_who_is_answered_never() -> None:
    open_ = Connections(limit=3, limit_each=3)
    first, second, third = seats = [Seat(f"10.0.0.{n}") for n in range(3)]
    assert all(open_.admit(one) for one in seats)
    open_.is_answered(first)
    open_.is_answered(second)
    open_.waits(second)  # answered, and waiting again: third waits for longer now
    assert open_.admit(Seat("10.0.0.9"))
    assert [one.evicted for one in (first, second, third)] == [False, False, True]
    for one in open_.all():
        open_.is_answered(one)
    assert not open_.admit(Seat("10.0.0.9"))
    for one in open_.all():
        open_.gone(one)
        open_.gone(one)
    assert len(open_) == 0


def test_a_host_has_64_bits_of_ipv6() -> None:
    assert network("2001:db8::1") == network("2001:db8::2%eth0") != network("2001:db8:0:1::1")
    assert network("::ffff:10.0.0.1") == network("10.0.0.1") == "10.0.0.1"
    assert network("") == ""


def test_clients_take_turns() -> None:
    pool = Pool("test", 1, waiting_each=100, waiting=200)
    go, done = threading.Event(), []
    first = pool.submit("flood", lambda: go.wait(30))
    flood = [pool.submit("flood", lambda n=n: done.append(f"flood {n}")) for n in range(50)]
    friend = pool.submit("friend", lambda: done.append("friend"))
    go.set()
    for future in (first, *flood, friend):
        future.result(30)
    assert done.index("friend") <= 1
    pool.close()
    with pytest.raises(Full):
        pool.submit("friend", time.monotonic)

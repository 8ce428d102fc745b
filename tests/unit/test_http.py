"""The HTTP server on a real socket: what is asked properly, what is not, and who is slow or too many."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.typing import EventDict

from heliograph.errors import ConfigError
from heliograph.health.status import FlowReport, FlowStatus, Order, ParkedPartition
from heliograph.http import deadlines
from heliograph.http.address import Address, parse_address
from heliograph.http.hosts import Hosts
from heliograph.http.message import Refused, Request, Response
from heliograph.http.pages import ILL_SHOWN, Pages
from heliograph.http.parsing import BODY_LIMIT_BYTES, HEAD_LIMIT_BYTES, Parser, check_head
from heliograph.http.routing import Route, Router
from heliograph.http.server import Server
from tests.exposition import parse
from tests.kit import wait_until
from tests.unit.test_metrics import a_partition, a_report

CHUNKED = b"PUT /things/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def echo(request: Request, named: Mapping[str, str]) -> Response:
    return Response.json({"path": request.path, "query": request.query, "body": len(request.body), **named})


def broken(request: Request, named: Mapping[str, str]) -> Response:
    raise ZeroDivisionError("oh")


RELEASED = threading.Event()


def slow(request: Request, named: Mapping[str, str]) -> Response:
    """A handler that waits for Kafka, until the test lets it go."""
    RELEASED.wait(60)
    return Response()


ROUTES = (
    Route("GET", "/echo", echo, ""),
    Route("GET", "/things/{name}/parts/{part}", echo, ""),
    Route("PUT", "/things/{name}", echo, ""),
    Route("GET", "/broken", broken, ""),
    Route("GET", "/slow", slow, ""),
)


@pytest.fixture
def server() -> Iterator[Server]:
    RELEASED.clear()
    one = Server("127.0.0.1", 0, Router(ROUTES), limit=4, hosts=Hosts("127.0.0.1", more=["x"]))
    one.start()
    yield one
    RELEASED.set()
    one.close()


def ask(server: Server, method: str, path: str, body: bytes | None = None) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def say(server: Server, *parts: bytes) -> bytes:
    """Bytes to the server, one part after the other, and all that it answers until it hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while more := connection.recv(65536):
            answer += more
        return answer


# -------------------- asked properly


def test_a_route_gets_its_segments_and_the_query(server: Server) -> None:
    response, body = ask(server, "GET", "/things/or%20ders/parts/3?a=1&a=2")
    assert response.status == 200
    assert json.loads(body) == {
        "path": "/things/or ders/parts/3", "query": {"a": ["1", "2"]}, "body": 0, "name": "or ders", "part": "3",
    }  # fmt: skip


@pytest.mark.parametrize("path", ["/things/or%2Fders", "//echo", "/%2e%2e/echo", "/echo%00", "/ec%ho"])
def test_a_path_that_two_readers_could_take_apart_in_two_ways_is_refused(server: Server, path: str) -> None:
    response, body = ask(server, "GET", path)
    assert response.status == 400
    assert b"the path is ambiguous" in body


def test_head_says_what_get_would(server: Server) -> None:
    got, body = ask(server, "GET", "/echo")
    head, nothing = ask(server, "HEAD", "/echo")
    assert nothing == b""
    assert head.getheader("Content-Length") == got.getheader("Content-Length") == str(len(body))


def test_a_connection_serves_many_requests_also_when_they_come_at_once(server: Server) -> None:
    one = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert say(server, one * 20 + last).count(b"HTTP/1.1 200 OK") == 21


def test_a_request_may_come_byte_by_byte(server: Server) -> None:
    request = b"PUT /things/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    answer = say(server, *(request[n : n + 1] for n in range(len(request))))
    assert b'"body": 5' in answer


def test_http_1_0_ends_after_one(server: Server) -> None:
    answer = say(server, b"GET /echo HTTP/1.0\r\n\r\n" * 2)
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert b"connection: close" in answer.lower()


# -------------------- asked badly


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/", 404), ("POST", "/echo", 405), ("DELETE", "/things/x", 405)],
)
def test_what_is_not_in_the_table(server: Server, method: str, path: str, status: int) -> None:
    response, body = ask(server, method, path)
    assert response.status == status
    said = json.loads(body)
    assert said["error_code"] == status
    if status == 404:
        assert "/echo" in said["message"]
    else:
        assert response.getheader("Allow") in ("GET, HEAD", "HEAD, PUT")


def test_a_handler_that_fails_is_500_without_a_traceback(server: Server) -> None:
    response, body = ask(server, "GET", "/broken")
    assert response.status == 500
    assert "ZeroDivisionError" in json.loads(body)["message"]
    assert b"Traceback" not in body
    assert ask(server, "GET", "/echo")[0].status == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /echo\r\n\r\n", 400),
        (b"GET  /echo HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET echo HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"G\x00T /echo HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\nspace : x\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\nHost: x\n\n\r\n\r\n", 400),
        (b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"PUT /things/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT /things/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", 501),
        (CHUNKED.replace(b"Host", b"Content-Length: 5\r\nHost") + b"0\r\n\r\n", 400),
        (CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n", 400),
        (CHUNKED.replace(b"Host", b"Expect: a miracle\r\nHost") + b"0\r\n\r\n", 417),
        (CHUNKED + b"-1\r\nx\r\n", 400),
        (CHUNKED + b"0x1\r\nx\r\n", 400),
        (CHUNKED + b"\r\n", 400),
        (CHUNKED + b"1\nx\n0\n\n", 400),
        (CHUNKED + b"1\r\nxy\r\n0\r\n\r\n", 400),
        (CHUNKED + b"1;" + b"x" * 2000 + b"\r\nx\r\n", 400),
        (CHUNKED + b"%x\r\n" % (BODY_LIMIT_BYTES + 1), 413),
        (CHUNKED + b"ffffffff\r\n", 413),
        (CHUNKED + b"fffffffff\r\n", 400),
        (CHUNKED + b"0\r\n" + b"a: b\r\n" * 200_000, 413),
        (b"PUT /things/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (BODY_LIMIT_BYTES + 1), 413),
        (b"PUT /things/x HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n" % (b"9" * 5000), 413),
        (b"GET /echo HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"GET /" + b"x" * HEAD_LIMIT_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS
    ],
)
def test_bad_requests_are_answered_and_the_connection_ends(server: Server, request_bytes: bytes, status: int) -> None:
    answer = say(server, request_bytes + b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    assert len(re.findall(rb"HTTP/1\.1 \d", answer)) == 1, "what follows a bad request is not read as another"
    assert b"Traceback" not in answer
    assert ask(server, "GET", "/echo")[0].status == 200


@given(st.binary(max_size=300))
@example(b"GET / HTTP/1.1\r\nHost: [\r\nContent-Length: \xb2")
@example(b"GET //[ HTTP/1.0")
def test_any_bytes_are_a_head_or_refused(head: bytes) -> None:
    with contextlib.suppress(Refused):  # anything else is a fault
        check_head(head)


# -------------------- bodies in chunks


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_body_may_come_in_chunks(server: Server, step: int) -> None:
    chunks = b"2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nX-Trailer: y\r\n\r\n"
    request = CHUNKED + chunks + b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = say(server, *(request[n : n + step] for n in range(0, len(request), step)))
    assert b'"body": 5' in answer
    assert answer.count(b"HTTP/1.1 200 OK") == 2, "what follows is the next request"


def test_who_asks_whether_to_go_on_is_told_so(server: Server) -> None:
    head = CHUNKED.replace(b"Host", b"Expect: 100-continue\r\nConnection: close\r\nHost")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"5\r\nhello\r\n0\r\n\r\n")
        assert b'"body": 5' in connection.makefile("rb").read()


def parse_all(parser: Parser, *pieces: bytes) -> list[object]:
    """Every event of these bytes; Refused is raised."""
    events: list[object] = []
    for piece in pieces:
        if piece:
            parser.receive_data(piece)
        while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            events.append(event)
    return events


def body_of(events: list[object]) -> bytes:
    return b"".join(bytes(event.data) for event in events if isinstance(event, h11.Data))


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=5), st.binary(max_size=9), st.integers(1, 7))
def test_chunks_are_put_together_however_they_come(parts: list[bytes], behind: bytes, step: int) -> None:
    sent = b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    parser = Parser()
    events = parse_all(parser, CHUNKED, *(sent[n : n + step] for n in range(0, len(sent), step)))
    assert isinstance(events[-1], h11.EndOfMessage)
    assert (body_of(events), parser.holds_bytes) == (b"".join(parts), False)
    whole = Parser()
    assert body_of(parse_all(whole, CHUNKED + sent + behind)) == b"".join(parts)
    assert whole.trailing_data[0] == behind


@given(st.binary(max_size=60))
@example(b"\xff\r\n")
@example(b"00000001\r\nx\r\n0\r\n\r\n")
def test_any_bytes_are_chunks_or_refused(data: bytes) -> None:
    with contextlib.suppress(Refused):
        parse_all(Parser(), CHUNKED, data)


@given(st.binary(max_size=60), st.integers(1, 9))
def test_any_bytes_are_requests_or_refused(data: bytes, step: int) -> None:
    with contextlib.suppress(Refused):
        parse_all(Parser(), *(data[n : n + step] for n in range(0, len(data), step)))


def test_a_body_of_single_bytes_ends_somewhere() -> None:
    parser = Parser()
    parser.receive_data(CHUNKED + b"1\r\nx\r\n" * 300_000)
    got: list[object] = []
    with pytest.raises(Refused, match="stand between them"):
        got.extend(iter(parser.next_event, h11.NEED_DATA))
    assert len(got) < BODY_LIMIT_BYTES // 4


# -------------------- slow, silent, too many


def test_a_request_that_never_ends_is_ended(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "REQUEST_S", 0.3)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.05):  # never silent for long, and never done
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

        connection.sendall(b"GET /echo HTTP/1.1\r\nX: ")
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert connection.recv(100).startswith(b"HTTP/1.1 408 ")
        finally:
            stop.set()
            thread.join()


def test_a_connection_that_idles_is_closed_without_a_word(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "IDLE_S", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        assert connection.recv(100) == b""


def held(server: Server, count: int, sent: bytes = b"") -> list[socket.socket]:
    """Connections that are counted, silent or after a few bytes."""
    made = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        one.sendall(sent)
        made.append(one)
    wait_until(lambda: len(server.connections) >= count, what=f"{count} connections")
    return made


def test_more_connections_than_may_be_answered_are_told_so(server: Server) -> None:
    asked = held(server, 4, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_until(lambda: not server.connections._waiting, what="four requests in their handlers")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as fifth:
        assert fifth.recv(100).startswith(b"HTTP/1.1 503 ")
    RELEASED.set()
    for one in asked:
        assert one.recv(100).startswith(b"HTTP/1.1 200 ")
        one.close()
    wait_until(lambda: not len(server.connections), what="all places free")
    assert ask(server, "GET", "/echo")[0].status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /echo HTTP/1.1\r\nX: "], ids=["silent", "half a request"])
def test_idle_connections_make_room_for_new_ones_the_longest_idle_first(server: Server, sent: bytes) -> None:
    """E7: as many silent sockets as there were places silenced /health for half a minute."""
    idle = held(server, 4, sent)
    assert ask(server, "GET", "/echo")[0].status == 200
    assert idle[0].recv(100) == b""
    for one in idle[1:]:
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(100)
    for one in idle:
        one.close()


def test_closing_ends_connections_and_the_port(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        wait_until(lambda: len(server.connections), what="the connection")
        server.close()
        assert connection.recv(100) == b""
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def test_closing_with_a_request_in_its_handler_is_no_fault(
    server: Server, logs: list[EventDict], caplog: pytest.LogCaptureFixture
) -> None:
    (asked,) = held(server, 1, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_until(lambda: not server.connections._waiting, what="the request in its handler")
    server.close()
    assert asked.recv(100) == b""
    asked.close()
    assert (logs, caplog.records) == ([], [])


def test_a_server_that_never_started_frees_its_port() -> None:
    one = Server("127.0.0.1", 0, Router(ROUTES))
    one.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", one.port), timeout=1)


def test_a_port_that_is_taken_is_a_config_error(server: Server) -> None:
    with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}.*another port"):
        Server("127.0.0.1", server.port, Router(ROUTES))


# -------------------- where it listens


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8083", ("127.0.0.1", 8083)),
        (":0", ("127.0.0.1", 0)),
        ("127.0.0.1:8083", ("127.0.0.1", 8083)),
        ("127.9.9.9:8083", ("127.9.9.9", 8083)),
        ("localhost:8083", ("localhost", 8083)),
        ("[::1]:8083", ("::1", 8083)),
    ],
)
def test_loopback_needs_no_leave(text: str, address: tuple[str, int]) -> None:
    found = parse_address(text)
    assert (found.host, found.port, found.tls) == (*address, False)


def test_https_is_said_in_the_address() -> None:
    assert parse_address("https://8443") == Address("127.0.0.1", 8443, True)
    assert parse_address("https://0.0.0.0:8443/", insecure=True) == Address("0.0.0.0", 8443, True)
    assert parse_address("http://8083") == Address("127.0.0.1", 8083)


@pytest.mark.parametrize("text", ["0.0.0.0:8083", "[::]:8083", "10.0.0.1:1", "example.org:80"])
def test_beyond_loopback_only_when_told_so(text: str) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        parse_address(text)
    assert parse_address(text, insecure=True).port in (8083, 1, 80)


@pytest.mark.parametrize(
    "text", ["", "http", "host:", "127.0.0.1:65536", "127.0.0.1:-1", "8083/metrics", "host:²", "ftp://8083"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        parse_address(text, insecure=True)


# -------------------- the pages


class Flows:
    def __init__(self, *reports: FlowReport) -> None:
        self._reports = reports

    def report(self) -> tuple[FlowReport, ...]:
        return self._reports


def page(path: str, *reports: FlowReport, accept: str = "") -> Response:
    return Router(Pages(Flows(*reports)).routes()).answer(Request("GET", path, headers={"accept": accept}))


SOUND = a_report(partitions=(a_partition(),))


def test_what_operators_ordered_is_healthy_and_said() -> None:
    order = Order("orders", 3, "paused", "kim@h", 1_700_000_000_000)
    whole = Order(None, None, "stopped", "kim@h", 1_700_000_000_000)
    for status in (FlowStatus("us->eu", "running", orders=(order,)), FlowStatus("us->eu", "stopped", orders=(whole,))):
        response = page("/health", a_report(status=status, partitions=(a_partition(state="paused"),)))
        assert response.status == HTTPStatus.OK
        (flow,) = json.loads(response.body)["flows"]
        assert flow["ordered"][0].endswith(f"{status.orders[0].word} by kim@h since 2023-11-14 22:13:20Z")
    response = page("/health", a_report(status=FlowStatus("us->eu", "stopped")))  # nobody said so
    assert response.status == HTTPStatus.SERVICE_UNAVAILABLE


def test_health_is_200_while_every_flow_is_sound() -> None:
    response = page("/health", SOUND)
    assert response.status == HTTPStatus.OK
    assert json.loads(response.body)["flows"] == [
        {"name": "us->eu", "healthy": True, "state": "running", "reasons": [], "ordered": []}
    ]


def test_health_is_503_and_names_partition_and_reason() -> None:
    why = "source moved (5 records), we did not, for 7 s, because eu broker x: refused"
    parked = (ParkedPartition("hidden", None, "not allowed", "allow it"),)
    status = FlowStatus("us->eu", "stalled", reason="1 of 2 …", parked=parked)
    ill = a_report(status=status, partitions=(a_partition(), a_partition(1, state="stalled", reason=why)))
    response = page("/health", SOUND, ill)
    assert response.status == HTTPStatus.SERVICE_UNAVAILABLE
    said = json.loads(response.body)
    assert not said["healthy"]
    assert [flow["healthy"] for flow in said["flows"]] == [True, False]
    assert said["flows"][1]["reasons"] == [f"orders-1: stalled: {why}", "hidden: parked: not allowed. allow it"]


def test_health_of_a_flow_that_waits_for_its_query_says_when() -> None:
    status = FlowStatus("us->eu", "restarting", reason="the streaming query ended: oh; again in 3 s")
    said = json.loads(page("/health", a_report(status=status, partitions=())).body)
    assert said["flows"][0]["reasons"] == ["the streaming query ended: oh; again in 3 s"]


def test_health_of_a_thousand_ill_partitions_stays_readable() -> None:
    many = tuple(a_partition(n, state="stalled", reason="why") for n in range(1_000))
    report = a_report(status=FlowStatus("us->eu", "stalled"), partitions=many)
    reasons = json.loads(page("/health", report).body)["flows"][0]["reasons"]
    assert len(reasons) == ILL_SHOWN + 1
    assert reasons[-1] == f"… and {1_000 - ILL_SHOWN} more: see /status"


def test_status_has_every_partition() -> None:
    said = json.loads(page("/status", SOUND).body)
    flow = said["flows"][0]
    assert (flow["name"], flow["state"], flow["healthy"], flow["epochs"]) == ("us->eu", "running", True, 3)
    (one,) = flow["partition_status"]
    assert (one["topic"], one["partition"], one["lag_seconds"], one["counters"]["records"]) == ("orders", 0, 2.5, 7)
    assert one["latency_ms"] == {"mean": 20.0, "most": 30}
    assert flow["caps"] == [{"topics": "orders", "limit_bytes_per_s": 10_000_000, "bytes_per_s": 9_912_345.6}]


def test_status_has_what_was_decided() -> None:
    report = a_report(sizes={"tasks": 1, "far": False}, partitions=(a_partition(history=True),))
    flow = json.loads(page("/status", report).body)["flows"][0]
    assert flow["sizes"] == {"tasks": 1, "far": False}
    assert flow["partition_status"][0]["history"] is True


def test_metrics_come_in_the_form_that_is_accepted() -> None:
    plain = page("/metrics", SOUND)
    assert plain.content_type == "text/plain; version=0.0.4; charset=utf-8"
    parse(plain.body.decode())
    asked = page("/metrics", SOUND, accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert asked.content_type.startswith("application/openmetrics-text; version=1.0.0")
    parse(asked.body.decode(), openmetrics=True)


def test_the_index_lists_the_pages() -> None:
    text = page("/").body.decode()
    for path in ("/metrics", "/status", "/health"):
        assert path in text

"""Whatever bytes a broker, a token endpoint or a store's file holds, reading them ends in a value or a HeliographError.

Anything else would escape the callers that catch HeliographError: it once ended the thread of blocking calls and the
dialler, and the flow stood still without a word.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from heliograph.embedded.certificates import STORE_PASSWORD, Authority
from heliograph.errors import HeliographError, ProtocolError
from heliograph.types import Cluster
from heliograph.wire import metadata, oauth, sasl, versions
from heliograph.wire.frames import FrameReader
from heliograph.wire.link import Address
from heliograph.wire.messages import API_KEYS, decoder
from heliograph.wire.security import security_of

NONCE = "nonce"
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
# Digits of other scripts, superscripts, half a surrogate pair, NUL, what the formats are made of.
ODD = st.text(st.sampled_from("0123456789²٤=,;rsiveamn+/\x01\x00\ud800ő -\n\"'{}[]:"), max_size=60)
TEXTS = ODD | st.text(max_size=60)
BYTES = st.binary(max_size=300) | TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))


# ---- SASL


class Broker:
    """Answers each SaslAuthenticate with the next of these messages."""

    address = Address("broker", 9092)

    def __init__(self, *messages: bytes) -> None:
        self._messages = iter(messages)

    def version(self, api: str) -> int:
        return versions.spoken(api)[1]

    def call(self, request: Any, timeout_s: float = 0) -> Any:
        if hasattr(request, "mechanism"):
            return type("Handshake", (), {"error_code": 0, "mechanisms": ()})
        answer = {"error_code": 0, "error_message": None, "auth_bytes": next(self._messages, b"")}
        return type("Authenticated", (), answer)


def log_in(login: sasl.Login, *messages: bytes) -> None:
    with contextlib.suppress(HeliographError):
        sasl.log_in(Broker(*messages), login, float("inf"))


@given(BYTES, BYTES)
@example("r=nonceX,s=AAAA,i=40²6".encode(), b"")
@example(b"r=nonceX,s=AAAA,i=" + b"1" * 5000, b"")
@example(b"r=nonceX,s=AAAA,i=4096", b"v=\xff")
def test_scram_messages(first: bytes, final: bytes) -> None:
    exchange = sasl.scram(sasl.Login("us", "SCRAM-SHA-256", "user", "password"), nonce=NONCE)
    next(exchange)
    for message in (first, final):
        try:
            exchange.send(message)
        except (sasl.Refused, StopIteration):  # log_in makes LoginFailed and success of these
            return
    pytest.fail("the exchange did not end")


@given(ODD)
def test_scram_fields(value: str) -> None:
    for first in (f"r={NONCE}X,s=AAAA,i={value}", f"r={NONCE}X,s={value},i=4096", f"r={NONCE}{value},s=AAAA,i=4096"):
        exchange = sasl.scram(sasl.Login("us", "SCRAM-SHA-512", "user", "password"), nonce=NONCE)
        next(exchange)
        with contextlib.suppress(sasl.Refused):
            exchange.send(first.encode("utf-8", "surrogatepass"))


@given(st.sampled_from(sasl.MECHANISMS), st.lists(BYTES, max_size=3))
def test_a_login(mechanism: str, messages: list[bytes]) -> None:
    log_in(sasl.Login("us", mechanism, "user", "password", token=lambda: "token"), *messages)


# ---- tokens


TOKEN_ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "access_token": st.none() | TEXTS | st.integers() | st.lists(st.integers(), max_size=2),
        "id_token": st.none() | TEXTS,
        "expires_in": st.none() | TEXTS | st.integers() | st.floats() | st.just(10**400),
    },
)


def json_of(value: object) -> bytes:
    import json

    return json.dumps(value).encode()


@given(BYTES | TOKEN_ANSWERS.map(json_of))
@example(b"[" * 100_000)
@example(b'{"access_token": "t", "expires_in": NaN}')
@example(b'{"access_token": "t", "expires_in": 1' + b"0" * 400 + b"}")
@example(b'{"access_token": "\\ud800"}')
@example(b'{"access_token": "a.W1tbW1s=.c"}')
def test_token_answers(body: bytes) -> None:
    try:
        token, lifetime_s = oauth.read_token(body)
    except ValueError:  # made LoginFailed where the address is known
        return
    assert token.encode("ascii")
    assert 0 <= lifetime_s < float("inf")  # NaN is neither: such a token would count as fresh for ever


class TokenEndpoint:
    """Answers every connection with these bytes, HTTP or not, and closes it."""

    def __init__(self) -> None:
        self.answer = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/token"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                try:
                    connection.sendall(self.answer)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(65536)
                except OSError:
                    pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenEndpoint]:
    made = TokenEndpoint()
    yield made
    made.close()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@SLOW
@given(answer=BYTES, head=st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", CHUNKED]))
@example(answer=b"garbage\r\n\r\n", head=b"")
@example(answer=b'20\r\n{"access_', head=CHUNKED)
@example(answer=b"Content-Length: 50\r\n\r\nshort", head=b"HTTP/1.1 200 OK\r\n")
@example(answer=b"302 Found\r\nLocation: http://a..b/\r\n\r\n", head=b"HTTP/1.1 ")
def test_answers_of_a_token_endpoint(endpoint: TokenEndpoint, answer: bytes, head: bytes) -> None:
    endpoint.answer = head + answer
    properties = {"sasl.oauthbearer.token.endpoint.url": endpoint.url, "sasl.login.read.timeout.ms": "2000"}
    source = oauth.source_of("us", properties, {"clientId": "id", "clientSecret": "secret"})
    with contextlib.suppress(HeliographError):
        assert oauth.is_sendable(source())


@SLOW
@given(BYTES)
def test_token_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    source = oauth.source_of("us", {"sasl.oauthbearer.token.endpoint.url": path.as_uri()}, {})
    with contextlib.suppress(HeliographError):
        assert source().isascii()


# ---- stores


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A good key store of each kind."""
    identity = Authority(tmp_path_factory.mktemp("authority"), "unit").issue("alice")
    return {
        kind: Path(identity.key_properties(kind)["ssl.keystore.location"]).read_bytes()
        for kind in ("PEM", "PKCS12", "JKS")
    }


def open_store(tmp_path: Path, role: str, content: bytes, **more: str) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    properties = {"security.protocol": "SSL", f"ssl.{role}.location": str(path), f"ssl.{role}.password": STORE_PASSWORD}
    with contextlib.suppress(HeliographError):
        security_of(Cluster("us", properties | more))


@SLOW
@given(
    role=st.sampled_from(["truststore", "keystore"]),
    magic=st.sampled_from([b"", b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\1", b"\x30\x82", b"-----BEGIN "]),
    content=BYTES,
)
@example("truststore", b"", "# Főtanúsítvány\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----".encode())
@example("keystore", b"", "-----BEGIN PRIVATE KEY-----\nŐ\n-----END PRIVATE KEY-----".encode())
@example("truststore", b"", b"-----BEGIN CERTIFICATE-----\n\xf6\n-----END CERTIFICATE-----")
def test_files_that_may_be_stores(tmp_path: Path, role: str, magic: bytes, content: bytes) -> None:
    open_store(tmp_path, role, magic + content)


@SLOW
@given(st.data())
def test_damaged_stores(tmp_path: Path, stores: dict[str, bytes], data: st.DataObject) -> None:
    content = bytearray(stores[data.draw(st.sampled_from(sorted(stores)))])
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content))) :]
    open_store(tmp_path, data.draw(st.sampled_from(["truststore", "keystore"])), bytes(content))


@given(TEXTS, TEXTS)
@example("-----BEGIN CERTIFICATE-----\nő\n-----END CERTIFICATE-----", "\ud800")
def test_inline_pem_and_odd_properties(pem: str, odd: str) -> None:
    block = f"-----BEGIN CERTIFICATE-----{pem}-----END CERTIFICATE-----"
    for properties in (
        {"ssl.truststore.certificates": pem},
        {"ssl.truststore.certificates": block},
        {"ssl.keystore.key": block, "ssl.keystore.certificate.chain": block, "ssl.key.password": odd},
        {"ssl.truststore.location": odd},
        {"ssl.keystore.location": odd, "ssl.keystore.type": pem},
        {"ssl.enabled.protocols": odd, "ssl.endpoint.identification.algorithm": pem},
    ):
        with contextlib.suppress(HeliographError):
            security_of(Cluster("us", {"security.protocol": "SSL", **properties}))


@given(st.sampled_from(sasl.MECHANISMS), TEXTS, TEXTS)
@example("OAUTHBEARER", "http://[half", "²")
@example("PLAIN", "", 'a required username="\ud800" password="p";')
def test_odd_login_properties(mechanism: str, one: str, other: str) -> None:
    for jaas in (other, f'M required username="{one}" password="{other}" clientId="{one}" clientSecret="{other}";'):
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas,
            "sasl.oauthbearer.token.endpoint.url": one,
            "sasl.login.read.timeout.ms": other,
        }
        try:
            login = security_of(Cluster("us", properties)).login
        except HeliographError:
            continue
        if login is not None and login.mechanism != "OAUTHBEARER":  # a token would be fetched from there
            log_in(login, one.encode("utf-8", "replace"))


# ---- frames and responses


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_frames(pieces: list[bytes]) -> None:
    left = [piece for piece in pieces if piece]

    def recv_into(room: memoryview) -> int:
        if not left:
            return 0
        piece = left.pop(0)
        count = min(len(room), len(piece))
        room[:count] = piece[:count]
        if count < len(piece):
            left.insert(0, piece[count:])
        return count

    try:
        for frame in FrameReader(recv_into, limit_bytes=1 << 20).frames():
            assert frame.readonly
    except ProtocolError:
        pass


RESPONSES = [(api, version) for api in sorted(versions.SPOKEN) for version in versions.spoken(api)]


@SLOW
@given(st.sampled_from(RESPONSES), st.binary(max_size=120), st.binary(max_size=40))
def test_responses(which: tuple[str, int], body: bytes, more: bytes) -> None:
    api, version = which
    # Small numbers first: lengths that fit lead further into the reader than random ones.
    for frame in (body, b"\0\0\0\1" + body, b"\0\0\0\1\0" + more, b"\0\0\0\1\0\0\0\0\0\0\0\0\0\0\2\2\1" + more):
        try:
            _, answer = decoder(API_KEYS[api], version).read(memoryview(frame).toreadonly())
        except ProtocolError:
            continue
        if api == "metadata":
            metadata.read(answer)
        elif api == "api_versions":
            versions.ranges_of(answer)

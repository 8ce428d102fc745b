"""From client properties to a TLS context and a login: what is taken, and the words for what is not."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509.oid import NameOID

from heliograph.cli.main import exit_code_of
from heliograph.embedded.certificates import STORE_PASSWORD, Authority
from heliograph.errors import ConfigError, LoginFailed, TokenUnavailable
from heliograph.flow.patience import is_passing
from heliograph.types import Cluster
from heliograph.wire import Client, bootstrap_addresses, stores
from heliograph.wire.connection import Connection
from heliograph.wire.link import Address
from heliograph.wire.oauth import read_token
from heliograph.wire.security import Security, security_of

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def security(**properties: str) -> Security:
    return security_of(Cluster("west", {key.replace("_", "."): value for key, value in properties.items()}))


def problem(**properties: str) -> str:
    with pytest.raises(ConfigError) as caught:
        security(**properties)
    return str(caught.value)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "unit")


def test_plaintext_is_the_default() -> None:
    assert security() == Security("PLAINTEXT", None, None)


def test_bad_values_name_their_key() -> None:
    assert "west.security.protocol: is 'TLS'" in problem(security_protocol="TLS")
    assert "west.sasl.mechanism: is not set" in problem(security_protocol="SASL_SSL")
    assert "west.sasl.mechanism: is 'GSSAPI'" in problem(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI")
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    assert "west.sasl.jaas.config (or sasl.username)" in problem(**login)
    assert "west.sasl.jaas.config: it must end" in problem(**login, sasl_jaas_config=f'{PLAIN} required username="u"')
    algorithm = problem(security_protocol="SSL", ssl_endpoint_identification_algorithm="ldaps")
    assert "west.ssl.endpoint.identification.algorithm" in algorithm
    assert "west.ssl.enabled.protocols: has 'SSLv3'" in problem(
        security_protocol="SSL", ssl_enabled_protocols="TLSv1.2,SSLv3"
    )


def test_problems_of_tls_and_login_come_together(tmp_path: Path) -> None:
    said = problem(security_protocol="SASL_SSL", ssl_truststore_location=str(tmp_path / "none.pem"))
    assert "west.ssl.truststore.location" in said
    assert "west.sasl.mechanism" in said


@pytest.mark.parametrize("store", ["PEM", "PKCS12", "JKS"])
def test_stores(authority: Authority, store: str) -> None:
    properties = {**authority.trust_properties(store), **authority.issue("alice").key_properties(store)}
    before = set(os.listdir(authority.folder))
    found = security_of(Cluster("west", {"security.protocol": "SSL", **properties}))
    assert found.tls is not None
    assert found.tls.context.check_hostname
    [trusted] = found.tls.context.get_ca_certs()
    assert ("commonName", "unit embedded authority") in [pair for part in trusted["subject"] for pair in part]  # type: ignore[misc]
    assert found.tls.keystore == "ssl.keystore.location"
    assert set(os.listdir(authority.folder)) == before


def test_no_private_key_is_left_behind(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    properties = {**authority.trust_properties("PKCS12"), **authority.issue("bob").key_properties("PKCS12")}
    security_of(Cluster("west", {"security.protocol": "SSL", **properties}))
    assert os.listdir(tmp_path) == []


def test_a_type_that_is_not_given_or_wrong_is_found_out(authority: Authority) -> None:
    for store in ("PEM", "PKCS12"):
        properties = dict(authority.trust_properties(store))
        for kind in ("", "JKS"):  # Java takes PKCS12 under the name JKS as well
            properties["ssl.truststore.type"] = kind
            assert security_of(Cluster("west", {"security.protocol": "SSL", **properties})).tls is not None


def test_stores_that_cannot_be_read(authority: Authority, tmp_path: Path) -> None:
    junk, jks, jceks = tmp_path / "junk", tmp_path / "old.jks", tmp_path / "old.jceks"
    junk.write_bytes(b"0\x82 not a store")
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\x02")
    jceks.write_bytes(b"\xce\xce\xce\xce\0\0\0\x02")
    location = "ssl_truststore_location"
    pem, p12 = str(authority.certificate_pem), authority.trust_properties("PKCS12")["ssl.truststore.location"]

    def said(path: str, **more: str) -> str:
        return problem(security_protocol="SSL", **{location: path}, **more)

    assert "No such file" in said(str(tmp_path / "absent"))
    assert "not a JKS store that can be read" in said(str(jks))
    assert "keytool -importkeystore" in said(str(jceks))
    assert "west.ssl.truststore" in said(str(junk))
    assert "not a PKCS12 store" in said(pem, ssl_truststore_type="PKCS12")
    assert "is not PEM" in said(p12, ssl_truststore_type="PEM")
    assert "west.ssl.truststore.type" in said(pem, ssl_truststore_type="BKS")
    assert "west.ssl.truststore.password: does not open" in said(p12, ssl_truststore_password="wrong")
    assert "west.ssl.truststore.password: is not set" in said(p12)


def test_key_stores_that_do_not_fit(authority: Authority) -> None:
    key = authority.issue("carol")
    wrong = {"ssl_keystore_location": str(key.keystore_p12), "ssl_keystore_password": STORE_PASSWORD + "x"}
    assert "west.ssl.keystore.password: does not open" in problem(security_protocol="SSL", **wrong)
    trust = authority.trust_properties("PKCS12")
    assert "no private key" in problem(
        security_protocol="SSL",
        ssl_keystore_location=trust["ssl.truststore.location"],
        ssl_keystore_password=STORE_PASSWORD,
    )
    half = problem(security_protocol="SSL", ssl_keystore_key=key.key_pem.read_text())
    assert "west.ssl.keystore.certificate.chain" in half
    said = problem(security_protocol="SSL", ssl_truststore_certificates="no certificates here")
    assert "west.ssl.truststore.certificates" in said


def test_a_trust_store_with_comments_in_any_language(authority: Authority, tmp_path: Path) -> None:
    """As files of root certificates have them; ssl takes ASCII alone, and its TypeError once ended the dialler."""
    store = tmp_path / "trust.pem"
    store.write_bytes("# Főtanúsítvány\n".encode() + authority.certificate_pem.read_bytes() + b"# \xff\n")
    found = security(security_protocol="SSL", ssl_truststore_location=str(store))
    assert found.tls is not None
    assert len(found.tls.context.get_ca_certs()) == 1
    store.write_bytes(b"-----BEGIN CERTIFICATE-----\n\xf6\n-----END CERTIFICATE-----\n")
    assert "west.ssl.truststore.location: cannot be loaded" in problem(
        security_protocol="SSL", ssl_truststore_location=str(store)
    )


def test_pem_blocks_without_an_end_are_passed_over_quickly(authority: Authority) -> None:
    """Every BEGIN without its END made the text be scanned to its end: minutes, with the interpreter's lock held."""
    text = "".join(f"-----BEGIN A{n}-----\n" for n in range(100_000)) + authority.certificate_pem.read_text()
    found = security(security_protocol="SSL", ssl_truststore_certificates=text)
    assert found.tls is not None
    assert len(found.tls.context.get_ca_certs()) == 1


def test_a_key_that_cannot_go_through_a_file(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    said = problem(security_protocol="SSL", ssl_keystore_location=str(authority.issue("alice").keystore_pem))
    assert "west.ssl.keystore.location" in said
    assert "No such file" in said


def test_a_changed_store_is_read_again(authority: Authority, tmp_path: Path) -> None:
    store = tmp_path / "trust.pem"
    store.write_bytes(authority.certificate_pem.read_bytes())
    cluster = Cluster("west", {"security.protocol": "SSL", "ssl.truststore.location": str(store)})
    first = security_of(cluster)
    assert security_of(cluster) is first
    os.utime(store, ns=(1, 1))
    assert security_of(cluster) is not first


def test_bootstrap_servers() -> None:
    def addresses(text: str) -> list[Address]:
        return bootstrap_addresses(Cluster("west", {"bootstrap.servers": text}))

    assert addresses("a:1, [::1]:9092 ,SSL://b.c:3,") == [Address("a", 1), Address("::1", 9092), Address("b.c", 3)]
    assert str(Address("::1", 9092)) == "[::1]:9092"
    with pytest.raises(ConfigError) as caught:
        addresses("a, b:x, c:0, d:9")
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match=r"west\.bootstrap\.servers: is not set"):
        addresses(" ")


# -- tokens ----------------------------------------------------------------------------------------------------------


class Endpoint(http.server.BaseHTTPRequestHandler):
    asked: list[tuple[str, str]]
    status = 200
    reply: object

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], body))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(json.dumps(self.reply).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[type[Endpoint], str]]:
    handler = type("Handler", (Endpoint,), {"asked": [], "reply": {"access_token": "tok", "expires_in": 600}})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()
    thread.join()


def token_of(url: str, options: str, **more: str) -> str:
    found = security_of(
        Cluster(
            "west",
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": url,
                "sasl.jaas.config": f"{OAUTH} required {options};",
                **more,
            },
        )
    )
    assert found.login is not None
    assert found.login.token is not None
    return found.login.token()


CREDENTIALS = 'clientId="me" clientSecret="s3cret" scope="a b"'


def receive(connection: socket.socket) -> bytes:
    """A whole request for a token: with part of it unread, closing the connection would take the answer away."""
    request = b""
    while not request.endswith(b"scope=a+b") and (part := connection.recv(65536)):
        request += part
    return request


def test_client_credentials_are_traded_for_a_token_once(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint
    assert token_of(url, CREDENTIALS) == "tok"
    assert token_of(url, CREDENTIALS) == "tok"
    assert handler.asked == [("Basic bWU6czNjcmV0", "grant_type=client_credentials&scope=a+b")]


def test_an_endpoint_that_says_no(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint
    handler.status = 401
    with pytest.raises(LoginFailed) as caught:
        token_of(url, CREDENTIALS)
    assert "401" in str(caught.value)
    assert "clientSecret" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    handler.status, handler.reply = 200, ["not a token"]
    with pytest.raises(LoginFailed, match="access_token"):
        token_of(url, CREDENTIALS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_an_endpoint_that_is_not_ready_may_be_in_a_moment(endpoint: tuple[type[Endpoint], str], status: int) -> None:
    handler, url = endpoint
    handler.status = status
    with pytest.raises(TokenUnavailable, match=str(status)) as caught:
        token_of(url, CREDENTIALS)
    assert caught.value.retriable
    handler.status = 200
    assert token_of(url, CREDENTIALS) == "tok"


def test_an_endpoint_that_is_away_is_no_refused_login() -> None:
    """It was: the start did not wait for it, and ended with the exit code of a bad file."""
    with pytest.raises(TokenUnavailable, match="cannot be reached") as caught:
        token_of(f"http://127.0.0.1:{free_port()}/token", CREDENTIALS)
    assert exit_code_of(caught.value) == 75
    assert is_passing(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_client_says_that_the_token_endpoint_is_away_and_not_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Address] = []

    def opened(address: Address, cluster: Cluster, **_: object) -> Connection:
        asked.append(address)
        raise TokenUnavailable("west: no token from http://tokens/ for me: it cannot be reached", cluster="west")

    monkeypatch.setattr(Connection, "open", opened)
    servers = {"bootstrap.servers": "one:9092,two:9092,three:9092"}
    with Client(Cluster("west", servers), timeout_s=5.0) as client, pytest.raises(TokenUnavailable):
        client.call("metadata", retry=False, topics=[])
    assert len(asked) == 1  # the others would be shown no token either


@pytest.mark.parametrize("expires_in", [float("nan"), float("inf"), -1, 10**400, None, "soon"])
def test_a_lifetime_that_is_no_number_of_seconds_counts_as_a_minute(expires_in: object) -> None:
    """With NaN the token counted as fresh for ever, and logins failed once it had expired."""
    answer = json.dumps({"access_token": "token", "expires_in": expires_in}).encode()
    assert read_token(answer) == ("token", 60.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",  # no HTTP
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{"access_',  # cut off: IncompleteRead
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",  # more headers than http.client reads
    ],
)
def test_an_endpoint_that_does_not_answer_in_http(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                receive(connection)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(LoginFailed) as caught:
            token_of(f"http://127.0.0.1:{listener.getsockname()[1]}/", CREDENTIALS)
    assert "does not answer in HTTP" in str(caught.value)
    assert "west.sasl.oauthbearer.token.endpoint.url" in caught.value.fix


def test_an_endpoint_that_drips_its_answer_does_not_hold_the_login() -> None:
    """A byte now and then is an answer to a socket's own timeout, and the login's lock is held meanwhile."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                receive(connection)
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not over.wait(0.05):
                    connection.sendall(b"y")

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(TokenUnavailable, match=r"did not come within 0\.3 s"):
            token_of(url, CREDENTIALS, **{"sasl.login.read.timeout.ms": "300"})
        over.set()
        server.join()


def test_an_endpoint_whose_host_is_no_host_name() -> None:
    with pytest.raises(LoginFailed, match="not an address"):
        token_of("http://tokens..internal/", CREDENTIALS)


def test_a_token_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jwt"
    path.write_text("one\n")
    assert token_of(path.as_uri(), "") == "one"
    path.write_text("two\n")
    assert token_of(path.as_uri(), "") == "two"
    for content in (b"\xff\xfe", "tőken".encode(), b"", b"a\x01b"):  # what no login can send
        path.write_bytes(content)
        with pytest.raises(LoginFailed):
            token_of(path.as_uri(), "")
    path.unlink()
    with pytest.raises(LoginFailed):
        token_of(path.as_uri(), "")


def test_token_settings_that_are_missing() -> None:
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    assert "unsecuredLoginStringClaim_sub" in problem(**login)
    assert "clientId" in problem(**login, sasl_oauthbearer_token_endpoint_url="http://x/")
    for url in ("ftp://x/", "http://[half"):
        said = problem(**login, sasl_oauthbearer_token_endpoint_url=url)
        assert "west.sasl.oauthbearer.token.endpoint.url" in said
    tokens = {"sasl_oauthbearer_token_endpoint_url": "http://x/", "sasl_login_read_timeout_ms": "10²"}
    jaas = f'{OAUTH} required clientId="me" clientSecret="s";'
    assert "sasl.login.read.timeout.ms" in problem(**login, **tokens, sasl_jaas_config=jaas)


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives every connection this answer."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        asked.append(receive(connection))
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", asked


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_client_secret_does_not_follow_a_redirect(status: int) -> None:
    token = b'HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{"access_token": "tok"}'
    with answering(token) as (elsewhere, asked_elsewhere):
        redirect = f"HTTP/1.1 {status} Moved\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n".encode()
        with answering(redirect) as (url, asked), pytest.raises(LoginFailed) as caught:
            token_of(url, CREDENTIALS)
    assert len(asked) == 1
    assert asked_elsewhere == []
    assert "is not followed" in str(caught.value)
    assert elsewhere.split("/")[2] in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 6\r\n\r\nSign in"[:-1],
        b"HTTP/1.1 200 OK\r\n\r\n\n <!DOCTYPE html><title>Sign in</title>",
    ],
)
def test_an_endpoint_that_answers_with_a_page(answer: bytes) -> None:
    with answering(answer) as (url, _), pytest.raises(LoginFailed) as caught:
        token_of(url, CREDENTIALS)
    assert "an HTML page" in str(caught.value)
    assert "west.sasl.oauthbearer.token.endpoint.url" in caught.value.fix
    assert "Sign" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "why"), [(b"Content-Length: 9\r\n\r\n{}", "7 bytes early"), (b"\r\n" + b"x" * (1 << 21), "more than")]
)
def test_an_answer_that_is_cut_off_or_does_not_end(body: bytes, why: str) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n" + body) as (url, _), pytest.raises(LoginFailed, match=why):
        token_of(url, CREDENTIALS)


# ---- trust stores with keys in them ----


Key = ec.EllipticCurvePrivateKey


def _named(subject: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])


def _certificate(subject: str, issuer: str, key: Key, signer: Key) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder().subject_name(_named(subject)).issuer_name(_named(issuer))
    built = built.public_key(key.public_key()).serial_number(x509.random_serial_number())
    built = built.not_valid_before(now).not_valid_after(now + datetime.timedelta(1))
    return built.sign(signer, hashes.SHA256())


@pytest.mark.parametrize(
    ("names", "trusted"),
    [
        ([None], {"me"}),  # openssl pkcs12 -export -certfile
        ([b"CN=Public CA"], {"me"}),  # keytool -importkeystore
        ([b"CN=Public CA", b"root"], {"me", "Public CA"}),  # and the issuer imported as a trusted entry too
        ([b"root"], {"me", "Public CA"}),
    ],
)
def test_the_issuers_of_a_key_in_a_pkcs12_trust_store_are_not_trusted(
    names: list[bytes | None], trusted: set[str]
) -> None:
    """Java trusts the leaf and entries of their own; with the issuer, every certificate that a public CA ever issued
    would have been a broker of ours (fault E9). keytool's stores were looked at for the names."""
    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _certificate("Public CA", "Public CA", authority, authority)
    leaf = _certificate("me", "Public CA", own, authority)
    chain = [pkcs12.PKCS12Certificate(issuer, name) for name in names]
    data = pkcs12.serialize_key_and_certificates(b"me", own, leaf, chain, BestAvailableEncryption(b"pw"))
    found = stores._certificates(data, "PKCS12", "pw", "key", "password")
    subjects = {x509.load_der_x509_certificate(der).subject for der in found}
    assert subjects == {_named(name) for name in trusted}

"""Every way into a cluster that Kafka's clients have, and every way of being turned away, with the words for it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from heliograph.embedded import Kafka, running
from heliograph.embedded.certificates import Authority
from heliograph.errors import ConnectionLost, HeliographError, LoginFailed, Unreachable, Untrusted, WireError
from heliograph.types import Cluster
from heliograph.wire import Client, Connection, bootstrap_addresses, build, link
from heliograph.wire.security import security_of

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Kafka, Kafka]]:
    guarded = Kafka("guarded", security=PROTOCOLS, config={"connections.max.reauth.ms": "60000"})
    mutual = Kafka("mutual", security=("SSL",), mutual_tls=True)
    with running(guarded, mutual):
        yield guarded, mutual


@pytest.fixture(scope="module")
def guarded(clusters: tuple[Kafka, Kafka]) -> Kafka:
    return clusters[0]


@pytest.fixture(scope="module")
def mutual(clusters: tuple[Kafka, Kafka]) -> Kafka:
    return clusters[1]


def changed(cluster: Cluster, **properties: str) -> Cluster:
    """With some properties replaced; '_' stands for '.', and an empty value removes."""
    named = {key.replace("_", "."): value for key, value in properties.items()}
    kept = {key: value for key, value in {**cluster.properties, **named}.items() if value}
    return Cluster(cluster.alias, kept)


def connect(cluster: Cluster) -> Connection:
    return Connection.open(bootstrap_addresses(cluster)[0], cluster)


def failure(cluster: Cluster, kind: type[WireError]) -> str:
    with pytest.raises(kind) as caught:
        connect(cluster).close()
    print(caught.value)  # the words are part of what is tested: pytest -s shows them
    return str(caught.value)


def works(cluster: Cluster, cluster_id: str) -> None:
    connection = connect(cluster)
    answer = connection.call(build("metadata", connection.version("metadata"), topics=[]))
    connection.close()
    assert answer.cluster_id == cluster_id


@pytest.mark.parametrize("store", ["PEM", "PKCS12", "JKS"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_without_a_login(guarded: Kafka, protocol: str, store: str) -> None:
    works(guarded.cluster(security=protocol, store=store), guarded.cluster_id)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_every_mechanism(guarded: Kafka, protocol: str, mechanism: str) -> None:
    works(guarded.cluster(security=protocol, user="alice", mechanism=mechanism), guarded.cluster_id)


def test_a_token_is_not_from_the_brokers_future(guarded: Kafka) -> None:
    """Not by part of a millisecond either: three in ten were, of those made anew on a quick connection."""
    cluster = guarded.cluster(security="SASL_PLAINTEXT", user="alice", mechanism="OAUTHBEARER")
    for number in range(50):
        connect(replace(cluster, alias=f"anew{number}")).close()


def test_a_protocol_in_small_letters_and_librdkafka_style_credentials(guarded: Kafka) -> None:
    cluster = guarded.cluster(security="SASL_PLAINTEXT", mechanism="PLAIN")
    cluster = changed(cluster, security_protocol="sasl_plaintext", sasl_jaas_config="", sasl_username="alice")
    works(changed(cluster, sasl_password="alice-secret"), guarded.cluster_id)


def test_the_end_of_a_session_is_known(guarded: Kafka) -> None:
    connection = connect(guarded.cluster(security="SASL_PLAINTEXT"))
    assert connection.expires_at is not None
    assert not connection.is_expiring
    connection.close()
    plain = connect(guarded.cluster(security="PLAINTEXT"))
    assert plain.expires_at is None
    plain.close()


@pytest.mark.parametrize("store", ["PEM", "PKCS12", "JKS"])
def test_mutual_tls(mutual: Kafka, store: str) -> None:
    works(mutual.cluster(user="alice", store=store), mutual.cluster_id)


def test_mutual_tls_with_everything_inline(mutual: Kafka) -> None:
    cluster = mutual.cluster(user="alice")
    properties = dict(cluster.properties)
    with open(properties.pop("ssl.keystore.location"), encoding="ascii") as file:
        identity = file.read()
    with open(properties.pop("ssl.truststore.location"), encoding="ascii") as file:
        properties["ssl.truststore.certificates"] = file.read().replace("\n", " ")
    key, _, chain = identity.partition("-----BEGIN CERTIFICATE-----")
    properties["ssl.keystore.key"] = key.replace("\n", " ")
    properties["ssl.keystore.certificate.chain"] = f"-----BEGIN CERTIFICATE-----{chain}"
    works(Cluster("inline", properties), mutual.cluster_id)


def test_no_client_certificate(mutual: Kafka) -> None:
    cluster = changed(mutual.cluster(), ssl_keystore_location="", ssl_keystore_type="")
    message = failure(cluster, Untrusted)
    assert "mutual.ssl.keystore.location" in message


def test_a_client_certificate_of_another_authority(mutual: Kafka, guarded: Kafka) -> None:
    stranger = Authority(guarded.brokers[0].folder / "stranger", "stranger").issue("alice")
    cluster = changed(mutual.cluster(), ssl_keystore_location=str(stranger.keystore_pem))
    assert "refused" in failure(cluster, Untrusted)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_password(guarded: Kafka, mechanism: str) -> None:
    cluster = guarded.cluster(security="SASL_SSL", user="alice", password="not-it", mechanism=mechanism)
    message = failure(cluster, LoginFailed)
    assert "'alice'" in message
    assert mechanism in message
    assert "guarded.sasl.jaas.config" in message
    assert "not-it" not in message


def test_a_token_the_broker_does_not_take(guarded: Kafka) -> None:
    login = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="-5000";'
    )
    cluster = guarded.cluster(security="SASL_PLAINTEXT", mechanism="OAUTHBEARER")
    assert "OAUTHBEARER" in failure(changed(cluster, sasl_jaas_config=login), LoginFailed)


def test_a_mechanism_the_broker_does_not_offer(guarded: Kafka) -> None:
    internal = guarded.brokers[0].ports["INTERNAL"]
    cluster = changed(guarded.cluster(security="SASL_PLAINTEXT"), bootstrap_servers=f"127.0.0.1:{internal}")
    message = failure(cluster, LoginFailed)
    assert "SCRAM-SHA-512" in message
    assert "one of PLAIN" in message


def test_a_login_on_a_listener_without(guarded: Kafka) -> None:
    cluster = changed(guarded.cluster(security="SASL_PLAINTEXT"), bootstrap_servers=guarded.bootstrap_of("PLAINTEXT"))
    assert "does not ask for SASL" in failure(cluster, LoginFailed)


def test_no_login_on_a_listener_with(guarded: Kafka) -> None:
    cluster = Cluster("guarded", {"bootstrap.servers": guarded.bootstrap_of("SASL_PLAINTEXT")})
    connection = connect(cluster)  # such listeners answer ApiVersions to anybody
    with pytest.raises(ConnectionLost) as caught:
        connection.call(build("metadata", connection.version("metadata"), topics=[]))
    assert "may want SASL" in str(caught.value)


def test_an_untrusted_certificate(guarded: Kafka, mutual: Kafka) -> None:
    other = mutual.cluster().properties["ssl.truststore.location"]
    message = failure(changed(guarded.cluster(security="SSL"), ssl_truststore_location=other), Untrusted)
    assert "guarded.ssl.truststore.location" in message


def test_the_systems_authorities_do_not_know_ours(guarded: Kafka) -> None:
    cluster = changed(guarded.cluster(security="SSL"), ssl_truststore_location="", ssl_truststore_type="")
    assert "guarded.ssl.truststore.location" in failure(cluster, Untrusted)


def test_a_certificate_for_another_host(guarded: Kafka) -> None:
    """The broker's certificate is for localhost and 127.0.0.1: connect there, and ask for another name."""
    cluster = guarded.cluster(security="SSL")
    address = bootstrap_addresses(cluster)[0]
    other = link.Address("other.example", address.port)

    def handshake(properties: Cluster) -> socket.socket:
        tls = security_of(properties).tls
        assert tls is not None
        raw = socket.create_connection(address, timeout=10)
        return link.secure(raw, other, "guarded", tls, time.monotonic() + 10)

    with pytest.raises(Untrusted) as caught:
        handshake(cluster)
    assert "guarded.ssl.endpoint.identification.algorithm" in str(caught.value)
    unchecked = Cluster("guarded", {**cluster.properties, "ssl.endpoint.identification.algorithm": ""})
    handshake(unchecked).close()


def test_plaintext_on_a_tls_port(guarded: Kafka) -> None:
    cluster = Cluster("guarded", {"bootstrap.servers": guarded.bootstrap_of("SSL")})
    with pytest.raises(HeliographError) as caught:
        connect(cluster)
    assert "security.protocol" in str(caught.value)
    assert "TLS" in str(caught.value)


def test_tls_on_a_plaintext_port(guarded: Kafka) -> None:
    cluster = changed(guarded.cluster(security="SSL"), bootstrap_servers=guarded.bootstrap_of("PLAINTEXT"))
    message = failure(cluster, Unreachable)
    assert "plaintext" in message
    assert "guarded.security.protocol" in message


def test_nobody_there_names_every_server() -> None:
    with socket.socket() as one, socket.socket() as two:  # bound and not listening: refused for sure
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        ports = [s.getsockname()[1] for s in (one, two)]
        servers = f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]},no-such-host.invalid:9092"
        lost = Cluster("lost", {"bootstrap.servers": servers})
        with Client(lost, timeout_s=1) as client, pytest.raises(Unreachable) as caught:
            client.cluster_id()
    message = str(caught.value)
    assert all(f"127.0.0.1:{port}: refused" in message for port in ports)
    assert "no-such-host.invalid:9092: the host name does not resolve" in message
    assert "lost.bootstrap.servers" in message


def test_a_client_by_sasl_ssl_does_not_wait_for_a_wrong_password(guarded: Kafka) -> None:
    refused = guarded.cluster(security="SASL_SSL", password="wrong")
    with Client(refused, timeout_s=60) as client, pytest.raises(LoginFailed):
        client.cluster_id()
    with Client(guarded.cluster(security="SASL_SSL"), timeout_s=60) as client:
        assert client.cluster_id() == guarded.cluster_id

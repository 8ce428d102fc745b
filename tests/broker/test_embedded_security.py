"""Logins, certificates and ACLs of the embedded clusters, as confluent-kafka and Kafka's own Java tools meet them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from heliograph.embedded import QUICK_JVM, QUICK_MM2_JVM, Kafka, MirrorMaker, archive, mm2_properties
from heliograph.embedded.broker import java_command, write_properties
from heliograph.embedded.jars import fetch_jars
from heliograph.embedded.listeners import MECHANISMS
from heliograph.errors import EmbeddedError
from tests.kit import Record, contents, create_topic, end_offsets, produce, read_all, wait_until


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    """Every protocol but PLAINTEXT, client certificates, ACLs."""
    with Kafka("guarded", security=("SASL_SSL", "SASL_PLAINTEXT", "SSL"), acls=True, mutual_tls=True) as kafka:
        yield kafka


def topics(client: dict[str, str]) -> set[str]:
    return set(AdminClient({**client, "log_level": 0}).list_topics(timeout=5).topics)


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_logs_in(guarded: Kafka, protocol: str, mechanism: str, topic_name: str) -> None:
    client = guarded.confluent(security=protocol, mechanism=mechanism)
    create_topic(client, topic_name)
    assert topic_name in topics(client)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_does_not(guarded: Kafka, mechanism: str) -> None:
    reasons: list[str] = []
    client = guarded.confluent(mechanism=mechanism, password="wrong")
    admin = AdminClient({**client, "log_level": 0, "error_cb": lambda error: reasons.append(error.name())})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    wait_until(lambda: admin.poll(0.1) and "_AUTHENTICATION" in reasons, what="the reason")


def test_acls_deny_what_was_not_allowed_and_allow_what_was(guarded: Kafka, topic_name: str) -> None:
    create_topic(guarded.confluent(), topic_name)
    alice = guarded.confluent(user="alice")
    assert topic_name not in topics(alice)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        produce(alice, topic_name, [Record(None, b"no")], config={"enable.idempotence": False})
    binding = AclBinding(
        ResourceType.TOPIC,
        topic_name,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(guarded.confluent())
    for future in admin.create_acls([binding]).values():
        future.result(10)
    wait_until(lambda: topic_name in topics(alice), what="alice's permission")
    produce(alice, topic_name, [Record(None, b"yes")])
    assert [record.value for record in read_all(guarded.confluent(), topic_name)[0]] == [b"yes"]


def test_a_client_certificate_is_asked_for_and_names_the_user(guarded: Kafka, topic_name: str) -> None:
    admin = guarded.confluent(security="SSL")
    create_topic(admin, topic_name)  # CN=admin is the super user admin
    assert topic_name not in topics(guarded.confluent(security="SSL", user="alice"))
    nobody = {key: value for key, value in admin.items() if key not in ("ssl.certificate.location", "ssl.key.location")}
    with pytest.raises(KafkaException):
        topics(nobody)


@pytest.mark.parametrize("store", ["PEM", "PKCS12", "JKS"])
def test_java_clients_can_use_the_stores(guarded: Kafka, store: str, tmp_path: Path) -> None:
    cluster = guarded.cluster(security="SSL", store=store)
    config = tmp_path / "client.properties"
    write_properties(config, {k: v for k, v in cluster.properties.items() if k != "bootstrap.servers"})
    tool = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", config)
    jars = fetch_jars()
    command = java_command(jars, (*QUICK_JVM, *archive.options(jars)), tmp_path / "log4j2.properties", tool, *where)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert f"{cluster.bootstrap} (id: 1" in done.stdout, done.stdout + done.stderr


def test_mirrormaker_mirrors_a_thousand_records_over_sasl_ssl(primary: Kafka, guarded: Kafka, topic_name: str) -> None:
    create_topic(primary.confluent(), topic_name, 2)
    sent = [Record(b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),), partition=n % 2) for n in range(1000)]
    produce(primary.confluent(), topic_name, sent)
    target = guarded.cluster(store="PKCS12")
    copy = f"primary.{topic_name}"
    with MirrorMaker(mm2_properties(primary.cluster(), target, topics=topic_name), jvm=QUICK_MM2_JVM) as mm2:

        def mirrored() -> bool:
            mm2.require_running()
            return copy in topics(guarded.confluent()) and sum(end_offsets(guarded.confluent(), copy).values()) == 1000

        wait_until(mirrored, what="1000 records mirrored", timeout_seconds=90)
        assert mm2.stop()
        assert not mm2.running
        log, folder = mm2.log_path.read_text(), mm2.log_path.parent
        assert "Kafka version: 4.3.1" in log
    assert not folder.exists()
    assert contents(read_all(guarded.confluent(), copy)) == contents(read_all(primary.confluent(), topic_name))


def test_a_listener_that_is_not_there_is_named(guarded: Kafka) -> None:
    with pytest.raises(EmbeddedError, match="no PLAINTEXT listener"):
        guarded.cluster(security="PLAINTEXT")

"""JKS stores: made by Java's keytool, read here; damaged ones in every way, with the right words."""

from __future__ import annotations

import hashlib
import ssl
import struct
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_private_key

from heliograph.embedded.java import find_java
from heliograph.errors import ConfigError
from heliograph.types import Cluster
from heliograph.wire import jks
from heliograph.wire.security import Security, security_of

PASSWORD, KEY_PASSWORD = "störe-pass", "key-pass-2"


def keytool(*arguments: str) -> None:
    tool = find_java().keytool
    assert tool is not None
    # Java takes arguments in the locale's encoding, and this test's password has a letter beyond ASCII.
    flags = ["-J-Dsun.jnu.encoding=UTF-8", "-J-Dfile.encoding=UTF-8"]
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([str(tool), *flags, *arguments], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`keys.jks` has an RSA and an EC key, each under its own password; `trust.jks` their two certificates."""
    folder = tmp_path_factory.mktemp("jks")
    keys, trust = str(folder / "keys.jks"), str(folder / "trust.jks")
    store = ["-storetype", "JKS", "-storepass", PASSWORD]
    for alias, algorithm in (("rsa", "RSA"), ("ec", "EC")):
        name = ["-alias", alias, "-dname", f"CN={alias}", "-validity", "30", "-keyalg", algorithm, "-ext", "bc:c"]
        keytool("-genkeypair", "-keystore", keys, *store, "-keypass", KEY_PASSWORD, *name)
        certificate = str(folder / f"{alias}.cer")
        keytool("-exportcert", "-keystore", keys, *store, "-alias", alias, "-file", certificate)
        keytool("-importcert", "-noprompt", "-keystore", trust, *store, "-alias", alias, "-file", certificate)
    return folder


def security(**properties: str) -> Security:
    given = {key.replace("_", "."): value for key, value in properties.items()}
    return security_of(Cluster("west", {"security.protocol": "SSL", **given}))


def problem(**properties: str) -> str:
    with pytest.raises(ConfigError) as caught:
        security(**properties)
    return str(caught.value)


def test_keys_open_with_their_passwords_and_fit_their_certificates(folder: Path) -> None:
    store = jks.read((folder / "keys.jks").read_bytes(), PASSWORD)
    assert {entry.alias for entry in store.keys} == {"rsa", "ec"}
    for entry in store.keys:
        private = load_der_private_key(entry.private_key(KEY_PASSWORD), None)
        certificate = x509.load_der_x509_certificate(entry.chain[0])
        spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        assert private.public_key().public_bytes(*spki) == certificate.public_key().public_bytes(*spki)
        with pytest.raises(jks.WrongPassword):
            entry.private_key(PASSWORD)


@pytest.mark.parametrize("kind", ["JKS", "", "PKCS12"])  # JKS is Kafka's default; Java takes it under PKCS12's name too
def test_a_trust_store(folder: Path, kind: str) -> None:
    more = {"ssl_truststore_type": kind} if kind else {}
    found = security(ssl_truststore_location=str(folder / "trust.jks"), ssl_truststore_password=PASSWORD, **more)
    assert found.tls
    names = {pair for ca in found.tls.context.get_ca_certs() for part in ca["subject"] for pair in part}
    assert names == {("commonName", "rsa"), ("commonName", "ec")}
    assert found.tls.context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN  # an intermediate is an anchor, as in Java


def test_a_trust_store_without_a_password_is_taken_on_trust(folder: Path) -> None:
    assert security(ssl_truststore_location=str(folder / "trust.jks")).tls


def test_a_key_store(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    location = {"ssl_keystore_location": str(folder / "keys.jks"), "ssl_keystore_password": PASSWORD}
    found = security(**location, ssl_key_password=KEY_PASSWORD)
    assert found.tls
    assert found.tls.keystore == "ssl.keystore.location"
    assert isinstance(found.tls.context, ssl.SSLContext)
    assert list(tmp_path.iterdir()) == []  # the key went through a file, which is gone
    assert "west.ssl.key.password: does not open the key" in problem(**location)
    assert "west.ssl.keystore.password: does not open the store" in problem(**location | {"ssl_keystore_password": "x"})
    trust = location | {"ssl_keystore_location": str(folder / "trust.jks")}
    assert "no private key" in problem(**trust)


def test_every_damage_is_noticed(folder: Path) -> None:
    """With the password each changed byte, and each cut, is one of the two errors and nothing else."""
    whole = (folder / "keys.jks").read_bytes()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        for data in (bytes(damaged), whole[:at]):
            with pytest.raises((jks.NotReadable, jks.WrongPassword)):
                jks.read(data, PASSWORD)


def test_a_key_in_another_protection_or_none_at_all() -> None:
    def store(protected: bytes) -> bytes:
        entry = struct.pack(">IH1sQI", 1, 1, b"a", 0, len(protected)) + protected + struct.pack(">I", 0)
        body = jks.MAGIC + struct.pack(">II", 2, 1) + entry
        return body + hashlib.sha1("pw".encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()

    for protected in (b"", b"\x30\x00", b"\x30\x02\x30\x00", b"\x30\x84\xff\xff\xff\xff", b"\x04\x00", b"\x30\x80"):
        (entry,) = jks.read(store(protected), "pw").keys
        with pytest.raises(jks.NotReadable):
            entry.private_key("pw")

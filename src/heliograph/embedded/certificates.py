"""Certificates for embedded clusters: an authority made for one cluster, server and client certificates issued by it.

Everything is written into the cluster's temporary folder and ends with it: as PEM, PKCS12, and JKS when asked.
"""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from heliograph.embedded.java import find_java
from heliograph.errors import EmbeddedError

STORE_PASSWORD = "heliograph"  # the stores live in a folder of mode 0700, and Java insists on some password
STORES = ("PEM", "PKCS12", "JKS")
VALID = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Identity:
    """One issued certificate with its key, as files."""

    name: str
    folder: Path
    key_pem: Path
    certificate_pem: Path
    keystore_pem: Path  # key and chain in one file, as Kafka's PEM key stores are

    @property
    def keystore_p12(self) -> Path:
        return self.folder / f"{self.name}.p12"

    def key_properties(self, store: str) -> dict[str, str]:
        if store == "PEM":
            return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.keystore_pem)}
        path = self.keystore_p12 if store == "PKCS12" else _as_jks(self.keystore_p12)
        return {
            "ssl.keystore.type": store,
            "ssl.keystore.location": str(path),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": STORE_PASSWORD,
        }


class Authority:
    """A certificate authority whose files live in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} embedded authority")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self._certificate = (
            self._builder(self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate_pem = folder / "ca.pem"
        self.certificate_pem.write_bytes(_pem(self._certificate))
        self._issued: dict[str, Identity] = {}

    def issue(self, name: str) -> Identity:
        """The certificate of this common name, good for a server on this machine and for a client."""
        if name not in self._issued:
            self._issued[name] = self._issue(name)
        return self._issued[name]

    def _issue(self, name: str) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            self._builder(subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
            .add_extension(both, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = _pem(certificate) + _pem(self._certificate)
        files = [self.folder / f"{name}{ending}" for ending in (".key.pem", ".pem", ".keystore.pem")]
        for path, content in zip(files, (private, chain, private + chain), strict=True):
            path.write_bytes(content)
        identity = Identity(name, self.folder, *files)
        secret = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        identity.keystore_p12.write_bytes(
            pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, [self._certificate], secret)
        )
        return identity

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks of two machines differ
            .not_valid_after(now + VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def trust_properties(self, store: str) -> dict[str, str]:
        if store not in STORES:
            raise EmbeddedError(f"unknown store type {store}", fix=f"Use {', '.join(STORES)}")
        if store == "PEM":
            return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.certificate_pem)}
        path = self._truststore_p12()
        return {
            "ssl.truststore.type": store,
            "ssl.truststore.location": str(path if store == "PKCS12" else _as_jks(path)),
            "ssl.truststore.password": STORE_PASSWORD,
        }

    def _truststore_p12(self) -> Path:
        path = self.folder / "ca.p12"
        if not path.exists():
            secret = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
            trusted = [pkcs12.PKCS12Certificate(self._certificate, b"ca")]
            path.write_bytes(pkcs12.serialize_java_truststore(trusted, secret))
        return path


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _as_jks(store: Path) -> Path:
    """A PKCS12 store as Java's old format, by Java's own keytool."""
    target = store.with_suffix(".jks")
    if target.exists():
        return target
    keytool = find_java().keytool
    if keytool is None:
        raise EmbeddedError("JKS stores are made by keytool, and this Java has none", fix="Install a JDK")
    words = ["-importkeystore", "-noprompt", "-srcstoretype", "PKCS12", "-deststoretype", "JKS"]
    paths: list[str | Path] = ["-srckeystore", store, "-srcstorepass", STORE_PASSWORD, "-destkeystore", target]
    done = subprocess.run(
        [keytool, *words, *paths, "-deststorepass", STORE_PASSWORD], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise EmbeddedError(f"keytool could not make {target}: {done.stdout}{done.stderr}", fix="See its message")
    return target

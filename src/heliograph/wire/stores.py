"""Key stores and trust stores as Kafka's Java clients name them, into Python's ssl contexts.

Answers for PEM (files and inline), PKCS12 and JKS, passwords, and a word for what is wrong with a store. Python's ssl
reads private keys from files only: a key goes through a private file under a one-off password, removed at once. The
layout of JKS is `jks`'s affair.
"""

from __future__ import annotations

import re
import secrets
import ssl
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_der_private_key,
    pkcs12,
)

from heliograph.wire import jks
from heliograph.wire.link import Tls

_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_PEM_LINE = re.compile(r"-----(BEGIN|END) ([A-Z0-9 ]+)-----")
# What cryptography raises for a store, a key or a certificate that it cannot read; TypeError for a key that has yet
# another password around it.
UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)
_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class StoreProblem(Exception):
    """`key`: the property at fault."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


def tls_of(properties: Mapping[str, str]) -> Tls:
    """An ssl context by the `ssl.*` properties; StoreProblem for the first that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Java takes every certificate of a trust store for an anchor, an intermediate one too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _limit_versions(context, properties)
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip()
    if algorithm.lower() not in ("", "https"):
        raise StoreProblem("ssl.endpoint.identification.algorithm", f"is {algorithm!r}, must be https or nothing")
    context.check_hostname = bool(algorithm)
    return Tls(context, _trust(context, properties), _identify(context, properties))


def server_tls_of(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The same for who is connected to: our own certificate is needed, others' if `ssl.client.auth` says so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit_versions(context, properties)
    if not _identify(context, properties):
        raise StoreProblem("ssl.keystore.location", "is missing: a listener on https needs a certificate and its key")
    wanted = properties.get("ssl.client.auth", "").strip().lower() or "none"
    if wanted not in ("required", "requested", "none"):  # a typing error must not let everybody in
        raise StoreProblem("ssl.client.auth", f"is {wanted!r}, must be required, requested or none")
    if wanted != "none":
        _trust(context, properties)
        context.verify_mode = ssl.CERT_REQUIRED if wanted == "required" else ssl.CERT_OPTIONAL
    return context


def _limit_versions(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    names = [name.strip() for name in properties.get("ssl.enabled.protocols", "").split(",") if name.strip()]
    unknown = [name for name in names if name not in _TLS_VERSIONS]
    if unknown:
        raise StoreProblem("ssl.enabled.protocols", f"has {unknown[0]!r}; TLSv1.2 and TLSv1.3 are spoken")
    context.minimum_version = min((_TLS_VERSIONS[n] for n in names), default=ssl.TLSVersion.TLSv1_2)
    if names:
        context.maximum_version = max(_TLS_VERSIONS[n] for n in names)


# -- whom we trust ---------------------------------------------------------------------------------------------------


def _trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> str:
    """Returns the property that decided."""
    inline = properties.get("ssl.truststore.certificates")
    if inline:
        key = "ssl.truststore.certificates"
        _guard(key, lambda: context.load_verify_locations(cadata=_tidy(inline, key)))
        return key
    key = "ssl.truststore.location"
    if not properties.get(key):
        context.load_default_certs()
        return key
    data, kind = _read(key, properties[key], properties.get("ssl.truststore.type", ""))
    if kind == "PEM":
        # Only the blocks: files of certificates have comments in every language, and ssl takes ASCII alone.
        _guard(key, lambda: context.load_verify_locations(cadata=_tidy(data.decode("latin-1"), key)))
        return key
    found = _certificates(data, kind, properties.get("ssl.truststore.password"), key, "ssl.truststore.password")
    if not found:
        raise StoreProblem(key, "holds no certificate")
    _guard(key, lambda: context.load_verify_locations(cadata=b"".join(found)))
    return key


def _certificates(data: bytes, kind: str, password: str | None, key: str, password_key: str) -> list[bytes]:
    """What a trust store makes trusted, as DER: its trusted entries, and the first of each key entry's chain, as Java
    has it."""
    if kind == "JKS":
        store = _open_jks(data, password, key, password_key)
        return [*store.certificates, *(entry.chain[0] for entry in store.keys if entry.chain)]
    opened = _open_pkcs12(data, password, key, password_key)
    found = [entry for entry in opened.additional_certs if opened.key is None or _is_trusted_entry(entry)]
    if opened.cert is not None:
        found.append(opened.cert)
    return [entry.certificate.public_bytes(Encoding.DER) for entry in found]


def _is_trusted_entry(entry: pkcs12.PKCS12Certificate) -> bool:
    """Of a store with a key: whether this is an entry by itself, and not of the key's chain, whose issuers Java does
    not trust. Java tells them apart by an attribute that cryptography does not show, and by their names: an entry's is
    its alias; one in a chain is named by its subject (keytool), or not at all (openssl)."""
    return bool(entry.friendly_name) and b"=" not in (entry.friendly_name or b"")


# -- who we are ------------------------------------------------------------------------------------------------------


def _identify(context: ssl.SSLContext, properties: Mapping[str, str]) -> str:
    """Loads the client's certificate, if any. Returns the property that named it, or nothing."""
    password = properties.get("ssl.key.password") or None
    key_pem, chain = properties.get("ssl.keystore.key"), properties.get("ssl.keystore.certificate.chain")
    if key_pem or chain:
        if not key_pem or not chain:
            missing = "ssl.keystore.certificate.chain" if key_pem else "ssl.keystore.key"
            raise StoreProblem(missing, "must be set too: an inline PEM identity is a key and a certificate chain")
        text = _tidy(key_pem, "ssl.keystore.key") + _tidy(chain, "ssl.keystore.certificate.chain")
        _load(context, text.encode("ascii", "replace"), password, "ssl.keystore.key")
        return "ssl.keystore.key"
    key = "ssl.keystore.location"
    if not properties.get(key):
        return ""
    data, kind = _read(key, properties[key], properties.get("ssl.keystore.type", ""))
    if kind == "PEM":
        _load(context, data, password, key)
        return key
    store_password = properties.get("ssl.keystore.password") or password
    once = secrets.token_hex(16)
    if kind == "JKS":
        pem = _jks_identity(data, store_password, password or store_password, key, once)
    else:
        pem = _pkcs12_identity(data, store_password, key, once)
    _load(context, pem, once, key)
    return key


def _pkcs12_identity(data: bytes, password: str | None, key: str, once: str) -> bytes:
    store = _open_pkcs12(data, password, key, "ssl.keystore.password")
    if store.key is None or store.cert is None:
        raise StoreProblem(key, "holds no private key with a certificate")
    try:
        return _pem(store.key, [e.certificate for e in (store.cert, *store.additional_certs)], once)
    except UNREADABLE as problem:
        raise StoreProblem(key, f"holds a key that cannot be read: {problem}") from problem


def _jks_identity(data: bytes, password: str | None, key_password: str | None, key: str, once: str) -> bytes:
    """The first key of the store. Without a password of its own a key has the store's."""
    entry = next((e for e in _open_jks(data, password, key, "ssl.keystore.password").keys if e.chain), None)
    if entry is None:
        raise StoreProblem(key, "holds no private key with a certificate")
    try:
        private = load_der_private_key(entry.private_key(key_password or ""), None)
        chain = [x509.load_der_x509_certificate(der) for der in entry.chain]
        return _pem(private, chain, once)
    except jks.WrongPassword as problem:
        raise StoreProblem("ssl.key.password", str(problem)) from problem
    except UNREADABLE as problem:
        raise StoreProblem(key, f"holds a key that cannot be read: {problem}") from problem


def _pem(private: PrivateKeyTypes, chain: Iterable[x509.Certificate], once: str) -> bytes:
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(once.encode()))
    return pem + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)


def _load(context: ssl.SSLContext, pem: bytes, password: str | None, key: str) -> None:
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="heliograph-", suffix=".pem") as file:  # mode 0600
            file.write(pem)
            file.flush()
            # Without a password OpenSSL would ask on the terminal: an empty one makes it an error instead.
            _guard(key, lambda: context.load_cert_chain(file.name, password=password or ""))
    except OSError as error:
        why = f"its key has to go through a file in {tempfile.gettempdir()}, which cannot be written: {error.strerror}"
        raise StoreProblem(key, why) from error


# -- reading ---------------------------------------------------------------------------------------------------------


def _read(key: str, path: str, kind: str) -> tuple[bytes, str]:
    """The file, and what it really is: Java too looks into a store of type JKS and finds PKCS12."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise StoreProblem(key, f"{path}: {error.strerror}") from error
    except ValueError as error:  # a NUL, or half a surrogate pair
        raise StoreProblem(key, f"{path!r} is not a path: {error}") from error
    kind = kind.strip().upper()
    if kind not in ("", "PEM", "PKCS12", "JKS"):
        raise StoreProblem(key.replace("location", "type"), f"is {kind!r}; PEM, PKCS12 and JKS are read")
    if data[:4] == _JCEKS_MAGIC:
        raise StoreProblem(
            key,
            f"{path} is a JCEKS store, which is not read: convert it with keytool -importkeystore "
            f"-srckeystore {path} -srcstoretype JCEKS -destkeystore store.p12 -deststoretype PKCS12",
        )
    found = (
        "JKS" if data[:4] == jks.MAGIC else "PEM" if b"-----BEGIN " in data else "PKCS12" if data[:1] == b"\x30" else ""
    )
    # Java takes JKS and PKCS12 each under the other's name, and PEM under no other.
    if not found or (kind == "PEM" and found != "PEM") or (kind == "PKCS12" and found == "PEM"):
        raise StoreProblem(
            key, f"{path} is not {'a PKCS12 store' if kind == 'PKCS12' else 'PEM' if kind == 'PEM' else 'a store'}"
        )
    return data, found


def _open_jks(data: bytes, password: str | None, key: str, password_key: str) -> jks.Store:
    try:
        return jks.read(data, password or None)
    except jks.WrongPassword as problem:
        raise StoreProblem(password_key, str(problem)) from problem
    except jks.NotReadable as problem:
        raise StoreProblem(key, f"is not a JKS store that can be read: {problem}") from problem


def _open_pkcs12(data: bytes, password: str | None, key: str, password_key: str) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password else None)
    except UNREADABLE as error:
        if "password" in str(error).lower() or not password:
            why = "does not open the store" if password else "is not set, and the store has one"
            raise StoreProblem(password_key, why) from error
        raise StoreProblem(key, f"is not a PKCS12 store that can be read: {error}") from error


def _tidy(text: str, key: str) -> str:
    """Inline PEM with the line breaks OpenSSL insists on: in a properties file they may have become spaces."""
    blocks = []
    for label, body in _pem_blocks(text):
        if ":" in body:  # the old encrypted form has headers of its own
            lines = body.strip()
        else:
            packed = "".join(body.split())
            lines = "\n".join(packed[at : at + 64] for at in range(0, len(packed), 64))
        blocks.append(f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
    if not blocks:
        raise StoreProblem(key, "has no PEM block (-----BEGIN …-----)")
    return "".join(blocks)


def _pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Label and body of each block, in one pass: one expression for a whole block would scan the text once for each
    BEGIN that has no END, and a connector's configuration may hold a hundred thousand of these."""
    label, begin = "", 0
    for line in _PEM_LINE.finditer(text):
        if line[1] == "BEGIN":
            label, begin = line[2], line.end()
        elif line[2] == label:
            yield label, text[begin : line.start()]
            label = ""


def _guard(key: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: a letter within a PEM block that is not ASCII
        why = error.reason if isinstance(error, ssl.SSLError) and error.reason else str(error)
        is_key = key.startswith("ssl.keystore")
        hint = (
            " (is ssl.key.password right?)"
            if is_key and ("DECRYPT" in why.upper() or "PASSWORD" in why.upper())
            else ""
        )
        raise StoreProblem(key, f"cannot be loaded: {why.lower().replace('_', ' ')}{hint}") from error

"""Key stores and trust stores as Kafka's Java clients name them, into Python's ssl contexts.

Answers for PEM (files and inline) and PKCS12, passwords, and a word for what is wrong with a store. Python's ssl reads
private keys from files only: a key goes through a private file under a one-off password, removed at once.
"""

from __future__ import annotations

import os
import re
import secrets
import ssl
import tempfile
from collections.abc import Callable, Mapping

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    pkcs12,
)

from heliograph.wire.link import Tls

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class StoreProblem(Exception):
    """`key`: the property at fault."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


def tls_of(properties: Mapping[str, str]) -> Tls:
    """An ssl context by the `ssl.*` properties; StoreProblem for the first that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit_versions(context, properties)
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip()
    if algorithm.lower() not in ("", "https"):
        raise StoreProblem("ssl.endpoint.identification.algorithm", f"is {algorithm!r}, must be https or nothing")
    context.check_hostname = bool(algorithm)
    return Tls(context, _trust(context, properties), _identify(context, properties))


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
        _guard(key, lambda: context.load_verify_locations(cadata=data.decode("utf-8", "replace")))
        return key
    store = _open_pkcs12(data, properties.get("ssl.truststore.password"), key, "ssl.truststore.password")
    found = [entry.certificate for entry in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise StoreProblem(key, "holds no certificate")
    _guard(key, lambda: context.load_verify_locations(cadata=b"".join(c.public_bytes(Encoding.DER) for c in found)))
    return key


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
        _load(context, text.encode(), password, "ssl.keystore.key")
        return "ssl.keystore.key"
    key = "ssl.keystore.location"
    if not properties.get(key):
        return ""
    data, kind = _read(key, properties[key], properties.get("ssl.keystore.type", ""))
    if kind == "PEM":
        _load(context, data, password, key)
        return key
    store_password = properties.get("ssl.keystore.password") or password
    store = _open_pkcs12(data, store_password, key, "ssl.keystore.password")
    if store.key is None or store.cert is None:
        raise StoreProblem(key, "holds no private key with a certificate")
    once = secrets.token_hex(16)
    pem = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(once.encode()))
    pem += b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in (store.cert, *store.additional_certs))
    _load(context, pem, once, key)
    return key


def _load(context: ssl.SSLContext, pem: bytes, password: str | None, key: str) -> None:
    handle, path = tempfile.mkstemp(prefix="heliograph-", suffix=".pem")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
        # Without a password OpenSSL would ask on the terminal: an empty one makes it an error instead.
        _guard(key, lambda: context.load_cert_chain(path, password=password or ""))
    finally:
        os.unlink(path)


# -- reading ---------------------------------------------------------------------------------------------------------


def _read(key: str, path: str, kind: str) -> tuple[bytes, str]:
    """The file, and what it really is: Java too looks into a store of type JKS and finds PKCS12."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise StoreProblem(key, f"{path}: {error.strerror}") from error
    kind = kind.strip().upper()
    if kind not in ("", "PEM", "PKCS12", "JKS"):
        raise StoreProblem(key.replace("location", "type"), f"is {kind!r}; PEM and PKCS12 are read")
    if data[:4] == _JKS_MAGIC:
        raise StoreProblem(
            key,
            f"{path} is a JKS store, which is not read yet: convert it with keytool -importkeystore "
            f"-srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12",
        )
    found = "PEM" if b"-----BEGIN " in data else "PKCS12" if data[:1] == b"\x30" else ""
    if not found or (kind in ("PEM", "PKCS12") and kind != found):
        raise StoreProblem(
            key, f"{path} is not {'a PKCS12 store' if kind == 'PKCS12' else 'PEM' if kind else 'a store'}"
        )
    return data, found


def _open_pkcs12(data: bytes, password: str | None, key: str, password_key: str) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError as error:
        if "password" in str(error).lower() or not password:
            why = "does not open the store" if password else "is not set, and the store has one"
            raise StoreProblem(password_key, why) from error
        raise StoreProblem(key, f"is not a PKCS12 store that can be read: {error}") from error


def _tidy(text: str, key: str) -> str:
    """Inline PEM with the line breaks OpenSSL insists on: in a properties file they may have become spaces."""
    blocks = []
    for label, body in _PEM_BLOCK.findall(text):
        if ":" in body:  # the old encrypted form has headers of its own
            lines = body.strip()
        else:
            packed = "".join(body.split())
            lines = "\n".join(packed[at : at + 64] for at in range(0, len(packed), 64))
        blocks.append(f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
    if not blocks:
        raise StoreProblem(key, "has no PEM block (-----BEGIN …-----)")
    return "".join(blocks)


def _guard(key: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (ssl.SSLError, ValueError) as error:
        why = error.reason if isinstance(error, ssl.SSLError) and error.reason else str(error)
        is_key = key.startswith("ssl.keystore")
        hint = (
            " (is ssl.key.password right?)"
            if is_key and ("DECRYPT" in why.upper() or "PASSWORD" in why.upper())
            else ""
        )
        raise StoreProblem(key, f"cannot be loaded: {why.lower().replace('_', ' ')}{hint}") from error

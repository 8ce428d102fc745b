"""Java's own key store format, JKS, read without Java.

Answers for the file's layout, its integrity check and Sun's protection of private keys. Pure: bytes and passwords in,
certificates and keys as DER out. Which entry is used for what is `stores`'s affair.

The layout, all big-endian: magic, version (1 or 2), count; each entry a tag (1 a key with its chain, 2 a trusted
certificate), alias, time, and its bytes; at the end a SHA-1 over password (UTF-16), "Mighty Aphrodite" and all before
it. A key is a PKCS#8 EncryptedPrivateKeyInfo of 20 bytes of salt, the key XORed with a chain of SHA-1s, 20 of check.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

MAGIC = b"\xfe\xed\xfe\xed"
_KEY, _CERTIFICATE = 1, 2
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_SUN_PROTECTION = bytes.fromhex("060a2b060104012a02110101")  # the OID 1.3.6.1.4.1.42.2.17.1.1, as DER


class NotReadable(ValueError):
    """The bytes are not a JKS store that can be read."""


class WrongPassword(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class KeyEntry:
    alias: str
    protected: bytes
    chain: tuple[bytes, ...]  # DER, the key's own certificate first

    def private_key(self, password: str) -> bytes:
        """The key as PKCS#8 DER. Raises WrongPassword."""
        blob = _octets(self.protected)
        salt, cipher, check = blob[:_DIGEST_BYTES], blob[_DIGEST_BYTES:-_DIGEST_BYTES], blob[-_DIGEST_BYTES:]
        secret = _secret(password)
        plain = bytes(a ^ b for a, b in zip(cipher, _keystream(secret, salt, len(cipher)), strict=True))
        if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):
            raise WrongPassword(f"does not open the key {self.alias!r}")
        return plain


@dataclass(frozen=True, slots=True)
class Store:
    keys: tuple[KeyEntry, ...]
    certificates: tuple[bytes, ...]  # trusted ones, DER


def read(data: bytes, password: str | None) -> Store:
    """Raises NotReadable or WrongPassword. Without a password the store is taken on trust, as Java takes it."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    try:
        store = _Cursor(body).store()
    except (struct.error, UnicodeDecodeError) as problem:
        raise NotReadable("it ends in mid-entry or is damaged") from problem
    if password is not None:
        expected = hashlib.sha1(_secret(password) + _WHITENER + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise WrongPassword("does not open the store")
    return store


def _secret(password: str) -> bytes:
    # Half a surrogate pair, which a connector's JSON may hold, is a character to Java too.
    return password.encode("utf-16-be", "surrogatepass")


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def store(self) -> Store:
        magic, version, count = self._take(4), self._number(), self._number()
        if magic != MAGIC or version not in (1, 2):
            raise NotReadable(f"magic {magic.hex()}, version {version}")
        found_keys: list[KeyEntry] = []
        certificates: list[bytes] = []
        for _ in range(count):
            tag, alias = self._number(), self._text()
            self._take(8)  # when it was made
            if tag == _KEY:
                protected = self._take(self._number())
                chain = tuple(self._certificate(version) for _ in range(self._number()))
                found_keys.append(KeyEntry(alias, protected, chain))
            elif tag == _CERTIFICATE:
                certificates.append(self._certificate(version))
            else:
                raise NotReadable(f"an entry of kind {tag}")
        return Store(tuple(found_keys), tuple(certificates))

    def _certificate(self, version: int) -> bytes:
        kind = self._text() if version == 2 else "X.509"
        if kind != "X.509":
            raise NotReadable(f"a certificate of type {kind!r}")
        return self._take(self._number())

    def _text(self) -> str:
        (length,) = struct.unpack(">H", self._take(2))
        # Java's own UTF-8 differs only in NUL and in characters beyond the BMP, which an alias may lose.
        return self._take(length).decode("utf-8", "replace")

    def _number(self) -> int:
        (value,) = struct.unpack(">I", self._take(4))
        return int(value)

    def _take(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            raise struct.error("past the end")
        self._at += length
        return self._data[self._at - length : self._at]


def _octets(info: bytes) -> bytes:
    """The encrypted bytes of an EncryptedPrivateKeyInfo: SEQUENCE { SEQUENCE { OID, NULL }, OCTET STRING }."""
    content, _ = _der(info, 0x30)
    algorithm, rest = _der(content, 0x30)
    if not algorithm.startswith(_SUN_PROTECTION):
        raise NotReadable("a key that is not protected in Sun's way")
    octets, _ = _der(rest, 0x04)
    if len(octets) < 2 * _DIGEST_BYTES:
        raise NotReadable("a key of no length")
    return octets


def _der(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """What one DER element holds, and what follows it."""
    if len(data) < 2 or data[0] != tag:
        raise NotReadable("a key that is no DER")
    length, at = data[1], 2
    if length & 0x80:
        at += length & 0x7F
        length = int.from_bytes(data[2:at], "big")
    if at + length > len(data):
        raise NotReadable("a key that is cut off")
    return data[at : at + length], data[at + length :]


def _keystream(secret: bytes, salt: bytes, length: int) -> bytes:
    stream, digest = bytearray(), salt
    while len(stream) < length:
        digest = hashlib.sha1(secret + digest).digest()
        stream += digest
    return bytes(stream[:length])

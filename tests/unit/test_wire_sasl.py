"""SASL without a broker: the vectors of the RFCs, and a broker that cheats."""

from __future__ import annotations

import pytest

from heliograph.errors import LoginFailed
from heliograph.wire.sasl import Exchange, Login, Refused, oauthbearer, plain, scram

RFC_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = f"r={RFC_NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc7677() -> Exchange:
    return scram(Login("c", "SCRAM-SHA-256", "user", "pencil"), nonce=RFC_NONCE)


def finish(exchange: Exchange, last: bytes) -> None:
    with pytest.raises(StopIteration):
        exchange.send(last)


def test_the_exchange_of_rfc_7677() -> None:
    exchange = rfc7677()
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(SERVER_FIRST.encode()) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    finish(exchange, SERVER_FINAL)


@pytest.mark.parametrize(
    "final", [b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G8=", b"v=", b"", b"v=!!!", b"e=invalid-proof"]
)
def test_a_server_that_does_not_know_the_password(final: bytes) -> None:
    exchange = rfc7677()
    next(exchange)
    exchange.send(SERVER_FIRST.encode())
    with pytest.raises(Refused):
        exchange.send(final)


@pytest.mark.parametrize(
    "first",
    [
        "r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={RFC_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  # nothing added
        f"r={RFC_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",  # a cheap guess
        f"r={RFC_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000",  # an hour of our time
        f"r={RFC_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=abc",
        f"r={RFC_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=40²6",  # a digit to str.isdigit(), and none to int()
        f"r={RFC_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={'4' * 5000}",  # more digits than int() reads
        f"r={RFC_NONCE}x,s=,i=4096",
        f"m=ext,r={RFC_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "e=unknown-user",
        "",
    ],
)
def test_a_first_message_to_refuse(first: str) -> None:
    exchange = rfc7677()
    next(exchange)
    with pytest.raises(Refused):
        exchange.send(first.encode())


def test_scram_names_are_escaped_and_delegation_tokens_say_so() -> None:
    login = Login("c", "SCRAM-SHA-512", "a=b,c", "p", extensions={"tokenauth": "true"})
    assert next(scram(login, nonce="N")) == b"n,,n=a=3Db=2Cc,r=N,tokenauth=true"


def test_nonces_differ() -> None:
    login = Login("c", "SCRAM-SHA-512", "u", "p")
    assert next(scram(login)) != next(scram(login))


def test_plain() -> None:
    exchange = plain(Login("c", "PLAIN", "jürgen", "pass word"))
    assert next(exchange) == b"\0j\xc3\xbcrgen\0pass word"
    finish(exchange, b"")


def test_a_bearer_token_with_extensions_and_its_refusal() -> None:
    login = Login("c", "OAUTHBEARER", "u", token=lambda: "abc", extensions={"tenant": "t1"})
    exchange = oauthbearer(login)
    assert next(exchange) == b"n,,\x01auth=Bearer abc\x01tenant=t1\x01\x01"
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(Refused, match="invalid_token"):
        exchange.send(b"")


def test_a_login_does_not_print_its_password() -> None:
    assert "hunter2" not in repr(Login("c", "PLAIN", "u", "hunter2"))
    assert LoginFailed.retriable is False

"""SASL DIGEST-MD5: the example of RFC 2831, and what is no such exchange."""

from __future__ import annotations

import pytest

from bkctl.net.digest_md5 import DigestMd5, DigestMd5Exchange, SaslError, directives

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
CREDENTIALS = DigestMd5("chris", "secret", "imap/elwood.innosoft.com", lambda: "OA6MHXh6VqTrRk")


def begun() -> DigestMd5Exchange:
    exchange = CREDENTIALS.exchange("bookie")
    assert exchange.first() == b""
    return exchange


def test_the_example_of_the_rfc() -> None:
    exchange = begun()
    response = exchange.next(CHALLENGE)
    assert response is not None
    said = directives(response)
    assert said == {
        "charset": "utf-8",
        "username": "chris",
        "realm": "elwood.innosoft.com",
        "nonce": "OA6MG9tEQGm2hh",
        "nc": "00000001",
        "cnonce": "OA6MHXh6VqTrRk",
        "digest-uri": "imap/elwood.innosoft.com",
        "response": "d388dad90d4bbd760a152321f2143af7",
        "qop": "auth",
    }
    assert exchange.next(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None


@pytest.mark.parametrize("proof", [b"rspauth=" + b"0" * 32, b"", b"nonce=1"])
def test_a_bookie_that_does_not_know_the_password_is_refused(proof: bytes) -> None:
    exchange = begun()
    exchange.next(CHALLENGE)
    with pytest.raises(SaslError, match="does not prove"):
        exchange.next(proof)


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (b"", "no nonce"),
        (b'realm="x"', "no nonce"),
        (b'nonce="n",algorithm=sha-256', "sha-256"),
        (b'nonce="n",qop="auth-conf,auth-int"', "not auth"),
        (b"not a list", "no list of directives"),
        (b'nonce="open', "no list of directives"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a=" + b"b" * 5000, "4096 are the limit"),
    ],
)
def test_what_is_no_challenge_is_said(challenge: bytes, said: str) -> None:
    with pytest.raises(SaslError, match=said):
        begun().next(challenge)


def test_quotes_in_names_are_escaped_and_read_back() -> None:
    response = DigestMd5('a "b\\c', "pw").exchange("bookie").next(b'realm="r\\"",nonce="n"')
    assert response is not None
    said = directives(response)
    assert (said["username"], said["realm"]) == ('a "b\\c', 'r"')


def test_the_password_is_not_shown_and_nonces_differ() -> None:
    assert "secret" not in repr(CREDENTIALS)
    one = DigestMd5("u", "p")
    assert one.nonce() != one.nonce()

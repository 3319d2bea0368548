"""BookieServiceInfo: the bytes of a real bookie, and what is made of odd ones."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.bookie_service_info import (
    BookieServiceInfo,
    Endpoint,
    bookie_address,
    decode_bookie_service_info,
    encode_bookie_service_info,
)
from bkctl.errors import CorruptionError, UsageError

#: Registered by a bookie of 4.17.3 at 127.0.0.1:2311 with its HTTP server at 2321.
GOLDEN = bytes.fromhex(
    "32200a0a687474707365727665721091121a093132372e302e302e31220468747470"
    "32220a06626f6f6b69651087121a093132372e302e302e31220a626f6f6b69652d727063"
)
INFO = BookieServiceInfo(
    (
        Endpoint("httpserver", 2321, "127.0.0.1", "http"),
        Endpoint("bookie", 2311, "127.0.0.1", "bookie-rpc"),
    )
)


def test_the_bytes_are_those_of_java() -> None:
    assert encode_bookie_service_info(INFO) == GOLDEN
    assert decode_bookie_service_info(GOLDEN) == INFO


def test_every_field_is_kept() -> None:
    full = BookieServiceInfo(
        (Endpoint("bookie", -1, "h", "bookie-rpc", ("a", "b"), ("tls", "ü")),), (("a", ""), ("b", "2"))
    )
    assert decode_bookie_service_info(encode_bookie_service_info(full)) == full


def test_properties_are_written_in_the_order_of_their_names() -> None:
    forwards = BookieServiceInfo((), (("a", "1"), ("b", "2")))
    backwards = BookieServiceInfo((), (("b", "2"), ("a", "1")))
    assert encode_bookie_service_info(forwards) == encode_bookie_service_info(backwards)


def test_an_old_bookie_registers_nothing_and_is_found_by_its_id() -> None:
    assert decode_bookie_service_info(b"") == BookieServiceInfo()
    assert bookie_address("10.0.0.1:3181", BookieServiceInfo()) == ("10.0.0.1", 3181)


@pytest.mark.parametrize(
    ("bookie", "info", "address"),
    [
        ("custom", INFO, ("127.0.0.1", 2311)),
        ("10.0.0.1:3181", INFO, ("127.0.0.1", 2311)),
        ("10.0.0.1:3181", None, ("10.0.0.1", 3181)),
        ("10.0.0.1:3181", BookieServiceInfo(INFO.endpoints[:1]), ("10.0.0.1", 3181)),
        ("custom", None, None),
        ("::1:3181", None, None),
        ("host:", None, None),
        (":1", None, None),
        ("host:65536", None, None),
        ("host:9999999999", None, None),
        ("host:x", None, None),
    ],
)
def test_where_a_bookie_is(
    bookie: str, info: BookieServiceInfo | None, address: tuple[str, int] | None
) -> None:
    assert bookie_address(bookie, info) == address


@pytest.mark.parametrize("data", [b"\x32", b"\x32\x02\x0a\x00", b"\xff" * 20, GOLDEN[:-1], bytes(2 << 20)])
def test_what_is_no_message_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptionError, match=r"bookie service info"):
        decode_bookie_service_info(data)


@pytest.mark.parametrize(
    "text",
    [b"autorecovery", b"bookie", b"bookie-rpc", b"10.0.0.1"],
    ids=["property", "id", "protocol", "host"],
)
def test_a_text_that_is_no_utf_8_is_damage(text: bytes) -> None:
    endpoint = Endpoint("bookie", 3181, "10.0.0.1", "bookie-rpc")
    stored = encode_bookie_service_info(BookieServiceInfo((endpoint,), (("autorecovery", "false"),)))
    with pytest.raises(CorruptionError, match=r"bookie service info"):
        decode_bookie_service_info(stored.replace(text, text[:-1] + b"\xff"))


def test_what_does_not_fit_is_refused() -> None:
    for endpoint in (Endpoint("bookie", 2**31, "h", "p"), Endpoint("\ud800", 1, "h", "p")):
        with pytest.raises(UsageError):
            encode_bookie_service_info(BookieServiceInfo((endpoint,)))


@given(st.binary(max_size=64))
def test_any_bytes_give_a_value_or_the_one_error(data: bytes) -> None:
    with contextlib.suppress(CorruptionError):
        decode_bookie_service_info(data)

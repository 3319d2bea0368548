"""Where registered bookies, and those of --url, are asked."""

from __future__ import annotations

import contextlib

import pytest

from bkctl.admin.top.discovery import (
    cluster_targets,
    registered_targets,
    target_of_registration,
    target_of_url,
)
from bkctl.codec.bookie_service_info import BookieServiceInfo, Endpoint, encode_bookie_service_info
from bkctl.errors import UsageError
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.uri import open_metadata_store

RPC = Endpoint("bookie", 3181, "bookie-1", "bookie-rpc")


def known(*endpoints: Endpoint, bookie: str = "bookie-1:3181") -> tuple[str, BookieServiceInfo]:
    return bookie, BookieServiceInfo(endpoints)


def http(host: str) -> Endpoint:
    return Endpoint("httpserver", 8080, host, "http")


@pytest.mark.parametrize(
    ("bookie", "port", "urls"),
    [
        (known(http("10.0.0.1"), RPC), None, ("http://10.0.0.1:8080",)),
        (known(http("0.0.0.0"), RPC), None, ("http://bookie-1:8080",)),
        (known(http("::"), RPC), None, ("http://bookie-1:8080",)),
        (known(http("fe80::1"), RPC), None, ("http://[fe80::1]:8080",)),
        (known(http("10.0.0.1"), RPC), 8000, ("http://10.0.0.1:8080", "http://bookie-1:8000")),
        (known(http("bookie-1"), RPC), 8080, ("http://bookie-1:8080",)),
        (known(RPC), 8000, ("http://bookie-1:8000",)),
        (known(), 8000, ("http://bookie-1:8000",)),  # a registration without service info
        (known(RPC), None, ()),
        (known(bookie="custom-id"), 8000, ()),
        (known(http(""), bookie="custom-id"), None, ()),
    ],
)
def test_where_a_registered_bookie_is_asked(
    bookie: tuple[str, BookieServiceInfo], port: int | None, urls: tuple[str, ...]
) -> None:
    name, info = bookie
    target = target_of_registration(name, info, port)
    assert (target.bookie, target.urls, target.name) == (name, urls, name)
    assert (target.reason is None) == bool(urls)


def test_the_registered_bookies_of_a_store() -> None:
    good = encode_bookie_service_info(BookieServiceInfo((http("0.0.0.0"), RPC)))
    registrations = [
        ("b2", RegistrationMode.READ_ONLY, good),
        ("b1", RegistrationMode.WRITABLE, good),
        ("bad", RegistrationMode.WRITABLE, b"\xff\xff\xff"),
        ("old:3181", RegistrationMode.WRITABLE, b""),
    ]
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_metadata_store("memory://top-discovery"))
        store.layout.initialise_cluster()
        store.cookies.create_cookie("down:3181", b"5\n")
        for registration in registrations:
            session = stack.enter_context(open_metadata_store("memory://top-discovery"))
            session.registration.register(*registration)
        one, two, bad, old = registered_targets(store, None)
        everyone = cluster_targets(store, None)
    assert [target.name for target in everyone] == ["b1", "b2", "bad", "down:3181", "old:3181"]
    (down,) = [target for target in everyone if target.down]
    assert (down.name, down.urls) == ("down:3181", ())
    assert (one.bookie, one.urls) == ("b1", ("http://bookie-1:8080",))
    assert (two.bookie, two.urls) == ("b2", ("http://bookie-1:8080",))
    assert bad.bookie == "bad"
    assert "registration of bookie bad" in str(bad.reason), "and the others are watched"
    assert (old.bookie, old.urls) == ("old:3181", ())


@pytest.mark.parametrize(
    ("http_host", "client_host", "here_only"),
    [
        ("127.0.0.1", "bookie-1", True),
        ("localhost", "10.0.0.1", True),
        ("::1", "bookie-1", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("127.0.0.1", "localhost", False),
        ("10.0.0.1", "bookie-1", False),
        ("0.0.0.0", "bookie-1", False),
    ],
)
def test_a_loopback_address_of_another_machine(http_host: str, client_host: str, here_only: bool) -> None:
    rpc = Endpoint("bookie", 3181, client_host, "bookie-rpc")
    target = target_of_registration(*known(http(http_host), rpc), None)
    assert target.here_only is here_only


@pytest.mark.parametrize(
    ("url", "base", "name"),
    [
        ("http://h:8080", "http://h:8080", "h:8080"),
        ("http://h:8080/", "http://h:8080", "h:8080"),
        ("https://h:8000/metrics", "https://h:8000", "h:8000"),
        ("http://h:8000/metrics/", "http://h:8000", "h:8000"),
    ],
)
def test_what_an_url_names(url: str, base: str, name: str) -> None:
    target = target_of_url(url)
    assert (target.urls, target.name, target.bookie) == ((base,), name, None)


@pytest.mark.parametrize("url", ["h:8080", "ftp://h", "http://", "http:///", ""])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UsageError, match="expected http://host:port"):
        target_of_url(url)

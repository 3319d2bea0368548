from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.config.server_keys.identity import IdentitySettings
from bkctl.errors import RefusedError, UsageError
from bkctl.server.life.identity import SystemHostNames, bookie_id, candidate_ids, require_permitted_user

PLAIN = IdentitySettings(
    bookie_id=None,
    port=3181,
    advertised_address=None,
    listening_interface=None,
    loopback_only=False,
    allow_loopback=False,
    use_host_name=False,
    use_short_host_name=False,
    permitted_users=(),
)


class Names:
    """A machine with one address."""

    def __init__(self, address: str = "10.0.0.7", name: str = "bk7.example.org") -> None:
        self.address = address
        self.name = name
        self.asked: list[str | None] = []

    def address_of(self, interface: str | None) -> str:
        self.asked.append(interface)
        return self.address

    def name_of(self, address: str) -> str:
        assert address == self.address
        return self.name


class Nameless(Names):
    def address_of(self, interface: str | None) -> str:
        raise UsageError("no address")


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (PLAIN, "10.0.0.7:3181"),
        (replace(PLAIN, bookie_id="bk-7", advertised_address="x"), "bk-7"),
        (replace(PLAIN, advertised_address="bk.example.org", use_host_name=True), "bk.example.org:3181"),
        (replace(PLAIN, use_host_name=True), "bk7.example.org:3181"),
        (replace(PLAIN, use_host_name=True, use_short_host_name=True), "bk7:3181"),
        (replace(PLAIN, use_short_host_name=True), "10.0.0.7:3181"),
        # Java does not look whether an advertised address is a loopback.
        (replace(PLAIN, advertised_address="127.0.0.1"), "127.0.0.1:3181"),
    ],
)
def test_the_id_in_the_order_of_the_keys(identity: IdentitySettings, expected: str) -> None:
    assert bookie_id(identity, 3181, Names()) == expected


def test_the_port_is_the_one_that_is_listened_on() -> None:
    assert bookie_id(replace(PLAIN, port=0), 40123, Names()) == "10.0.0.7:40123"


def test_the_interface_is_asked_for() -> None:
    names = Names()
    bookie_id(replace(PLAIN, listening_interface="eth1"), 1, names)
    assert names.asked == ["eth1"]


@pytest.mark.parametrize("use_host_name", [False, True])
def test_a_loopback_makes_no_id_unless_allowed(use_host_name: bool) -> None:
    identity = replace(PLAIN, use_host_name=use_host_name)
    names = Names("127.0.1.1", "laptop")
    with pytest.raises(RefusedError, match=r"127\.0\.1\.1, a loopback.*allowLoopback=true"):
        bookie_id(identity, 3181, names)
    assert bookie_id(replace(identity, allow_loopback=True), 3181, names)


@pytest.mark.parametrize("text", ["bk_7", "a:b;c<d=e>f?g@h[i\\j]k^l", "A.b-c:1"])
def test_allowed_ids(text: str) -> None:
    assert bookie_id(replace(PLAIN, bookie_id=text), 1, Names()) == text


@pytest.mark.parametrize("text", ["a/b", "a,b", "a b", "a#b", "\u00e9", "a\n", "readonly", "x`"])
def test_refused_ids(text: str) -> None:
    with pytest.raises(UsageError, match="is not allowed"):
        bookie_id(replace(PLAIN, bookie_id=text), 1, Names())


@pytest.mark.parametrize(
    "identity", [PLAIN, replace(PLAIN, advertised_address="::1"), replace(PLAIN, advertised_address="h:1")]
)
def test_an_address_with_colons_makes_no_id(identity: IdentitySettings) -> None:
    with pytest.raises(UsageError, match="has a colon in it"):
        bookie_id(identity, 1, Names("fe80::1"))


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (PLAIN, ["bk7.example.org:1", "10.0.0.7:1"]),
        (replace(PLAIN, bookie_id="bk"), ["bk"]),
        (replace(PLAIN, advertised_address="pub"), ["10.0.0.7:1", "bk7.example.org:1", "pub:1"]),
        (replace(PLAIN, use_host_name=True), ["10.0.0.7:1", "bk7.example.org:1"]),
        (replace(PLAIN, advertised_address="127.0.0.1", loopback_only=True), ["127.0.0.1:1"]),
    ],
)
def test_cookies_are_looked_up_under_every_id_that_it_could_have(
    identity: IdentitySettings, expected: list[str]
) -> None:
    assert candidate_ids(identity, 1, Names()) == expected


def test_candidates_look_past_loopback_and_past_what_has_no_address() -> None:
    advertised = replace(PLAIN, advertised_address="pub")
    assert candidate_ids(advertised, 1, Names("127.0.1.1", "lo")) == ["127.0.1.1:1", "lo:1", "pub:1"]
    assert candidate_ids(advertised, 1, Nameless()) == ["pub:1"]
    with pytest.raises(UsageError, match="no address"):
        candidate_ids(PLAIN, 1, Nameless())


def test_only_permitted_users_start_it() -> None:
    require_permitted_user("bk", ())
    require_permitted_user("bk", ("root", "bk"))
    with pytest.raises(RefusedError, match="user me may not start this bookie: permittedStartupUsers=bk"):
        require_permitted_user("me", ("bk",))


def test_the_system_knows_the_loopback_interface() -> None:
    names = SystemHostNames()
    assert names.address_of("lo") == "127.0.0.1"
    with pytest.raises(UsageError, match=r"listeningInterface=nope0: .*interfaces here: .*lo"):
        names.address_of("nope0")

"""Every row of the decision table, and what must match before it is looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.codec.cookie import Cookie
from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.directories.cookie_rules import CookieDecision, DirectoryFacts, StoredCookie, cookie_of, decide
from bkctl.errors import CorruptionError, RefusedError, UsageError

SETTINGS = DirectorySettings(
    journals=("/j",), ledgers=("/a", "/b"), indexes=(), allow_expansion=False, allow_same_partition=True
)
BOOKIE = "10.0.0.1:3181"
WANTED = cookie_of(BOOKIE, SETTINGS, "uuid")
STORED = [StoredCookie(BOOKIE, WANTED, 4)]
ALL = ("/j", "/a", "/b")


def facts(
    *missing: str, full: tuple[str, ...] = (), data: tuple[str, ...] = (), cookie: Cookie = WANTED
) -> list[DirectoryFacts]:
    """Every directory: with the cookie unless ``missing``, empty unless ``full``, without data unless so."""
    return [
        DirectoryFacts(
            path,
            None if path in missing else cookie,
            is_empty=path not in full and path not in data,
            holds_data=path in data,
        )
        for path in ALL
    ]


def refused(
    directories: list[DirectoryFacts],
    stored: list[StoredCookie],
    *,
    wanted: Cookie = WANTED,
    allow_expansion: bool = False,
) -> str:
    with pytest.raises(RefusedError) as caught:
        decide(wanted, directories, stored, allow_expansion=allow_expansion)
    return str(caught.value)


def test_the_cookie_is_made_of_the_configured_strings() -> None:
    made = cookie_of(BOOKIE, replace(SETTINGS, journals=("/j", "k"), indexes=("/i/", "/h")), None)
    assert made == Cookie(5, BOOKIE, "/j,k", "2\t/a\t/b", None, "2\t/i/\t/h")
    with pytest.raises(UsageError, match="TAB"):
        cookie_of(BOOKIE, replace(SETTINGS, ledgers=("/a\tb",)), None)


# --- the table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [ALL, ("/j",), ("/a", "/b")])
@pytest.mark.parametrize("allow_expansion", [False, True])
def test_absent_and_empty_directories_is_a_new_bookie(
    missing: tuple[str, ...], allow_expansion: bool
) -> None:
    decision = decide(WANTED, facts(*missing), [], allow_expansion=allow_expansion)
    assert decision == CookieDecision(WANTED, ALL, stamp_store=True, store_version=None)
    assert decision.is_new_bookie


@pytest.mark.parametrize("allow_expansion", [False, True])
def test_absent_and_an_emptied_disk_beside_data_is_refused(allow_expansion: bool) -> None:
    """Java stamps the emptied directory and starts as new, with "no such entry" for what was on it."""
    text = refused(facts("/b", data=("/a",)), [], allow_expansion=allow_expansion)
    assert "no cookie in the metadata store, but its directories have one (/b has none)" in text
    assert "store /a/current/VERSION again" in text


@pytest.mark.parametrize("allow_expansion", [False, True])
def test_absent_and_a_full_directory_without_a_cookie_is_refused(allow_expansion: bool) -> None:
    text = refused(facts(*ALL, full=("/a",)), [], allow_expansion=allow_expansion)
    assert text.startswith("/a: no cookie (current/VERSION), but not empty")
    assert "bkctl bookie format" in text


@pytest.mark.parametrize("allow_expansion", [False, True])
def test_absent_and_cookies_everywhere_is_refused(allow_expansion: bool) -> None:
    text = refused(facts(data=("/a",)), [], allow_expansion=allow_expansion)
    assert "no cookie in the metadata store, but its directories have one" in text
    assert "bkctl cookie create" in text


def test_a_first_start_that_stopped_before_the_store_goes_on() -> None:
    """Java refuses for ever; there is nothing but cookies, so nothing can be lost."""
    decision = decide(WANTED, facts(), [], allow_expansion=False)
    assert decision == CookieDecision(WANTED, (), stamp_store=True)


@pytest.mark.parametrize("allow_expansion", [False, True])
def test_present_and_everything_matches_starts_and_writes_nothing(allow_expansion: bool) -> None:
    decision = decide(WANTED, facts(data=ALL), STORED, allow_expansion=allow_expansion)
    assert decision == CookieDecision(WANTED)
    assert not decision.is_new_bookie


@pytest.mark.parametrize("missing", [ALL, ("/a",)])
def test_present_and_a_directory_lost_its_cookie_is_refused(missing: tuple[str, ...]) -> None:
    text = refused(facts(*missing), STORED)
    assert text.startswith(", ".join(missing))
    assert "not mounted" in text


@pytest.mark.parametrize("missing", ["/a", "/j"])
def test_present_and_expansion_does_not_excuse_a_known_directory(missing: str) -> None:
    """Java would stamp the journal directory, and forget what was in it."""
    text = refused(facts(missing), STORED, allow_expansion=True)
    assert text.startswith(f"{missing}: no cookie")
    assert "had this directory before" in text


SMALLER = cookie_of(BOOKIE, replace(SETTINGS, ledgers=("/a",)), "uuid")
OLD = [StoredCookie(BOOKIE, SMALLER, 7)]


def test_present_and_a_new_empty_directory_with_expansion_stamps_all() -> None:
    decision = decide(WANTED, facts("/b", cookie=SMALLER), OLD, allow_expansion=True)
    assert decision == CookieDecision(WANTED, ALL, stamp_store=True, store_version=7)
    assert not decision.is_new_bookie


def test_present_and_a_new_full_directory_is_refused_in_spite_of_expansion() -> None:
    text = refused(facts("/b", full=("/b",), cookie=SMALLER), OLD, allow_expansion=True)
    assert text.startswith("/b: is not empty, but a new directory must be")


def test_a_new_directory_without_expansion_is_refused_and_names_the_key() -> None:
    text = refused(facts("/b", cookie=SMALLER), OLD)
    assert "ledgerDirectories: the cookie has /a, the configuration /a,/b" in text
    assert "allowStorageExpansion=true" in text


def test_an_interrupted_expansion_is_finished() -> None:
    """Directories are stamped already, the store is not; Java starts and keeps the old cookie there."""
    decision = decide(WANTED, facts(), OLD, allow_expansion=True)
    assert decision == CookieDecision(WANTED, ALL, stamp_store=True, store_version=7)


# --- what DbLedgerStorage can not do ------------------------------------------------------------------------


def test_more_ledger_directories_are_refused_once_there_is_data() -> None:
    """A ledger's place is its id modulo their number: in Java every ledger is then "not found"."""
    text = refused(facts("/b", data=("/a",), cookie=SMALLER), OLD, allow_expansion=True)
    assert "modulo the number of directories" in text
    assert "Set ledgerDirectories=/a." in text
    assert "start another bookie" in text


@pytest.mark.parametrize("allow_expansion", [False, True])
def test_another_order_of_ledger_directories_is_refused(allow_expansion: bool) -> None:
    swapped = cookie_of(BOOKIE, replace(SETTINGS, ledgers=("/b", "/a")), "uuid")
    text = refused(facts(data=ALL), STORED, wanted=swapped, allow_expansion=allow_expansion)
    assert "ledgerDirectories" in text
    assert "order" in text
    assert "ledgerDirectories=/a,/b" in text


def test_another_order_of_index_directories_is_refused() -> None:
    indexed = cookie_of(BOOKIE, replace(SETTINGS, indexes=("/i", "/h")), "uuid")
    swapped = cookie_of(BOOKIE, replace(SETTINGS, indexes=("/h", "/i")), "uuid")
    stored = [StoredCookie(BOOKIE, indexed, 0)]
    text = refused(facts(data=ALL, cookie=indexed), stored, wanted=swapped, allow_expansion=True)
    assert "indexDirectories=/i,/h" in text


# --- what must match ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [STORED, []])
@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(WANTED, bookie_host="h:1"), ("bookie h:1", BOOKIE, "bookieId=h:1")),
        (replace(WANTED, instance_id="other"), ("other", "uuid", "formatted", "metadataServiceUri")),
        (replace(WANTED, instance_id=None), ("instance none", "uuid")),
        (replace(WANTED, journal_dirs="/x"), ("journalDirectories", "has /x", "/j")),
        (replace(WANTED, journal_dirs="/j,/k"), ("journalDirectories",)),
        (replace(WANTED, ledger_dirs="1\t/x"), ("ledgerDirectories", "/x")),
        (
            replace(WANTED, ledger_dirs="2\t/b\t/a"),
            ("the order of ledgerDirectories", "ledgerDirectories=/b,/a"),
        ),
        (replace(WANTED, index_dirs="2\t/i\t/h"), ("indexDirectories", "/i,/h")),
        (Cookie(2, "", "", ""), ("layout 2", "too old", "bookkeeper upgrade")),
    ],
)
def test_a_directory_of_another_bookie_is_refused(
    other: Cookie, words: tuple[str, ...], stored: list[StoredCookie]
) -> None:
    directories = facts()
    directories[1] = replace(directories[1], cookie=other)
    text = refused(directories, stored)
    assert text.startswith("/a: ")
    for word in words:
        assert word in text


def test_every_stored_cookie_must_match() -> None:
    """A cookie under the host's name, while the id is made of its address: the naming scheme changed."""
    under_name = StoredCookie("host:3181", replace(WANTED, bookie_host="host:3181"), 1)
    text = refused(facts(), [under_name, *STORED])
    assert text.startswith("metadata store, bookie host:3181: ")
    assert "bookieId=host:3181" in text


@pytest.mark.parametrize(
    "same",
    [
        replace(WANTED, layout_version=4),
        replace(WANTED, layout_version=3),
        replace(WANTED, layout_version=9),
        replace(WANTED, index_dirs="2\t/a\t/b"),
        replace(WANTED, index_dirs=" "),
    ],
)
def test_layout_and_the_spelling_of_index_directories_do_not_count(same: Cookie) -> None:
    stored = [StoredCookie(BOOKIE, same, 0)]
    assert decide(WANTED, facts(cookie=same), stored, allow_expansion=True) == CookieDecision(WANTED)


def test_a_cookie_whose_directories_do_not_parse_names_its_place() -> None:
    broken = replace(WANTED, ledger_dirs="3\t/a")
    with pytest.raises(CorruptionError, match=r"^/j: directories of a cookie"):
        decide(WANTED, facts(cookie=broken), [], allow_expansion=False)


def test_a_cluster_without_an_instance_id_matches_cookies_without_one() -> None:
    plain = replace(WANTED, instance_id=None)
    stored = [StoredCookie(BOOKIE, plain, 0)]
    assert decide(plain, facts(cookie=plain), stored, allow_expansion=False) == CookieDecision(plain)

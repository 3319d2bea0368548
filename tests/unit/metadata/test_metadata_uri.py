"""The rules of metadataServiceUri, as watched on the Java tools."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bkctl.codec.ledger_path import LedgerLayout
from bkctl.errors import UsageError
from bkctl.metadata.settings import Credentials, MetadataSettings
from bkctl.metadata.uri import open_metadata_store, parse_metadata_uri


@pytest.mark.parametrize(
    ("scheme", "layout"),
    [
        ("zk", None),
        ("zk+null", None),
        ("ZK+NULL", None),
        ("zk+hierarchical", LedgerLayout.HIERARCHICAL),
        ("zk+flat", LedgerLayout.FLAT),
        ("zk+longhierarchical", LedgerLayout.LONG),
    ],
)
def test_the_scheme_names_driver_and_ledger_manager(scheme: str, layout: LedgerLayout | None) -> None:
    parsed = parse_metadata_uri(f"{scheme}://h1:2181;h2:2182/ledgers")
    assert (parsed.driver, parsed.layout) == ("zk", layout)
    assert (parsed.servers, parsed.root) == (("h1:2181", "h2:2182"), "/ledgers")


@pytest.mark.parametrize(
    ("uri", "servers", "root"),
    [
        ("zk://h/ledgers", ("h",), "/ledgers"),
        ("zk://h1:1,h2:2/ledgers", ("h1:1", "h2:2"), "/ledgers"),
        ("zk://[::1]:2181/ledgers", ("[::1]:2181",), "/ledgers"),
        ("zk://[::1]/ledgers", ("[::1]",), "/ledgers"),
        ("zk://h:1/a/b/ledgers", ("h:1",), "/a/b/ledgers"),
        ("zk://h:1/Ledgers", ("h:1",), "/Ledgers"),
        ("metadata-store:zk:h1:1;h2:2", ("h1:1", "h2:2"), "/ledgers"),
        ("metadata-store:zk:h1:1,h2:2/", ("h1:1", "h2:2"), "/ledgers"),
        ("metadata-store:zk:h:1/chroot", ("h:1",), "/chroot/ledgers"),
        ("metadata-store:zk:h:1/ledgers", ("h:1",), "/ledgers/ledgers"),
        ("metadata-store:h:1/a/b", ("h:1",), "/a/b/ledgers"),
    ],
)
def test_servers_and_root(uri: str, servers: tuple[str, ...], root: str) -> None:
    parsed = parse_metadata_uri(uri)
    assert (parsed.servers, parsed.root, parsed.text) == (servers, root, uri)


def test_an_embedded_store_is_a_file_and_a_memory_store_a_name() -> None:
    embedded = parse_metadata_uri("embedded:///var/lib/bkctl/metadata db")
    assert (embedded.driver, embedded.location) == ("embedded", "/var/lib/bkctl/metadata db")
    assert parse_metadata_uri("memory://cluster").location == "cluster"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("", "expected zk://"),
        ("/ledgers", "expected zk://"),
        ("h:2181", "expected zk://"),
        ("zk:h:2181/ledgers", "expected zk://"),
        ("etcd://h:2379/scope", "unknown backend 'etcd'"),
        ("zk+ms://h:1/ledgers", "unknown ledger manager 'ms'"),
        ("zk+://h:1/ledgers", "unknown ledger manager ''"),
        ("zk+flat+null://h:1/ledgers", "unknown ledger manager"),
        ("zk:///ledgers", "no server"),
        ("zk://;/ledgers", "no server"),
        ("zk://h:port/ledgers", "is not host:port"),
        ("zk://h:/ledgers", "is not host:port"),
        ("zk://:2181/ledgers", "is not host:port"),
        ("zk://h1:2181", "no ledgers root path"),
        ("zk://h:1/", "not a node's path"),
        ("zk://h:1/ledgers/", "not a node's path"),
        ("zk://h:1/a//b", "not a node's path"),
        ("zk://h:1/../b", "not a node's path"),
        ("metadata-store:oxia:h:1", "only zk: is supported"),
        ("metadata-store:etcd:h:1", "only zk: is supported"),
        ("metadata-store:zk:", "no server"),
        ("embedded://relative/path", "three slashes"),
        ("embedded:///", "three slashes"),
        ("embedded:///dir/", "three slashes"),
        ("memory://a/b", "memory://name"),
    ],
)
def test_what_has_no_meaning_is_refused_with_the_reason(uri: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_metadata_uri(uri)
    assert reason in str(refused.value)


def test_a_uri_that_a_conf_file_has_cut_at_its_comma_says_so() -> None:
    with pytest.raises(UsageError, match=r"separate servers with ';'"):
        parse_metadata_uri("zk+hierarchical://h1:2181")


def test_only_a_zookeeper_uri_loads_kazoo(tmp_path: Path) -> None:
    program = (
        "import sys; from bkctl.metadata.uri import open_metadata_store;"
        f"open_metadata_store('embedded://{tmp_path}/m.db').close(); open_metadata_store('memory://m').close();"
        "assert 'kazoo' not in sys.modules;"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


def test_stores_of_one_name_in_memory_are_one() -> None:
    uri = "memory://shared-name"
    with open_metadata_store(uri) as first, open_metadata_store(uri) as second:
        first.layout.initialise_cluster()
        assert second.layout.instance_id() == first.layout.instance_id()


def test_settings_are_bounded_and_keep_secrets_to_themselves() -> None:
    for value in (0, -1, 3_600_001):
        with pytest.raises(UsageError, match=r"session_timeout_ms"):
            MetadataSettings(session_timeout_ms=value)
    settings = MetadataSettings(sasl=Credentials("bk", "hidden"), digest_auth="bk:hidden")
    assert "hidden" not in repr(settings)

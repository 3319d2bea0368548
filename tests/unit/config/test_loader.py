from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.config.bookie import BookieConfig
from bkctl.config.loader import load
from bkctl.config.values import Notice
from bkctl.errors import NotFoundError, UsageError

BASE = "metadataServiceUri=zk://h:2181/ledgers\njournalDirectories=/j\nledgerDirectories=/l\n"
DEMO = Path(__file__).parents[2] / "data" / "demo" / "bookie1" / "bk_server.conf"
MIB = 1 << 20


def loaded(
    text: str, *, memory_bytes: int | None = None, base: str = BASE, **overrides: str
) -> tuple[BookieConfig, list[Notice]]:
    content = (base + text).encode("latin-1")
    return load("f", overrides, {}, memory_bytes=memory_bytes, read=lambda _path: content)


def warnings(notices: list[Notice]) -> list[str]:
    return [str(notice) for notice in notices if notice.warning]


def test_the_releases_own_file_loads(release_conf: Path) -> None:
    config, notices = load(str(release_conf), {}, {})
    assert config.metadata.uri == "zk+hierarchical://localhost:2181/ledgers"
    assert config.directories.journals == ("/tmp/bk-txn",)
    assert config.identity.port == 3181
    assert config.http.host == "0.0.0.0"
    assert [text.split(": ")[1].split()[0] for text in warnings(notices)] == [
        "httpServerClass",
        "statsProviderClass",
        "journalDirectories",
        "ledgerDirectories",
    ]


def test_the_releases_file_with_every_line_active_is_understood(release_conf: Path) -> None:
    """What a sample shows must parse."""
    active = [line.lstrip("# ") for line in release_conf.read_text().splitlines() if "=" in line[:-1]]
    # Not taken: what this bookie refuses with good reason, and says in other tests.
    skipped = ("tls", "bookieAuth", "ledgerStorageClass", "indexDirectories")
    text = "\n".join(line for line in active if not line.startswith(skipped))
    config, notices = load("f", {}, {}, read=lambda _path: text.encode())
    assert not [str(one) for one in notices if "not a known key" in one.text]
    assert config.disks.free_bytes_min == 1 << 30


@pytest.mark.parametrize("bookie", ["bookie1"])
def test_a_bookies_file_of_the_corpora_loads(bookie: str) -> None:
    config, notices = load(str(DEMO), {}, {})
    assert config.identity.port == 4100
    assert config.identity.advertised_address == "127.0.0.1"
    assert config.directories.ledgers == ("/data/bookkeeper/bookie1/ledgers",)
    assert config.directories.index_places == config.directories.ledgers
    assert config.storage.write_cache_bytes_max == 32 * MIB
    assert config.entry_log.size_bytes_max == 4 * MIB
    assert config.disks.usage_max == 0.99
    assert config.disks.usage_low == 0.99
    assert not warnings(notices)
    assert [one.text.split()[0] for one in notices] == [
        "minUsableSizeForIndexFileCreation",
    ]
    assert config.gc.collect_when_full


def test_without_a_file_the_bookie_lives_in_the_working_directory() -> None:
    config, notices = load(None, {}, {}, working_directory="/home/me")
    assert config.directories.journals == ("/home/me/bkctl-data/journal",)
    assert config.directories.ledgers == ("/home/me/bkctl-data/ledgers",)
    assert config.metadata.uri == "embedded:///home/me/bkctl-data/metadata.db"
    assert config.identity.loopback_only
    assert config.identity.advertised_address == "127.0.0.1"
    assert notices == []


def test_without_a_file_an_address_opens_the_bookie() -> None:
    config, _ = load(None, {"advertisedAddress": "bk1"}, {}, working_directory="/w")
    assert not config.identity.loopback_only
    assert config.identity.advertised_address == "bk1"


def test_precedence() -> None:
    environment = {"BKCTL_METADATA_URI": "zk://env:1/l"}
    read = (BASE + "bookiePort=1").encode()
    config, _ = load("f", {"bookiePort": "2"}, environment, read=lambda _path: read)
    assert (config.identity.port, config.metadata.uri) == (2, "zk://env:1/l")
    config, _ = load("f", {"metadataServiceUri": "zk://x:1/l"}, environment, read=lambda _path: read)
    assert (config.identity.port, config.metadata.uri) == (1, "zk://x:1/l")


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nope\.conf: no such file"):
        load(str(tmp_path / "nope.conf"), {}, {})
    with pytest.raises(UsageError, match="Is a directory"):
        load(str(tmp_path), {}, {})


def test_an_unknown_key_is_a_warning_with_the_nearest_name() -> None:
    _, notices = loaded("journalDirectory_=x\njournalMaxSizeMb=1\nquite.other=1", bookieport="1")
    assert warnings(notices) == [
        "f:4: 'journalDirectory_' is not a known key; did you mean journalDirectory?",
        "f:5: 'journalMaxSizeMb' is not a known key; did you mean journalMaxSizeMB?",
        "f:6: 'quite.other' is not a known key",
        "-X bookieport: 'bookieport' is not a known key; did you mean bookiePort?",
    ]


def test_a_known_key_without_effect_says_so_only_when_it_asks_for_something() -> None:
    assert loaded("numAddWorkerThreads=1\njournalReuseFiles=false\nextraServerComponents=")[1] == []
    _, notices = loaded("journalReuseFiles=true\ngcOverreplicatedLedgerWaitTime=5\nlocalScrubInterval=5")
    assert [(one.warning, one.where) for one in notices[:3]] == [(True, "f:4"), (False, "f:5"), (True, "f:6")]
    assert "journalReuseFiles has no effect here: journal files are never recycled" in str(notices[0])
    assert "gcOverreplicatedLedgerWaitTime has no effect yet: it arrives with a later release" in str(
        notices[1]
    )


def test_a_deprecated_twin_is_read_and_named() -> None:
    base = "metadataServiceUri=zk://h:1/l\nledgerDirectories=/l\n"
    config, notices = loaded("journalDirectory=/old", base=base)
    assert config.directories.journals == ("/old",)
    assert [str(one) for one in notices] == ["f:3: journalDirectory is deprecated: use journalDirectories"]
    config, _ = loaded("journalDirectory=/old\njournalDirectories=/new", base=base)
    assert config.directories.journals == ("/new",)


def test_a_scalar_given_twice_takes_the_first_as_in_java_and_says_so() -> None:
    config, notices = loaded("bookiePort=1\nbookiePort=2")
    assert config.identity.port == 1
    assert warnings(notices) == ["f:4: bookiePort is given 2 times; the first counts, as in Java"]


def test_a_list_given_twice_is_one_list() -> None:
    config, notices = loaded("journalDirectories=/k")
    assert config.directories.journals == ("/j", "/k")
    assert not warnings(notices)


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("zkServers=a:1,b:2\nledgerManagerType=longhierarchical", "zk+longhierarchical://a:1;b:2/ledgers"),
        (
            "metadataServiceUri=\nzkServers=a:1;b:2\nzkLedgersRootPath=/x\n"
            "ledgerManagerFactoryClass=org.apache.bookkeeper.meta.FlatLedgerManagerFactory",
            "zk+flat://a:1;b:2/x",
        ),
        ("zkServers=a:1", "zk+null://a:1/ledgers"),
        ("metadataServiceUri=metadata-store:zk:a:1,b:2/x", "metadata-store:zk:a:1;b:2/x"),
    ],
)
def test_the_uri_is_made_of_the_old_keys(text: str, uri: str) -> None:
    """The first three as printed by Java."""
    config, _ = loaded(text, base="journalDirectories=/j\nledgerDirectories=/l\n")
    assert config.metadata.uri == uri


def test_commas_in_the_uri_which_cut_it_in_java_are_understood_with_a_warning() -> None:
    base = "journalDirectories=/j\nledgerDirectories=/l\n"
    config, notices = loaded("metadataServiceUri=zk+null://a:1,b:2/l", base=base)
    assert config.metadata.uri == "zk+null://a:1;b:2/l"
    assert "separate servers with ;" in warnings(notices)[0]


@pytest.mark.parametrize("text", ["", "metadataServiceUri=localhost:2181"])
def test_without_metadata_a_file_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"metadataServiceUri.*zk(\+hierarchical)?://"):
        loaded(text, base="journalDirectories=/j\nledgerDirectories=/l\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bookiePort=0", ("f:4", "bookiePort", "allowEphemeralPorts")),
        ("bookiePort=70000", ("f:4", "bookiePort", "65535")),
        ("journalAlignmentSize=700", ("f:4", "multiple of 512")),
        ("journalAlignmentSize=256", ("f:4", "at least 512")),
        ("journalAlignmentSize=2097152\njournalPreAllocSizeMB=1", ("f:4", "journalPreAllocSizeMB")),
        ("journalFormatVersionToWrite=5", ("f:4", "fileInfoFormatVersionToWrite=1")),
        ("fileInfoFormatVersionToWrite=0", ("journalFormatVersionToWrite", "6 goes with 1")),
        ("journalFormatVersionToWrite=3", ("f:4", "from 4 to 6")),
        ("gcWaitTime=7200000", ("f:4", "minorCompactionInterval", "gcWaitTime")),
        ("entryLocationCompactionInterval=1", ("f:4", "entryLocationCompactionInterval")),
        ("indexDirectories=/a,/b", ("f:4", "as many as ledgerDirectories (1), found 2")),
        ("ledgerDirectories=/l/", ("f:3", "/l/ is named twice")),
        ("diskUsageThreshold=0.5", ("f:4", "diskUsageWarnThreshold", "0.9")),
        ("diskUsageLwmThreshold=0.99", ("f:4", "diskUsageLwmThreshold")),
        ("diskUsageThreshold=1", ("f:4", "0.999")),
        ("serverWriteBufferHighWaterMark=1000", ("f:4", "serverWriteBufferLowWaterMark")),
        ("nettyMaxFrameSizeBytes=104857600", ("f:4", "journalMaxMemorySizeMb")),
        ("logSizeLimit=2147483648", ("f:4", "1073741824")),
        ("ledgerStorageClass=org.example.OwnLedgerStorage", ("f:4", "one of", "SortedLedgerStorage")),
        ("bookieAuthProviderFactoryClass=x.Sasl", ("f:4", "no authentication", "take the key out")),
        ("zkEnableSecurity=true", ("f:4", "open to everybody", "take the key out")),
        ("httpServerTlsEnable=true", ("f:4", "httpServerTlsEnable", "127.0.0.1")),
        ("tlsProviderFactoryClass=TLSContextFactory", ("tlsKeyStoreType=PEM",)),
        ("tlsProviderFactoryClass=x.Other", ("f:4", "TLSContextFactory")),
        ("tlsProviderFactoryClass=TLSContextFactory\ntlsKeyStoreType=PEM", ("f:4", "tlsKeyStore")),
        ("ledgerDirectories=a\\tb", ("f:3", "control character")),
        ("zkTimeout=${nope}", ("f:4", "${nope}")),
    ],
)
def test_what_a_bookie_does_not_start_with(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "bookiePort=0\nallowEphemeralPorts=true",
        "journalFormatVersionToWrite=5\nfileInfoFormatVersionToWrite=0",
        "gcWaitTime=7200000\nminorCompactionInterval=0",
        "indexDirectories=/i",
        "diskUsageThreshold=0.5\ndiskUsageWarnThreshold=0.4",
        "ledgerStorageClass=DbLedgerStorage",
        "bookieAuthProviderFactoryClass=",
    ],
)
def test_what_is_allowed_beside_that(text: str) -> None:
    assert loaded(text)


def test_what_only_java_refuses_is_a_warning() -> None:
    _, notices = loaded("skipListArenaChunkSize=1\nskipListArenaMaxAllocSize=2")
    assert "Java refuses a skipListArenaChunkSize below" in warnings(notices)[-1]
    _, notices = loaded("entryLogPerLedgerEnabled=true\nuseTransactionalCompaction=true")
    assert "Java refuses useTransactionalCompaction together" in warnings(notices)[-1]


def test_memory_sizes_the_caches_and_keys_win_over_it() -> None:
    storage = loaded("", memory_bytes=400 * MIB)[0].storage
    assert storage.write_cache_bytes_max == storage.read_cache_bytes_max == 100 * MIB
    assert storage.index_block_cache_bytes == 40 * MIB
    config, notices = loaded("dbStorage_writeCacheMaxSizeMb=500", memory_bytes=400 * MIB)
    assert config.storage.write_cache_bytes_max == 500 * MIB
    assert warnings(notices) == ["f:4: the caches take 600 MiB, more than --memory (400 MiB)"]
    assert loaded("")[0].memory_bytes == 256 * MIB
    with pytest.raises(UsageError, match="--memory: expected at least 1 MiB"):
        loaded("", memory_bytes=1)


def test_group_commit_is_adaptive_until_a_wait_is_named() -> None:
    assert loaded("")[0].journal.group_wait_max_ms is None
    assert loaded("journalMaxGroupWaitMSec=2")[0].journal.group_wait_max_ms == 2


def test_a_bound_of_zero_or_below_is_none() -> None:
    network = loaded("maxPendingAddRequestsPerThread=0")[0].network
    assert network.add_queue_max is None
    assert network.adds_in_progress_max is None
    assert network.slow_reader_timeout_ms is None
    assert loaded("")[0].storage.read_ahead_bytes_max is None
    assert loaded("waitTimeoutOnResponseBackpressureMs=5")[0].network.slow_reader_timeout_ms == 5


def test_tls_from_pem_files() -> None:
    text = (
        "tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory\ntlsKeyStoreType=PEM\n"
        "tlsKeyStore=/k.pem\ntlsCertificatePath=/c.pem\ntlsTrustStoreType=PEM\ntlsTrustStore=/t.pem\n"
        "tlsClientAuthentication=true\ntlsEnabledProtocols=TLSv1.3,TLSv1.2\n"
    )
    tls = loaded(text)[0].tls
    assert tls is not None
    assert (tls.key_path, tls.certificate_path, tls.trust_path) == ("/k.pem", "/c.pem", "/t.pem")
    assert tls.client_authentication
    assert tls.required
    assert tls.protocols == ("TLSv1.3", "TLSv1.2")
    with pytest.raises(UsageError, match="tlsTrustStoreType: TLS wants PEM here, found JKS"):
        loaded(text.replace("tlsTrustStoreType=PEM\n", ""))
    with pytest.raises(UsageError, match="needs tlsTrustStore"):
        loaded(text.replace("tlsTrustStore=/t.pem\n", ""))
    assert loaded("tlsKeyStore=/k.pem")[0].tls is None


TLS = (
    "tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory\ntlsKeyStoreType=PEM\n"
    "tlsKeyStore=/k.pem\ntlsCertificatePath=/c.pem\ntlsTrustStoreType=PEM\ntlsTrustStore=/t.pem\n"
)


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("", False),
        ("tlsClientAuthentication=true\n", True),
        ("bkctlTlsRequired=true\n", True),
        ("bkctlTlsRequired=false\n", False),
        ("tlsClientAuthentication=true\nbkctlTlsRequired=true\n", True),
    ],
)
def test_client_certificates_and_a_key_make_tls_mandatory(text: str, required: bool) -> None:
    tls = loaded(TLS + text)[0].tls
    assert tls is not None
    assert tls.required is required


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TLS + "tlsClientAuthentication=true\nbkctlTlsRequired=false\n", "leave TLS out"),
        ("tlsClientAuthentication=true\n", "tlsClientAuthentication needs TLS, which is off"),
        ("bkctlTlsRequired=true\n", "bkctlTlsRequired needs TLS, which is off"),
        ("authorizedRoles=broker\n", "roles are not checked yet"),
        ("tlsEnabledCipherSuites=TLS_AES_128_GCM_SHA256\n", "cipher suites cannot be chosen yet"),
    ],
)
def test_a_restriction_that_would_restrict_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        loaded(text)


def test_journals_without_records_for_explicit_lacs_are_warned_of() -> None:
    _, notices = loaded("journalFormatVersionToWrite=5\nfileInfoFormatVersionToWrite=0")
    (line,) = [line for line in warnings(notices) if "explicit LAC" in line]
    assert line.startswith("f:4: journalFormatVersionToWrite=5 ")
    assert not [line for line in warnings(loaded("")[1]) if "explicit LAC" in line]


def test_relative_and_temporary_directories_are_warned_of() -> None:
    _, notices = loaded("", base="metadataServiceUri=zk://h:1/l\nledgerDirectories=data\n")
    assert warnings(notices) == [
        "default: journalDirectories: /tmp/bk-txn, Java's default; systems empty such directories",
        "f:2: ledgerDirectories: data is relative to where the bookie is started; name it from /",
    ]


def test_text_beyond_ascii_is_warned_of() -> None:
    _, notices = loaded("bookieId=\u00e9")
    assert "f:4: not ASCII: read as ISO-8859-1" in warnings(notices)[0]

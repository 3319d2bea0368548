"""How commands talk to bookies: TLS by options, variables and keys, the protocol's version, SASL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.settings import ClientSettings
from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, client_settings
from bkctl.errors import UsageError
from bkctl.net.digest_md5 import DigestMd5
from bkctl.net.tls import ClientTlsSettings
from bkctl.protocol.messages import Wire
from bkctl.server.life.embedded import LocalCluster
from tests.support.command_line import invoke
from tests.support.rows import from_ndjson
from tests.support.tls_files import CERTIFICATE, KEY, STRICT_BOOKIE_TLS, TLS_FACTORY

Run = Callable[..., Any]

FACTORY = f"tlsProviderFactoryClass={TLS_FACTORY}"


def settings_of(keys: list[str] | None, **tls: str) -> ClientSettings:
    return client_settings(ClusterOptions(override=keys), TlsOptions(**tls))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(2, tmp_path_factory.mktemp("secured"), overrides=STRICT_BOOKIE_TLS) as running:
        yield running


@pytest.fixture
def env(cluster: LocalCluster) -> dict[str, str]:
    return {
        "BKCTL_METADATA_URI": cluster.metadata_uri,
        "BKCTL_TLS_CA": CERTIFICATE,
        "BKCTL_TLS_CERT": CERTIFICATE,
        "BKCTL_TLS_KEY": KEY,
    }


def test_every_command_that_talks_to_bookies_can_do_it_in_tls(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    written = invoke(["ledger", "write", "-e", "2"], input=b"one\ntwo\n", env=env)
    assert written.exit_code == 0, written.stderr
    ledger = json.loads(written.stdout)["ledger"]
    rows = from_ndjson(run_cli("ledger", "read", ledger, "--payload", "text", env=env).stdout)
    assert [row["payload"] for row in rows] == ["one", "two"]
    for command in (
        ("ledger", "tail", ledger),
        ("ledger", "doctor", ledger),
        ("ledger", "fence", ledger),
        ("ledger", "recover", ledger),
        ("bookies", "info"),
        ("bookies", "probe"),
    ):
        result = run_cli(*command, env=env)
        assert result.exit_code == 0, (command, result.stderr, result.stdout)


def test_the_old_protocol_goes_through_tls_too(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    old = ("-X", "useV2WireProtocol=true")
    written = invoke(["ledger", "write", "-e", "2", *old], input=b"one\n", env=env)
    assert written.exit_code == 0, written.stderr
    ledger = json.loads(written.stdout)["ledger"]
    assert len(from_ndjson(run_cli("ledger", "read", ledger, *old, env=env).stdout)) == 1
    assert run_cli("bookies", "info", *old, env=env).exit_code == 0


def test_without_a_certificate_the_error_names_the_bookie(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    half = {**env, "BKCTL_TLS_CERT": None, "BKCTL_TLS_KEY": None}
    rows = from_ndjson(run_cli("bookies", "info", env=half).stdout)
    assert {row["bookie"] for row in rows} == {bookie.bookie_id for bookie in cluster.bookies}
    assert all(row["error"] and row["free_bytes"] is None for row in rows)


@pytest.mark.parametrize("command", ["info", "probe"])
def test_files_that_cannot_be_used_are_named_before_anybody_is_asked(
    run_cli: Run, env: dict[str, str], command: str
) -> None:
    result = run_cli("bookies", command, "--tls-ca", "/none.pem", env=env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "/none.pem" in result.stderr
    result = run_cli("bookies", command, env={**env, "BKCTL_TLS_KEY": None})
    assert result.exit_code == 2
    assert "--tls-key" in result.stderr


def test_the_configuration_of_a_bookie_will_do(run_cli: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    keys = {**STRICT_BOOKIE_TLS, "metadataServiceUri": cluster.metadata_uri}
    conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    assert run_cli("bookies", "info", "--conf", conf, env={"BKCTL_METADATA_URI": None}).exit_code == 0


def test_keys_of_a_client_come_before_those_of_a_bookie(tmp_path: Path) -> None:
    keys = [
        FACTORY,
        *("tlsTrustStore=bookies.pem", "tlsTrustStoreType=PEM", "clientTrustStore=clients.pem"),
        *("clientTrustStoreType=PEM", "tlsHostnameVerificationEnabled=true", "tlsEnabledProtocols=TLSv1.3"),
    ]
    with pytest.raises(UsageError, match=r"clients\.pem"):
        settings_of(keys)
    settings = settings_of([*keys, f"clientTrustStore={CERTIFICATE}"])
    assert settings.net.tls == ClientTlsSettings(
        trust_path=CERTIFICATE, protocols=("TLSv1.3",), verify_host_names=True
    )


def test_files_by_option_do_not_put_out_what_the_keys_demand() -> None:
    keys = [FACTORY, "tlsHostnameVerificationEnabled=true", "tlsEnabledProtocols=TLSv1.3"]
    settings = settings_of(keys, tls_ca=CERTIFICATE)
    assert settings.net.tls == ClientTlsSettings(
        trust_path=CERTIFICATE, protocols=("TLSv1.3",), verify_host_names=True
    )


def test_an_option_checks_host_names_unless_the_key_says_no() -> None:
    named = settings_of(None, tls_ca=CERTIFICATE).net.tls
    assert named == ClientTlsSettings(trust_path=CERTIFICATE, verify_host_names=True)
    unchecked = settings_of(["tlsHostnameVerificationEnabled=false"], tls_ca=CERTIFICATE).net.tls
    assert unchecked == ClientTlsSettings(trust_path=CERTIFICATE)


def test_an_option_does_not_fall_back_to_the_systems_authorities() -> None:
    with pytest.raises(UsageError, match="--tls-ca"):
        settings_of(None, tls_cert=CERTIFICATE, tls_key=KEY)
    with pytest.raises(UsageError, match="tlsTrustStore"):
        settings_of([FACTORY])


@pytest.mark.parametrize("store", ["tlsTrustStore", "clientTrustStore", "tlsKeyStore", "clientKeyStore"])
def test_a_store_of_java_is_refused_by_its_key(store: str) -> None:
    with pytest.raises(UsageError, match=rf"-X {store}: {store}Type: TLS wants PEM here, found JKS"):
        settings_of([FACTORY, f"{store}=x.jks"])


def test_bounds_and_version_of_the_protocol_by_their_keys() -> None:
    settings = settings_of(
        [
            *("addEntryTimeoutSec=7", "readEntryTimeoutSec=8", "useV2WireProtocol=true"),
            *("clientConnectTimeoutMillis=900", "numChannelsPerBookie=3", "nettyMaxFrameSizeBytes=8388608"),
        ],
    )
    assert (settings.add_timeout_ms, settings.read_timeout_ms) == (7000, 8000)
    net = settings.net
    assert (net.wire, net.connect_timeout_ms, net.connections_per_bookie, net.frame_bytes_max) == (
        Wire.V2,
        900,
        3,
        8 << 20,
    )
    assert settings_of(None).net.wire is Wire.V3


@pytest.mark.parametrize(
    "given",
    [
        *("addEntryTimeoutSec=3601", "readEntryTimeoutSec=0", "clientConnectTimeoutMillis=0"),
        *("numChannelsPerBookie=65", "nettyMaxFrameSizeBytes=1023"),
    ],
)
def test_a_bound_that_is_none_is_named_as_it_was_given(given: str) -> None:
    key, _, value = given.partition("=")
    with pytest.raises(UsageError, match=rf"-X.*{key}.*{value}"):
        settings_of([given])
    with pytest.raises(
        UsageError, match=r"addEntryTimeoutSec: expected an int from 1 to 3600 \(s\), found '3601'"
    ):
        settings_of(["addEntryTimeoutSec=3601"])


def test_sasl_takes_its_user_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "clientAuthProviderFactoryClass=org.apache.bookkeeper.sasl.SASLClientProviderFactory"
    monkeypatch.delenv("BKCTL_SASL_USER", raising=False)
    with pytest.raises(UsageError, match="BKCTL_SASL_USER and BKCTL_SASL_PASSWORD"):
        settings_of([key])
    monkeypatch.setenv("BKCTL_SASL_USER", "operator")
    monkeypatch.setenv("BKCTL_SASL_PASSWORD", "secret")
    provider = settings_of([key]).net.authentication
    assert isinstance(provider, DigestMd5)
    assert (provider.user, provider.password) == ("operator", "secret")
    assert not settings_of([key]).net.allow_unauthenticated_bookies
    allowed = settings_of([key, "bkctlAllowUnauthenticatedBookies=true"])
    assert allowed.net.allow_unauthenticated_bookies
    with pytest.raises(UsageError, match=r"known is org.*SASL.*found 'x\.Kerberos'"):
        settings_of(["clientAuthProviderFactoryClass=x.Kerberos"])


@pytest.mark.parametrize(
    "words",
    [
        ("ledger", "show", "7"),
        ("ledger", "list"),
        ("ledger", "recover", "7"),
        ("ledger", "doctor", "7"),
        ("bookies", "list"),
        ("bookies", "init"),
        ("metadata", "show"),
        ("metadata", "dump", "--show-secrets"),
        ("cookie", "get", "bookie:3181"),
        ("top", "--once"),
        ("gc", "plan", "."),
        ("bookie", "format"),
    ],
    ids=" ".join,
)
def test_a_key_that_is_typed_wrongly_is_refused_by_every_command(
    run_cli: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The wrong cluster or a default would be taken without a word."""
    env = {"BKCTL_METADATA_URI": None}
    uri = f"metadataServiceURI=embedded://{tmp_path}/m.db"
    result = run_cli(*words, "-X", uri, "--metadata", f"embedded://{tmp_path}/other.db", env=env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'metadataServiceURI' is not a known key; did you mean metadataServiceUri?" in result.stderr
    assert list(tmp_path.iterdir()) == []

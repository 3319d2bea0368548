"""Our client with TLS and with SASL against a Java bookie that wants them, over both protocols."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.errors import BkctlError
from bkctl.net.digest_md5 import DigestMd5
from bkctl.net.settings import NetSettings
from bkctl.net.tls import ClientTlsSettings
from bkctl.protocol.messages import Wire
from bkctl.types import LedgerState
from tests.support.grades import one_kept
from tests.support.java_cluster import SETTINGS, THEIRS, BookieProcess, new_cluster
from tests.support.tls_files import CERTIFICATE, KEY, PEMS, STRICT_BOOKIE_TLS
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

CLIENT_TLS = ClientTlsSettings(trust_path=CERTIFICATE, certificate_path=CERTIFICATE, key_path=KEY)
JAVA_BOOKIE_TLS = {**STRICT_BOOKIE_TLS, "tlsProvider": "JDK"}

#: A client whose certificate says (OU) that it has the role "operator".
OPERATOR = ClientTlsSettings(
    trust_path=CERTIFICATE,
    certificate_path=str(PEMS / "operator-cert.pem"),
    key_path=str(PEMS / "operator-key.pem"),
)
BOOKIE_ROLES = {
    **JAVA_BOOKIE_TLS,
    "tlsTrustStore": str(PEMS / "operator-cert.pem"),
    "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.tls.BookieAuthZFactory",
    "authorizedRoles": "operator",
}

STRANGER = ClientTlsSettings(trust_path=str(PEMS / "operator-cert.pem"))

USER = DigestMd5("bookkeeper-operator", "secret")
JAAS = """Bookie {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_bookkeeper-operator="secret";
};
"""
BOOKIE_SASL = {"bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"}

wires = pytest.mark.parametrize("wire", list(Wire))


@contextlib.contextmanager
def java_bookie(server: ZooKeeperServer, folder: Path, conf: dict[str, str]) -> Iterator[str]:
    """The metadata URI of a cluster of one bookie of Java's."""
    uri = new_cluster(server)
    with BookieProcess(folder, uri, conf=conf) as bookie:
        bookie.start(THEIRS)
        yield uri


@pytest.fixture(scope="module")
def with_tls(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    with java_bookie(zookeeper_server, tmp_path_factory.mktemp("tls"), JAVA_BOOKIE_TLS) as uri:
        yield uri


@pytest.fixture(scope="module")
def with_sasl(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("sasl")
    jaas = folder / "jaas.conf"
    jaas.write_text(JAAS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={jaas}")
        with java_bookie(zookeeper_server, folder, BOOKIE_SASL) as uri:
            yield uri


@pytest.fixture(scope="module")
def with_roles(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    with java_bookie(zookeeper_server, tmp_path_factory.mktemp("roles"), BOOKIE_ROLES) as uri:
        yield uri


def settings(net: NetSettings) -> ClientSettings:
    return ClientSettings(add_timeout_ms=5_000, read_timeout_ms=5_000, net=net)


def written_read_and_recovered(uri: str, net: NetSettings) -> None:
    """All that a client does: write, leave open, recover, read."""
    payloads = [b"%d" % number * 100 for number in range(50)]
    with BookKeeperSync(uri, settings(net), metadata=SETTINGS) as client:
        writer = client.create(1, 1, 1, password=b"pw")
        writer.append_all(payloads)
        assert client.recover(writer.ledger).metadata.state is LedgerState.CLOSED
        assert [entry.payload for entry in client.open(writer.ledger).entries()] == payloads


def refused(uri: str, net: NetSettings) -> str:
    """What a client is told that cannot write."""
    with BookKeeperSync(uri, settings(net), metadata=SETTINGS) as client:
        writer = client.create(1, 1, 1)
        with pytest.raises(BkctlError) as failed:
            writer.append(b"never")
        causes = [str(failed.value)]
        with pytest.raises(BkctlError) as failed:
            client.recover(writer.ledger)
        return "; ".join([*causes, str(failed.value)])


@wires
def test_tls_with_a_certificate(with_tls: str, wire: Wire) -> None:
    written_read_and_recovered(with_tls, NetSettings(wire=wire, tls=CLIENT_TLS))


def test_tls_without_a_certificate_is_refused_by_the_bookie(with_tls: str) -> None:
    assert "bookie 127.0.0.1:" in refused(
        with_tls, NetSettings(tls=ClientTlsSettings(trust_path=CERTIFICATE))
    )


def test_a_bookie_that_is_not_trusted_is_not_talked_to(with_tls: str) -> None:
    assert "its certificate is not trusted" in refused(with_tls, NetSettings(tls=STRANGER))


def test_javas_bookie_serves_in_clear_although_it_asks_for_certificates(with_tls: str) -> None:
    """The reason why ours refuses that: asking for certificates authenticates nobody who leaves TLS out."""
    written_read_and_recovered(with_tls, NetSettings())


@wires
def test_sasl(with_sasl: str, wire: Wire) -> None:
    written_read_and_recovered(with_sasl, NetSettings(wire=wire, authentication=USER))


@wires
def test_sasl_with_a_wrong_password_ends_in_time(with_sasl: str, wire: Wire) -> None:
    # The bookie answers nothing at all.
    wrong = DigestMd5(USER.user, "wrong")
    said = refused(with_sasl, NetSettings(wire=wire, authentication=wrong, connect_timeout_ms=1_000))
    assert "connected, but TLS or authentication not done within 1 s" in said


@wires
def test_without_sasl_the_error_says_that_it_may_be_needed(with_sasl: str, wire: Wire) -> None:
    assert "not authenticated" in refused(with_sasl, NetSettings(wire=wire))


@wires
def test_a_bookie_without_authentication_is_refused_unless_that_is_allowed(with_tls: str, wire: Wire) -> None:
    """Java's own client goes on; the bookie itself would let ours in."""
    net = NetSettings(wire=wire, tls=CLIENT_TLS, authentication=USER)
    assert "wants no authentication" in refused(with_tls, net)
    written_read_and_recovered(with_tls, replace(net, allow_unauthenticated_bookies=True))


@wires
def test_a_bookie_that_authorises_by_certificates_wants_no_message_more(with_roles: str, wire: Wire) -> None:
    written_read_and_recovered(with_roles, NetSettings(wire=wire, tls=OPERATOR))


@pytest.mark.parametrize("wire", one_kept("as in the other version", *Wire))
def test_and_lets_nobody_in_without_tls(with_roles: str, wire: Wire) -> None:
    assert "bookie 127.0.0.1:" in refused(with_roles, NetSettings(wire=wire))

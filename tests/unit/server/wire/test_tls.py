"""TLS from PEM files: what is accepted, what is refused and names its file, and a handshake."""

from __future__ import annotations

import shutil
import socket
import ssl
from pathlib import Path

import pytest

from bkctl.config.server_keys.security import BookieTlsSettings
from bkctl.errors import UsageError
from bkctl.protocol.connection import ClientConnection, Completed
from bkctl.protocol.messages import StartTlsRequest, Wire
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.server.wire.tls import server_context
from bkctl.types import ResultCode
from tests.demo_client import DemoClient

#: Made once with `openssl req -x509 -newkey ec -nodes -days 36500 ...` and `openssl pkcs8 -topk8`.
PEMS = Path(__file__).parents[3] / "data" / "tls"


@pytest.fixture
def pems(tmp_path: Path) -> Path:
    """key.pem, locked.pem (the same key under a password), cert.pem, password; and two bad passwords."""
    place = shutil.copytree(PEMS, tmp_path / "pems")
    (place / "wrong").write_text("something else")
    (place / "binary").write_bytes(b"\xff\xfe")
    for path in place.iterdir():
        path.chmod(0o600)
    return place


def settings(pems: Path, **changes: object) -> BookieTlsSettings:
    values: dict[str, object] = {
        "key_path": str(pems / "key.pem"),
        "certificate_path": str(pems / "cert.pem"),
        "key_password_path": None,
        "trust_path": None,
        "client_authentication": False,
        "required": False,
        "protocols": (),
    }
    return BookieTlsSettings(**{**values, **changes})  # type: ignore[arg-type]


def test_pem_files_make_a_context(pems: Path) -> None:
    context = server_context(settings(pems))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
    context = server_context(
        settings(
            pems,
            key_path=str(pems / "locked.pem"),
            key_password_path=str(pems / "password"),
            trust_path=str(pems / "cert.pem"),
            client_authentication=True,
            protocols=("TLSv1.3",),
        )
    )
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"key_path": "none.pem"}, "tlsKeyStore=.*none.pem"),
        ({"certificate_path": "none.pem"}, "tlsCertificatePath=.*none.pem"),
        ({"certificate_path": "password"}, "tlsCertificatePath=.*password"),
        ({"key_path": "cert.pem"}, "tlsKeyStore=.*cert.pem"),
        # Without a password OpenSSL would ask for it on the terminal, and wait.
        ({"key_path": "locked.pem"}, "tlsKeyStore=.*locked.pem"),
        ({"key_path": "locked.pem", "key_password_path": "wrong"}, "tlsKeyStore=.*locked.pem"),
        ({"key_path": "locked.pem", "key_password_path": "none"}, "tlsKeyStorePasswordPath=.*No such file"),
        ({"key_path": "locked.pem", "key_password_path": "binary"}, "tlsKeyStorePasswordPath=.*not UTF-8"),
        ({"trust_path": "none.pem"}, "tlsTrustStore=.*none.pem"),
        ({"trust_path": "password"}, "tlsTrustStore=.*password"),
        ({"protocols": ("SSLv3",)}, "tlsEnabledProtocols=SSLv3"),
    ],
)
def test_what_cannot_be_used_is_named(pems: Path, changes: dict[str, object], said: str) -> None:
    found = {
        key: str(pems / value) if key.endswith("_path") and isinstance(value, str) else value
        for key, value in changes.items()
    }
    with pytest.raises(UsageError, match=said):
        server_context(settings(pems, **found))


def keys(pems: Path, **more: str) -> dict[str, str]:
    return {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(pems / "key.pem"),
        "tlsCertificatePath": str(pems / "cert.pem"),
        **more,
    }


def test_a_bookie_does_not_start_with_files_it_cannot_use(tmp_path: Path, pems: Path) -> None:
    bookie = EmbeddedBookie(tmp_path, overrides=keys(pems, tlsKeyStore="/no/such/key.pem"))
    with pytest.raises(UsageError, match=r"tlsKeyStore=/no/such/key\.pem"):
        bookie.start()
    assert not (tmp_path / "journal").exists()


def test_a_connection_is_secured_when_the_client_asks(tmp_path: Path, pems: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(pems / "cert.pem"))
    with EmbeddedBookie(tmp_path, overrides=keys(pems)) as bookie:
        client = DemoClient(bookie.port)
        plain: socket.socket = client._socket
        connection: ClientConnection = client._connection
        plain.sendall(connection.send(StartTlsRequest(wire=Wire.V3)))
        (answer,) = connection.feed(plain.recv(4096))
        assert isinstance(answer, Completed)
        assert answer.response.code is ResultCode.OK  # type: ignore[attr-defined]
        with trusting.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
            client._socket = secured
            assert client.add(1, range(5)).done == list(range(5))
            assert secured.version() == "TLSv1.3"
        # TLS is offered, not asked for: as in Java.
        with DemoClient(bookie.port) as other:
            assert other.read(1, range(5)).done == list(range(5))

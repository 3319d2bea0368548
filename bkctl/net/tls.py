"""TLS of a client, from PEM files (Java: ``TLSContextFactory.createClientContext``).

A connection begins in clear and goes on in TLS after START_TLS; see :mod:`bkctl.net.handshake`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from bkctl.config.keys import field_of
from bkctl.config.secret_file import read_secret, require_secret
from bkctl.config.server_keys import SERVER_KEYS
from bkctl.errors import UsageError

_PASSWORD_BYTES_MAX = 4096
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class ClientTlsSettings:
    """PEM files of a client, with BookKeeper's keys. A client's key comes before a bookie's (``tls...``).

    ``trust_path`` (``clientTrustStore``) holds the certificates that bookies' are checked against. There is
    no fallback to the system's authorities: any certificate that can be bought would be a bookie's.
    ``certificate_path`` (``tlsCertificatePath``) and ``key_path`` (``clientKeyStore``), whose password may
    stand in the file ``key_password_path``, are shown to bookies that ask. The certificate counts only beside
    a key, so no key of the configuration fills it by itself.
    ``protocols`` (``tlsEnabledProtocols``) empty: TLSv1.2 and newer. ``verify_host_names``
    (``tlsHostnameVerificationEnabled``): the certificate must name the host that was connected to.
    """

    trust_path: str | None = field_of(SERVER_KEYS["clientTrustStore"])
    certificate_path: str | None = None
    key_path: str | None = field_of(SERVER_KEYS["clientKeyStore"])
    key_password_path: str | None = field_of(SERVER_KEYS["clientKeyStorePasswordPath"])
    protocols: tuple[str, ...] = field_of(SERVER_KEYS["tlsEnabledProtocols"])
    verify_host_names: bool = field_of(SERVER_KEYS["tlsHostnameVerificationEnabled"])

    def __post_init__(self) -> None:
        if (self.certificate_path is None) != (self.key_path is None):
            raise UsageError(
                "a client certificate (--tls-cert, tlsCertificatePath) and its private key (--tls-key, "
                "tlsKeyStore) go together"
            )


def client_context(settings: ClientTlsSettings) -> ssl.SSLContext:
    """Return the client's side. Raises UsageError naming the file that cannot be used."""
    if settings.trust_path is None:
        raise UsageError(
            "TLS needs the certificates that bookies' are checked against, a PEM file: --tls-ca, "
            "tlsTrustStore (/etc/ssl/certs/ca-certificates.crt are this system's authorities on many systems)"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verify_host_names
    context.verify_mode = ssl.CERT_REQUIRED
    limit_versions(context, settings.protocols)
    try:
        context.load_verify_locations(settings.trust_path)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--tls-ca, tlsTrustStore={settings.trust_path}: {error}") from error
    if settings.certificate_path is not None and settings.key_path is not None:
        require_secret(settings.key_path, f"--tls-key, tlsKeyStore={settings.key_path}")
        password = key_password(settings.key_password_path)
        try:
            context.load_cert_chain(settings.certificate_path, settings.key_path, password)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"--tls-cert, tlsCertificatePath={settings.certificate_path}, --tls-key, "
                f"tlsKeyStore={settings.key_path}: {error}"
            ) from error
    return context


def limit_versions(context: ssl.SSLContext, protocols: tuple[str, ...]) -> None:
    """Allow the versions of ``tlsEnabledProtocols``; TLSv1.2 and newer without any. Raises UsageError."""
    versions = [_VERSIONS[name] for name in protocols if name in _VERSIONS]
    if protocols and not versions:
        raise UsageError(f"tlsEnabledProtocols={','.join(protocols)}: known here are {', '.join(_VERSIONS)}")
    context.minimum_version = min(versions, default=ssl.TLSVersion.TLSv1_2)
    context.maximum_version = max(versions, default=ssl.TLSVersion.MAXIMUM_SUPPORTED)


def key_password(path: str | None) -> str:
    """Return the first line of a password file; empty without one, or OpenSSL would ask on the terminal."""
    if path is None:
        return ""
    content = read_secret(path, f"tlsKeyStorePasswordPath={path}", _PASSWORD_BYTES_MAX)
    try:
        return content.decode("utf-8").split("\n", 1)[0].removesuffix("\r")
    except UnicodeDecodeError as error:
        raise UsageError(f"tlsKeyStorePasswordPath={path}: not UTF-8 text") from error

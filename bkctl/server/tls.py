"""TLS from PEM files, as START_TLS uses it (Java: ``TLSContextFactory``)."""

from __future__ import annotations

import ssl
from pathlib import Path

from bkctl.config.bookie import TlsSettings
from bkctl.errors import UsageError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The server's side. Raises UsageError naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in settings.protocols if name in _VERSIONS]
    if settings.protocols and not versions:
        raise UsageError(
            f"tlsEnabledProtocols={','.join(settings.protocols)}: known here are {', '.join(_VERSIONS)}"
        )
    context.minimum_version = min(versions, default=ssl.TLSVersion.TLSv1_2)
    context.maximum_version = max(versions, default=ssl.TLSVersion.MAXIMUM_SUPPORTED)
    password = _password(settings.key_password_path)
    try:
        context.load_cert_chain(settings.certificate_path, settings.key_path, password)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"tlsCertificatePath={settings.certificate_path}, tlsKeyStore={settings.key_path}: {error}"
        ) from error
    if settings.client_authentication:
        context.verify_mode = ssl.CERT_REQUIRED
    if settings.trust_path is not None:
        try:
            context.load_verify_locations(settings.trust_path)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"tlsTrustStore={settings.trust_path}: {error}") from error
    return context


def _password(path: str | None) -> str:
    """A password file holds the password as its first line.

    Empty without one: OpenSSL would ask on the terminal for the password of a key that has one.
    """
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").split("\n", 1)[0].removesuffix("\r")
    except OSError as error:
        raise UsageError(f"tlsKeyStorePasswordPath={path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"tlsKeyStorePasswordPath={path}: not UTF-8 text") from error

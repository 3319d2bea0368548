"""TLS from PEM files, as START_TLS uses it (Java: ``TLSContextFactory``)."""

from __future__ import annotations

import ssl

from bkctl.config.secret_file import require_secret
from bkctl.config.server_keys.security import BookieTlsSettings
from bkctl.errors import UsageError
from bkctl.net.tls import key_password, limit_versions


def server_context(settings: BookieTlsSettings) -> ssl.SSLContext:
    """Return the server's TLS context. Raises UsageError naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    limit_versions(context, settings.protocols)
    require_secret(settings.key_path, f"tlsKeyStore={settings.key_path}")
    password = key_password(settings.key_password_path)
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

"""A client's settings from BookKeeper's keys, as a ``bk_server.conf`` or a client's configuration has them.

The keys and the fields that they fill are declared in :mod:`bkctl.config.server_keys.client`. Keys of TLS are
a bookie's (``tlsTrustStore``), or a client's beside a bookie's (``clientTrustStore``), which come first.

Source: ``org.apache.bookkeeper.conf.ClientConfiguration``, ``AbstractConfiguration``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bkctl.client.settings import ClientSettings
from bkctl.config.values import GivenValues
from bkctl.errors import UsageError
from bkctl.net.authentication import AuthProvider
from bkctl.net.digest_md5 import DigestMd5
from bkctl.net.settings import NetSettings
from bkctl.net.tls import TlsSettings
from bkctl.protocol.messages import Wire

_SASL_FACTORY = "SASLClientProviderFactory"
#: Environment variables with the user of SASL and its password, in place of a JAAS file.
SASL_USER, SASL_PASSWORD = "BKCTL_SASL_USER", "BKCTL_SASL_PASSWORD"


def client_settings(
    values: GivenValues, environment: Mapping[str, str], tls: TlsSettings | None = None
) -> ClientSettings:
    """Return the settings; files in ``tls`` come before those of the keys.

    Raises UsageError naming the key that cannot be used.
    """
    return values.fill(ClientSettings, net=_net(values, environment, tls))


def _net(values: GivenValues, environment: Mapping[str, str], tls: TlsSettings | None) -> NetSettings:
    return values.fill(
        NetSettings,
        wire=Wire.V2 if values.truth("useV2WireProtocol") else Wire.V3,
        tls=_tls(values) if tls is None else _with_rules(tls, values),
        authentication=_authentication(values, environment),
    )


def _tls(values: GivenValues) -> TlsSettings | None:
    if values.text("tlsProviderFactoryClass") is None:
        return None
    trust = _store(values, "clientTrustStore", "tlsTrustStore")
    key = _store(values, "clientKeyStore", "tlsKeyStore")
    return values.fill(
        TlsSettings,
        trust_path=trust,
        certificate_path=None if key is None else values.text("tlsCertificatePath"),
        key_path=key,
        key_password_path=values.text("clientKeyStorePasswordPath") or values.text("tlsKeyStorePasswordPath"),
    )


def _with_rules(tls: TlsSettings, values: GivenValues) -> TlsSettings:
    """Return files that were named beside the keys, with what the keys demand of a bookie.

    Java's key leaves host names unchecked by default. Whoever names files here has no reason to: the check is
    on unless the key turns it off.
    """
    verify = "tlsHostnameVerificationEnabled"
    return replace(
        tls,
        protocols=values.texts("tlsEnabledProtocols"),
        verify_host_names=values.truth(verify) if values.is_given(verify) else True,
    )


def _store(values: GivenValues, *names: str) -> str | None:
    """Return the first of the files that is named. Raises UsageError when it is said to be none of PEM."""
    for name in names:
        path = values.text(name)
        if path is None:
            continue
        form = values.text(f"{name}Type") or "JKS"
        if form != "PEM":
            raise UsageError(
                f"{values.where(name)}: {name}: TLS wants PEM here, found {form}; convert the store (keytool "
                f"to PKCS12, then openssl pkcs12) and say {name}Type=PEM"
            )
        return path
    return None


def _authentication(values: GivenValues, environment: Mapping[str, str]) -> AuthProvider | None:
    factory = values.text("clientAuthProviderFactoryClass")
    if factory is None:
        return None
    if factory.rpartition(".")[2] != _SASL_FACTORY:
        raise UsageError(
            f"{values.where('clientAuthProviderFactoryClass')}: clientAuthProviderFactoryClass: known is "
            f"org.apache.bookkeeper.sasl.{_SASL_FACTORY} (DIGEST-MD5), found {factory[:200]!r}"
        )
    user, password = environment.get(SASL_USER), environment.get(SASL_PASSWORD)
    if user is None or password is None:
        raise UsageError(
            f"{values.where('clientAuthProviderFactoryClass')}: SASL needs a user and its password: set "
            f"{SASL_USER} and {SASL_PASSWORD}"
        )
    return DigestMd5(user, password)

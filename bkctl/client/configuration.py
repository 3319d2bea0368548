"""A client's settings from BookKeeper's keys, as a ``bk_server.conf`` or a client's configuration has them.

The keys and the fields that they fill are declared in :mod:`bkctl.config.server_keys.client`. Keys of TLS are
a bookie's (``tlsTrustStore``), or a client's beside a bookie's (``clientTrustStore``), which come first.

Source: ``org.apache.bookkeeper.conf.ClientConfiguration``, ``AbstractConfiguration``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bkctl.client.settings import ClientSettings
from bkctl.config.server_keys.client import SASL_FACTORY
from bkctl.config.values import GivenValues
from bkctl.errors import UsageError
from bkctl.net.authentication import AuthProvider
from bkctl.net.digest_md5 import DigestMd5
from bkctl.net.settings import NetSettings
from bkctl.net.tls import ClientTlsSettings

#: Environment variables with the user of SASL and its password, in place of a JAAS file.
SASL_USER, SASL_PASSWORD = "BKCTL_SASL_USER", "BKCTL_SASL_PASSWORD"


def client_settings(
    values: GivenValues, environment: Mapping[str, str], tls: ClientTlsSettings | None = None
) -> ClientSettings:
    """Return the settings; files in ``tls`` come before those of the keys.

    Raises UsageError naming the key that cannot be used.
    """
    return values.fill(ClientSettings, net=_net(values, environment, tls))


def _net(values: GivenValues, environment: Mapping[str, str], tls: ClientTlsSettings | None) -> NetSettings:
    return values.fill(
        NetSettings,
        tls=_tls(values) if tls is None else _with_rules(tls, values),
        authentication=_authentication(values, environment),
    )


def _tls(values: GivenValues) -> ClientTlsSettings | None:
    if values.text("tlsProviderFactoryClass") is None:
        return None
    stores = [
        next((name for name in names if values.text(name) is not None), None)
        for names in (("clientTrustStore", "tlsTrustStore"), ("clientKeyStore", "tlsKeyStore"))
    ]
    for store in stores:
        if store is not None:
            values.require_pem(store)
    certificate = None if stores[1] is None else values.text("tlsCertificatePath")
    return values.fill(ClientTlsSettings, certificate_path=certificate)


def _with_rules(tls: ClientTlsSettings, values: GivenValues) -> ClientTlsSettings:
    """Return files that were named beside the keys, with the keys' rules about bookies' certificates.

    Java's key leaves host names unchecked by default. When files are named here there is no reason for that:
    host names are checked unless the key turns the check off.
    """
    verify = "tlsHostnameVerificationEnabled"
    return replace(
        tls,
        protocols=values.texts("tlsEnabledProtocols"),
        verify_host_names=values.truth(verify) if values.is_given(verify) else True,
    )


def _authentication(values: GivenValues, environment: Mapping[str, str]) -> AuthProvider | None:
    factory = values.text("clientAuthProviderFactoryClass")
    if factory is None:
        return None
    if factory.rpartition(".")[2] != SASL_FACTORY.rpartition(".")[2]:
        raise UsageError(
            f"{values.where('clientAuthProviderFactoryClass')}: clientAuthProviderFactoryClass: known is "
            f"{SASL_FACTORY} (DIGEST-MD5), found {factory[:200]!r}"
        )
    user, password = environment.get(SASL_USER), environment.get(SASL_PASSWORD)
    if user is None or password is None:
        raise UsageError(
            f"{values.where('clientAuthProviderFactoryClass')}: SASL needs a user and its password: set "
            f"{SASL_USER} and {SASL_PASSWORD}"
        )
    return DigestMd5(user, password)

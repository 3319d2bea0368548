"""The right to connect, and encryption."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

TLS_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"

KEYS: list[ConfigKey] = []
_SEC = Declare(Area.SECURITY, KEYS)
_JKS = "PEM files need no store password"


_SEC.honoured(
    "tlsProviderFactoryClass",
    Kind.CLASS,
    None,
    "Set to offer TLS: clients ask for it with START_TLS, and the registration says so.",
    choices=(TLS_FACTORY,),
    default_text="no TLS",
)
_SEC.honoured(
    "tlsKeyStoreType",
    Kind.STRING,
    "JKS",
    "Form of the private key; with TLS it must be PEM here.",
    choices=("JKS", "PKCS12", "PEM"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieTlsSettings:
    """PEM files with which a bookie answers START_TLS."""

    key_path: str = _SEC.setting(
        "tlsKeyStore",
        Kind.PATH,
        None,
        "The private key, a PEM file, mode 0600 (0640 where root owns it).",
        default_text="none",
        unset="",
    )
    key_password_path: str | None = _SEC.setting(
        "tlsKeyStorePasswordPath",
        Kind.PATH,
        None,
        "A file with the private key's password, mode 0600 (0640 where root owns it).",
        default_text="the key has none",
    )
    certificate_path: str = _SEC.setting(
        "tlsCertificatePath",
        Kind.PATH,
        None,
        "The bookie's certificate and those between it and the root, a PEM file.",
        default_text="none",
        unset="",
    )
    _SEC.honoured(
        "tlsTrustStoreType",
        Kind.STRING,
        "JKS",
        "Form of the trusted certificates; with a tlsTrustStore it must be PEM here.",
        choices=("JKS", "PKCS12", "PEM"),
    )
    trust_path: str | None = _SEC.setting(
        "tlsTrustStore",
        Kind.PATH,
        None,
        "The certificates that client certificates are checked against, a PEM file.",
        default_text="none",
    )
    client_authentication: bool = _SEC.setting(
        "tlsClientAuthentication",
        Kind.BOOL,
        False,
        "Ask clients for a certificate and check it. Clients that do not start TLS are refused, which Java "
        "serves.",
    )
    required: bool = _SEC.setting(
        "bkctlTlsRequired",
        Kind.BOOL,
        None,
        "Refuse clients that do not start TLS, also without tlsClientAuthentication, which implies it.",
        default_text="the value of tlsClientAuthentication",
        java_default="no such key",
        unset=False,
    )
    protocols: tuple[str, ...] = _SEC.setting(
        "tlsEnabledProtocols",
        Kind.LIST,
        (),
        "Versions of TLS that are spoken: TLSv1.2, TLSv1.3.",
        default_text="TLSv1.2 and TLSv1.3",
    )


_SEC.planned(
    "tlsCertFilesRefreshDurationSeconds",
    Kind.LONG,
    0,
    "Look for new certificate files this often; 0: never.",
    unit="s",
)
_SEC.refused(
    "tlsEnabledCipherSuites",
    Kind.LIST,
    (),
    "Cipher suites by their Java names.",
    "cipher suites cannot be chosen yet, so ones that this key leaves out would be offered; take the key "
    "out, or narrow tlsEnabledProtocols",
)
_SEC.ignored("tlsProvider", Kind.STRING, "OpenSSL", "Python's ssl module is used")
_SEC.ignored("tlsTrustStorePasswordPath", Kind.PATH, None, _JKS)
_SEC.refused(
    "bookieAuthProviderFactoryClass",
    Kind.CLASS,
    None,
    "Java class that authenticates clients.",
    "this bookie has no authentication plug-ins and would let every client in; "
    "use TLS with tlsClientAuthentication, or a network that only clients reach, and take the key out",
)
_SEC.refused(
    "zkEnableSecurity",
    Kind.BOOL,
    False,
    "New ZooKeeper nodes belong to the session's user.",
    "a bookie does not log in to ZooKeeper, so the nodes would be open to everybody; "
    "take the key out to accept that",
)
_SEC.refused(
    "authorizedRoles",
    Kind.LIST,
    (),
    "Roles of client certificates that may use the bookie.",
    "roles are not checked yet, so everybody with a certificate of tlsTrustStore would be let in; give "
    "clients a certificate authority of their own, and take the key out",
)

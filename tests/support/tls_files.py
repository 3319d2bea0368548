"""The certificate and key of the tests, and bookies that use them. The certificate is its own authority."""

from __future__ import annotations

from pathlib import Path

PEMS = Path(__file__).parents[1] / "data" / "tls"
CERTIFICATE, KEY = str(PEMS / "cert.pem"), str(PEMS / "key.pem")
TLS_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"

#: A bookie that offers TLS, and one that lets nobody in without a certificate once TLS has begun.
BOOKIE_TLS = {
    "tlsProviderFactoryClass": TLS_FACTORY,
    "tlsKeyStoreType": "PEM",
    "tlsKeyStore": KEY,
    "tlsCertificatePath": CERTIFICATE,
}
STRICT_BOOKIE_TLS = {
    **BOOKIE_TLS,
    "tlsTrustStoreType": "PEM",
    "tlsTrustStore": CERTIFICATE,
    "tlsClientAuthentication": "true",
}

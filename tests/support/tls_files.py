"""The certificate and key of the tests, and bookies that use them. The certificate is its own authority."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path


def _private_copy() -> Path:
    """Git keeps no modes, and a key that others can read is refused."""
    folder = Path(tempfile.mkdtemp(prefix="bkctl-pems-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path in (Path(__file__).parents[1] / "data" / "tls").iterdir():
        shutil.copyfile(path, folder / path.name)
        (folder / path.name).chmod(0o600)
    return folder


PEMS = _private_copy()
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

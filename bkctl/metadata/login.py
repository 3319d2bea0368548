"""The user as whom a command logs in to ZooKeeper, from the environment: of its digest scheme, or of SASL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bkctl.errors import UsageError
from bkctl.metadata.settings import Credentials, MetadataSettings

#: Environment variables: user:password of ZooKeeper's digest scheme; a user of SASL, its password.
ZK_DIGEST, ZK_SASL_USER, ZK_SASL_PASSWORD = "BKCTL_ZK_DIGEST", "BKCTL_ZK_SASL_USER", "BKCTL_ZK_SASL_PASSWORD"


def logged_in(environment: Mapping[str, str], settings: MetadataSettings | None = None) -> MetadataSettings:
    """Return settings with the user that the environment names. Raises UsageError for half of a SASL user."""
    user, password = environment.get(ZK_SASL_USER), environment.get(ZK_SASL_PASSWORD)
    if bool(user) != bool(password):
        raise UsageError(f"{ZK_SASL_USER} and {ZK_SASL_PASSWORD} go together")
    return replace(
        settings or MetadataSettings(),
        sasl=Credentials(user, password) if user and password else None,
        digest_auth=environment.get(ZK_DIGEST) or None,
    )

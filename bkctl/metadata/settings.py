"""The settings for opening a metadata store, with BookKeeper's keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.errors import UsageError

_TIMEOUT_MS_MAX = 3_600_000


@dataclass(frozen=True, slots=True)
class Credentials:
    """A SASL DIGEST-MD5 user, as in the ``Client`` section of a JAAS file."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """Bounds of the waits, and access control.

    ``session_timeout_ms`` is ``zkTimeout`` (and the embedded store's lease): how long after a process's death
    its registration stays. ``connect_timeout_ms`` bounds the first connection, ``operation_timeout_ms`` every
    operation with its retries; between retries stand ``retry_backoff_start_ms`` to ``retry_backoff_max_ms``
    (``zkRetryBackoffStartMs``, ``zkRetryBackoffMaxMs``). ``secure_acls`` is ``zkEnableSecurity``: new nodes
    belong to the session's user. ``sasl`` needs the package ``pure-sasl``; ``digest_auth`` is
    ``user:password`` for ZooKeeper's digest scheme. ``watch_poll_ms`` is how often an embedded store looks
    for changes.
    """

    session_timeout_ms: int = 10_000
    connect_timeout_ms: int = 10_000
    operation_timeout_ms: int = 30_000
    retry_backoff_start_ms: int = 100
    retry_backoff_max_ms: int = 2_000
    secure_acls: bool = False
    sasl: Credentials | None = None
    digest_auth: str | None = field(default=None, repr=False)
    watch_poll_ms: int = 250

    def __post_init__(self) -> None:
        for name in (
            "session_timeout_ms",
            "connect_timeout_ms",
            "operation_timeout_ms",
            "retry_backoff_start_ms",
            "retry_backoff_max_ms",
            "watch_poll_ms",
        ):
            if not 1 <= getattr(self, name) <= _TIMEOUT_MS_MAX:
                raise UsageError(f"{name} must be 1 to {_TIMEOUT_MS_MAX}")

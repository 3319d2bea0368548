"""The identity of a bookie, and the checks before its start."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

KEYS: list[ConfigKey] = []
_ID = Declare(Area.IDENTITY, KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySettings:
    """The identity of a bookie; ``bkctl.server.life.identity`` makes the id of it."""

    bookie_id: str | None = _ID.setting(
        "bookieId",
        Kind.STRING,
        None,
        "A fixed name for the bookie. Letters, digits and : ; < = > ? @ [ \\ ] ^ _ . - are allowed.",
        default_text="advertisedAddress or the interface's address, and the port",
    )
    port: int = _ID.setting(
        "bookiePort",
        Kind.INT,
        3181,
        "The port that clients connect to; 0 lets the system choose, with allowEphemeralPorts only.",
        lower=0,
        upper=65535,
        sample="3181",
    )
    advertised_address: str | None = _ID.setting(
        "advertisedAddress",
        Kind.STRING,
        None,
        "Host name or address that is written into the bookie's id and its registration.",
        default_text="the interface's address; 127.0.0.1 without a configuration file",
    )
    listening_interface: str | None = _ID.setting(
        "listeningInterface",
        Kind.STRING,
        None,
        "The network interface to listen on; its address makes the id unless another key does.",
        default_text="all interfaces; the loopback without a configuration file",
    )
    allow_loopback: bool = _ID.setting(
        "allowLoopback",
        Kind.BOOL,
        False,
        "Accept a loopback address as the bookie's id, which bookies of other machines may have as well.",
        default_text="false; true without a configuration file",
    )
    use_host_name: bool = _ID.setting(
        "useHostNameAsBookieID", Kind.BOOL, False, "Use the host name in the id, not the address."
    )
    use_short_host_name: bool = _ID.setting(
        "useShortHostName", Kind.BOOL, False, "With useHostNameAsBookieID: the name up to its first dot."
    )
    _ID.honoured("allowEphemeralPorts", Kind.BOOL, False, "Accept bookiePort=0; for tests.")
    permitted_users: tuple[str, ...] = _ID.setting(
        "permittedStartupUsers",
        Kind.LIST,
        (),
        "System users that may start the bookie, so that no file ends up owned by another one.",
        default_text="every user",
    )
    #: Listen on the loopback only: there is no configuration file, or it was not asked for more.
    loopback_only: bool = False


_ID.planned("localConsistencyCheckOnStartup", Kind.BOOL, False, "Check the index before serving.")
_ID.planned(
    "dataIntegrityChecking",
    Kind.BOOL,
    False,
    "Start with lost disks: fence, check again and fetch what is missing from other bookies.",
)
_ID.planned(
    "dataIntegrityStampMissingCookies",
    Kind.BOOL,
    False,
    "With dataIntegrityChecking: write missing cookies again after the check.",
)
_ID.ignored(
    "skipReplayJournalInvalidRecord",
    Kind.BOOL,
    False,
    "a damaged journal is passed only with `bkctl bookie start --accept-loss`, which lists what was lost",
)
_ID.ignored(
    "enableLocalTransport",
    Kind.BOOL,
    False,
    "connections within a Java process; EmbeddedBookie serves tests",
)
_ID.ignored(
    "disableServerSocketBind",
    Kind.BOOL,
    False,
    "connections within a Java process; EmbeddedBookie serves tests",
)
_ID.ignored(
    "bookieDeathWatchInterval", Kind.INT, 1000, "a part that fails stops the bookie at once", unit="ms"
)
_ID.ignored("extraServerComponents", Kind.LIST, (), "Java classes (stream storage)")
_ID.ignored("ignoreExtraServerComponentsStartupFailures", Kind.BOOL, False, "Java classes (stream storage)")

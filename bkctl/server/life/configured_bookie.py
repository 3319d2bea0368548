"""The identity that a configuration gives its bookie, for commands that do not start it."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.codec.cookie import Cookie
from bkctl.config.bookie import BookieConfig
from bkctl.directories.cookie_rules import cookie_of
from bkctl.server.life.identity import SystemHostNames, bookie_id, candidate_ids
from bkctl.server.life.new_bookie import port_of_before


@dataclass(frozen=True, slots=True)
class ConfiguredBookie:
    """``bookie`` is the id, ``ids`` every id that its cookie may stand under, the own one last."""

    bookie: str
    ids: tuple[str, ...]


def configured_bookie(config: BookieConfig) -> ConfiguredBookie:
    """Return the ids. A port that the system chooses is taken from the cookie of before.

    Raises UsageError, RefusedError as :func:`bkctl.server.life.identity.bookie_id`, and as
    :func:`bkctl.directories.bookie_directories.examine` where a port has to be looked for.
    """
    names = SystemHostNames()
    port = config.identity.port or port_of_before(config)
    return ConfiguredBookie(
        bookie_id(config.identity, port, names), tuple(candidate_ids(config.identity, port, names))
    )


def configured_cookie(config: BookieConfig, instance_id: str | None) -> Cookie:
    """Return the cookie that the configuration asks for. Raises as :func:`configured_bookie`."""
    return cookie_of(configured_bookie(config).bookie, config.directories, instance_id)

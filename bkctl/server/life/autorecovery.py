"""Autorecovery of a configuration, with a session of its own: beside a bookie, or as a process.

Beside a bookie nothing that happens to it ends the bookie. Where it may not run (a cluster whose auditor
Pulsar's metadata driver elects) that is logged once; after any other failure it starts over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial

from bkctl.client.configuration import client_settings
from bkctl.client.placement_configuration import policy_choice
from bkctl.config.bookie import BookieConfig
from bkctl.errors import RefusedError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.opening import open_on_thread
from bkctl.replication.configuration import auditor_settings, worker_settings
from bkctl.replication.service import AutoRecovery, AutoRecoverySettings
from bkctl.server.life.new_bookie import open_bookie_metadata

_log = logging.getLogger(__name__)

#: Between a failure and the next try.
_AGAIN_S = 30.0

#: How long a stop waits for the vote and the locks to be given back. The end of the session does that, too.
STOP_TIMEOUT_S = 5.0


def autorecovery_settings(config: BookieConfig) -> AutoRecoverySettings:
    """Return what a configuration says of the auditor, the worker and their client. Raises UsageError."""
    values = config.values
    return AutoRecoverySettings(
        auditor_settings(values), worker_settings(values), client_settings(values, os.environ)
    )


def autorecovery_of(config: BookieConfig, store: MetadataStore, bookie: str) -> AutoRecovery:
    """Return the autorecovery of a configuration, not running yet; made within its event loop."""
    settings = autorecovery_settings(config)
    choice = policy_choice(config.values, store, settings.client.net)
    if choice is None:
        return AutoRecovery(store, bookie, settings)
    return AutoRecovery(store, bookie, settings, choice=choice, adheres=choice.adheres, mends=choice.mends)


class AutoRecoveryDaemon:
    """Autorecovery beside a bookie, on its event loop. Raises UsageError for settings that cannot be."""

    def __init__(self, config: BookieConfig, bookie: str) -> None:
        autorecovery_settings(config)
        self._config = config
        self._bookie = bookie
        self._task: asyncio.Task[None] | None = None
        self._store: MetadataStore | None = None
        #: The auditor and worker that run now.
        self.recovery: AutoRecovery | None = None

    def start(self) -> None:
        """Begin in the background."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Give the vote and the locks back, as far as the store answers, and end the session."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=STOP_TIMEOUT_S)
        if not done and self._store is not None:
            # The flush of the bookie comes behind this. A call that waits for an answer ends with the store.
            _log.warning("the metadata store does not answer; autorecovery ends with its session")
            await asyncio.to_thread(self._store.close)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _run(self) -> None:
        while True:
            try:
                await self._run_once()
            except RefusedError as error:
                _log.error("no autorecovery here: %s", error, extra={"event": "autorecovery_refused"})
                return
            except Exception:  # noqa: BLE001 - the bookie beside it goes on
                if self._task is None:
                    return  # a stop: only the giving back has failed, and the session does that, too
                _log.exception("autorecovery failed; it starts over in %g s", _AGAIN_S)
            await asyncio.sleep(_AGAIN_S)

    async def _run_once(self) -> None:
        store = await open_on_thread(partial(open_bookie_metadata, self._config))
        self._store = store
        try:
            self.recovery = autorecovery_of(self._config, store, self._bookie)
            _log.info("autorecovery runs in this process", extra={"event": "autorecovery"})
            await self.recovery.run()
        finally:
            self.recovery = None
            await asyncio.to_thread(store.close)
            self._store = None

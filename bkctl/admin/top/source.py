"""The sources of samples, as a screen sees them: live bookies or a recording."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from bkctl.admin.top.sample import ClusterSample, EntryLogState


class SampleSource(Protocol):
    """Gives one sample after another; used by one task of one event loop."""

    @property
    def title(self) -> str:
        """The title of what is watched, for a heading."""

    async def sample(self) -> ClusterSample:
        """Return the next sample, within a few seconds.

        A bookie that does not answer is a row with an error; nothing that happens to a bookie or to the
        metadata store is raised. The first sample of live bookies has no rates. A recording gives its next
        sample, at its end the last one again.
        """

    async def logs(self, bookie: str, ledger_dir: str) -> tuple[EntryLogState, ...]:
        """List the entry logs of a ledger directory, ascending by id.

        ``bookie`` and ``ledger_dir`` are as in the last sample. Raises BkctlError when the bookie does not
        answer or does not report its logs (Java bookies and recordings do not).
        """

    async def close(self) -> None:
        """Give back connections and files; may be called again."""


@runtime_checkable
class Replay(SampleSource, Protocol):
    """A recording, which can be moved in."""

    @property
    def count(self) -> int:
        """Samples in the recording, 1 or more."""

    @property
    def position(self) -> int:
        """Number of the sample given last, from 0; -1 before the first one."""

    @property
    def at_end(self) -> bool:
        """Whether the last sample was given."""

    def step(self, by: int) -> ClusterSample:
        """Return the sample ``by`` behind (or, negative, before) the current one, at most to either end."""

    def seek(self, position: int) -> ClusterSample:
        """Return the sample with this number, the nearest one if there is none."""

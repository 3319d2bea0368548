"""Gathers the runs of adds that one turn of the event loop finds on several sockets, to hand them on as one.

Where many clients have a few adds each in progress, every socket brings a short run. The engine spends the
same time on a run of five entries as on one of a hundred: it takes its lock, calls the write cache, gives the
journal a batch and wakes the journal's thread. So runs that are read one after the other go there together:

===================================== ========================================================================
a run                                 is handed to the engine
===================================== ========================================================================
that comes while no add is in         at once, because no other socket is likely to bring one soon
progress
of lists, of ``ENTRIES_MAX`` entries  at once, behind the runs that were gathered
or of ``BYTES_MAX`` bytes
of any other kind                     with the runs that were gathered before it: when they have reached one
                                      of the two bounds together, when a request arrives that is not an add,
                                      and at the latest before the loop waits for its sockets again
===================================== ========================================================================

The runs of a connection keep the order in which they came.
"""

from __future__ import annotations

from bkctl.protocol.runs import AddRun, PackedAddRun
from bkctl.server.wire.add_answers import PendingAdds
from bkctl.server.wire.add_runs import add_runs
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.port import Port

#: Gathering more saves hardly anything, and the journal would have nothing to do for longer.
ENTRIES_MAX = 128
BYTES_MAX = 256 * 1024


class GatheredAdds:
    """The runs of one port that wait for the end of the loop's turn. On the loop's thread only."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._pending: list[PendingAdds] = []
        self._entries = 0
        self._bytes = 0
        #: Whether the loop will call at the end of its turn.
        self._called = False

    def add(self, connection: Channel, run: AddRun) -> None:
        """Take a run in; see the module's docstring for when the engine gets it.

        After an error the run is not in progress, or the engine gets it like any other; its connection ends.
        """
        port = self._port
        adds = port.adds
        pending = PendingAdds(connection, run, port.now_s())
        count, size_bytes = pending.count, pending.size_bytes
        is_large = count >= ENTRIES_MAX or size_bytes >= BYTES_MAX
        if is_large or not adds.meter.length or not isinstance(run, PackedAddRun):
            self.hand_over()
            alone = [pending]
            adds.begin(connection, count, size_bytes)
            add_runs(port, alone)
            return
        # All that may find no memory comes first: a run that is counted is among those that the engine gets.
        entries, gathered_bytes = self._entries + count, self._bytes + size_bytes
        if not self._called:
            port.loop.call_soon(self._turn_ends)
            self._called = True
        self._pending.append(pending)
        try:
            adds.begin(connection, count, size_bytes)
        except BaseException:
            self._pending.pop()
            raise
        self._entries, self._bytes = entries, gathered_bytes
        if entries >= ENTRIES_MAX or gathered_bytes >= BYTES_MAX:
            self.hand_over()

    def hand_over(self) -> None:
        """Hand what was gathered to the engine."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._entries = self._bytes = 0
            add_runs(self._port, pending)

    def _turn_ends(self) -> None:
        self._called = False
        self.hand_over()

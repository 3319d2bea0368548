"""Any order of appends, answers and failures: completions are in order, and each has its ack quorum."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.machine import ChooseBookies, WriteMetadata
from bkctl.client.ops.write_adv import AdvWriteMachine
from bkctl.protocol.messages import AddRequest
from bkctl.types import ResultCode
from tests.support.machine_rig import ACCESS, Rig, metadata

ENTRIES_MAX = 8


@given(st.data(), st.permutations(range(ENTRIES_MAX)), st.sampled_from([(3, 2, 2), (3, 3, 2), (4, 2, 1)]))
def test_completions_are_in_order_and_covered(
    data: st.DataObject, order: list[int], quorums: tuple[int, int, int]
) -> None:
    machine = AdvWriteMachine(ACCESS, metadata(*quorums), 0)
    rig = Rig(machine).start()
    spares = iter("mnopqrstuvwxyz")
    left = list(order[: data.draw(st.integers(1, ENTRIES_MAX))])
    sent = set(left)
    tokens: dict[int, int] = {}
    holders: dict[int, set[str]] = {entry: set() for entry in sent}
    failures = 3
    while left or rig.open:
        if left and (not rig.open or data.draw(st.booleans())):
            appended = machine.append_at(left.pop(0), b"data")
            tokens[appended.token] = appended.entry
            rig.carry_out(appended.instructions)
        elif rig.of(ChooseBookies):
            rig.choose(*(next(spares) for _ in range(rig.only(ChooseBookies).count)))
        elif rig.of(WriteMetadata) and data.draw(st.booleans()):
            rig.stored(machine.version + 1)
        elif sends := rig.sends():
            send = data.draw(st.sampled_from(sends))
            assert isinstance(send.request, AddRequest)
            if failures and data.draw(st.integers(0, 5)) == 0:
                failures -= 1
                rig.answer(send.bookie, ResultCode.IO_ERROR, entry=send.request.entry)
            else:
                holders[send.request.entry].add(send.bookie)
                rig.answer(send.bookie, entry=send.request.entry)
        elif rig.of(WriteMetadata):
            rig.stored(machine.version + 1)
        check(rig, machine, tokens, holders, quorums[2])
    expected = next(entry for entry in range(ENTRIES_MAX + 1) if entry not in sent)
    assert machine.lac == expected - 1
    assert machine.length == expected * len(b"data")


def check(
    rig: Rig, machine: AdvWriteMachine, tokens: dict[int, int], holders: dict[int, set[str]], quorum: int
) -> None:
    """What was told so far."""
    assert machine.death is None
    done = [tokens[one.token] for one in rig.notified]
    assert done == list(range(len(done)))
    assert machine.lac == len(done) - 1
    for entry in done:
        segment = [one for one in machine.metadata.segments if one.first_entry <= entry][-1]
        assert len(holders[entry].intersection(segment.bookies)) >= quorum

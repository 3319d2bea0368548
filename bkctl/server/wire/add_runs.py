"""The way of a run of adds into the engine: as a whole where it can be, else in parts and single adds.

A run of compiled kernels goes to the engine together with those of other connections (``GatheredAdds``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from bkctl.engine.add_run import AddRun as EngineAddRun
from bkctl.engine.add_run import RecordRun, SingleAdd
from bkctl.engine.engine_thread import report
from bkctl.engine.ledger_descriptor import ledgers_of
from bkctl.protocol.framing import LENGTH_BYTES
from bkctl.protocol.messages import Wire
from bkctl.protocol.runs import AddRun, PackedAddRun, answer_adds
from bkctl.server.wire.add_answers import AddAnswers, PendingAdds
from bkctl.server.wire.answer_codes import code_of_any
from bkctl.server.wire.answers import end_unanswered
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.port import Port
from bkctl.types import ResultCode

_KEY_BYTES = 20
_ADDING = "adding entries"
_GROUPING = "grouping adds by their journal"
_COUNTING = "counting adds"


def add_runs(port: Port, pending: Sequence[PendingAdds]) -> None:
    """Hand runs to the engine as one run; those that it does not take as a whole are taken apart.

    Of a bookie with several directories or journals, those that go to the same ones are one run: no answer
    waits for another journal than its own. Never raises: what an unforeseen error leaves is refused.
    """
    groups: Sequence[Sequence[PendingAdds]] | None = None
    handed_in = 0
    try:
        groups = _groups(pending, port.bookie.writes.parts)
        while handed_in < len(groups):
            _add_group(port, groups[handed_in])
            handed_in += 1
    except Exception as error:  # noqa: BLE001 - the connections of the other runs would wait in vain
        for group in (pending,) if groups is None else groups[handed_in:]:
            port.add_answers.refuse(group, code_of_any(_ADDING, error))


def _groups(pending: Sequence[PendingAdds], parts: int) -> Sequence[Sequence[PendingAdds]]:
    """Return runs by the part that all of their ledgers belong to; all together where one has several.

    So the adds to a ledger keep their order.
    """
    if parts == 1 or len(pending) == 1:
        return (pending,)
    groups: dict[int, list[PendingAdds]] = {}
    try:
        for each in pending:
            grants = each.run.packed_grants if isinstance(each.run, PackedAddRun) else b""
            its = {int.from_bytes(ledger, "big") % parts for ledger in ledgers_of(grants)}
            if len(its) != 1:
                return (pending,)
            groups.setdefault(its.pop(), []).append(each)
        return list(groups.values())
    except Exception as error:  # noqa: BLE001 - together they are answered all the same
        report(_GROUPING, error)
        return (pending,)


def _add_group(port: Port, pending: Sequence[PendingAdds]) -> None:
    """Hand runs to the engine as one run, else each by itself. Never raises."""
    handed_in = 0
    try:
        if _add_whole(port, pending):
            return
        for each in pending:
            if len(pending) == 1 or not _add_whole(port, [each]):
                add_one_by_one(each.connection, port, each.run)
            handed_in += 1
    except Exception as error:  # noqa: BLE001 - as in `add_runs`
        port.add_answers.refuse(pending[handed_in:], code_of_any(_ADDING, error))


def _add_whole(port: Port, pending: Sequence[PendingAdds]) -> bool:
    """Hand runs to the engine as one run; False when each of its entries must be handed in by itself."""
    started_s = port.now_s()
    try:
        run = _for_engine(pending, port.add_answers)
        taken = port.bookie.writes.add_run(run)
    except Exception as error:  # noqa: BLE001 - other connections' adds must not go without an answer
        # The journal has failed, mostly; whether the engine took the entries makes no difference now.
        port.add_answers.refuse(pending, code_of_any(_ADDING, error))
        return True
    if taken:
        # The engine answers from here on, and nobody else may: not even the way into a function that would
        # catch an error may fail, as it takes memory for its arguments.
        try:
            port.adds.took(run.count, port.now_s() - started_s)
        except Exception as error:  # noqa: BLE001 - the adds are taken, whatever is counted
            report(_COUNTING, error)
    return taken


def add_one_by_one(connection: Channel, port: Port, run: AddRun) -> None:
    """Add a run that the engine did not take as a whole: some ledger is new, fenced, or has another key.

    Entries of ledgers that are known stay together as far as they stand side by side, the others are
    added each by itself. Each entry is looked at a fixed number of times, however many ledgers are new.

    Never raises: what an unforeseen error leaves is refused.
    """
    refused: list[tuple[bytes, ResultCode]] = []
    refused_bytes = index = tried = 0
    try:
        while index < len(run):
            if index == tried:
                tried = max(index + 1, port.bookie.writes.end_of_known(run.grants, index))
                if tried - index > 1 and _add_part(connection, port, _slice(run, index, tried)):
                    index = tried
                    continue
            code = _add_single(connection, port, run, index)
            if code is not None:
                so_far_bytes = refused_bytes + len(run.bodies[index])
                refused.append((run.tokens[index], code))
                refused_bytes = so_far_bytes
            index += 1
    except Exception as error:  # noqa: BLE001 - as in `_add_whole`
        code = code_of_any(_ADDING, error)
        refused += [(token, code) for token in run.tokens[index:]]
        refused_bytes += sum(map(len, run.bodies[index:]))
    if refused:
        _refuse(connection, port, run.wire, refused, refused_bytes)


def _add_part(connection: Channel, port: Port, run: AddRun) -> bool:
    return _add_whole(port, [PendingAdds(connection, run, port.now_s())])


def _add_single(connection: Channel, port: Port, run: AddRun, index: int) -> ResultCode | None:
    """Add one entry of a run; return None when it was taken, else the answer."""
    started_s = port.now_s()
    try:
        one = _slice(run, index, index + 1)
        add = SingleAdd(
            run.bodies[index],
            run.grants[index][:_KEY_BYTES],
            port.add_answers,
            [PendingAdds(connection, one, started_s)],
        )
        port.bookie.writes.add(add)
    except Exception as error:  # noqa: BLE001 - as in `_add_whole`
        return code_of_any(_ADDING, error)
    try:
        port.adds.took(1, port.now_s() - started_s)
    except Exception as error:  # noqa: BLE001 - as in `_add_whole`
        report(_COUNTING, error)
    return None


def _refuse(
    connection: Channel, port: Port, wire: Wire, refused: list[tuple[bytes, ResultCode]], size_bytes: int
) -> None:
    """Answer entries that were refused; a connection on which that fails ends: its client asks others."""
    try:
        for code in {code for _, code in refused}:
            tokens = [token for token, its in refused if its is code]
            connection.write(answer_adds(wire, tokens, code))
            port.adds.refused[code] += len(tokens)
    except Exception as error:  # noqa: BLE001 - as in `_add_whole`
        report("refusing adds", error)
        end_unanswered([connection])
    finally:
        port.adds.end(len(refused), size_bytes)


def _for_engine(pending: Sequence[PendingAdds], sink: AddAnswers) -> EngineAddRun | RecordRun:
    """Return runs as the engine takes them, as one."""
    runs = [each.run for each in pending]
    packed = [run for run in runs if isinstance(run, PackedAddRun)]
    as_lists = partial(_as_lists, runs, sink, pending)
    if len(packed) < len(runs):
        return as_lists()
    grants, lacs, counts, records = _joined(packed)
    count = sum([each.count for each in pending])
    size_bytes = len(records) - LENGTH_BYTES * count
    return RecordRun(grants, lacs, counts, records, count, size_bytes, sink, pending, as_lists)


def _joined(runs: list[PackedAddRun]) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the grants, the last adds confirmed, the counts and the records of runs."""
    # Also of one run alone: it may have lain with others that were refused, which would be held with it.
    records = PackedAddRun.join(runs)
    if len(runs) == 1:
        return runs[0].packed_grants, runs[0].lacs, runs[0].counts, records
    return (
        b"".join([run.packed_grants for run in runs]),
        b"".join([run.lacs for run in runs]),
        b"".join([run.counts for run in runs]),
        records,
    )


def _as_lists(runs: list[AddRun], sink: AddAnswers, pending: Sequence[PendingAdds]) -> EngineAddRun:
    """Return runs as one, with an object for each entry."""
    return EngineAddRun(
        list(chain.from_iterable([run.grants for run in runs])),
        list(chain.from_iterable([run.keys for run in runs])),
        list(chain.from_iterable([run.bodies for run in runs])),
        sum([run.size_bytes for run in runs]),
        sink,
        pending,
    )


def _slice(run: AddRun, start: int, stop: int) -> AddRun:
    bodies = run.bodies[start:stop]
    return AddRun(
        run.wire,
        run.grants[start:stop],
        run.keys[start:stop],
        bodies,
        run.tokens[start:stop],
        sum(map(len, bodies)),
    )

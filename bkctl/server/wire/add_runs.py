"""The way of a run of adds into the engine: as a whole where it can be, else in parts and single adds."""

from __future__ import annotations

from bkctl.engine.add_run import AddRun as EngineAddRun
from bkctl.engine.add_run import RecordRun
from bkctl.engine.write_stage import SingleAdd
from bkctl.errors import BkctlError
from bkctl.protocol.messages import Wire
from bkctl.protocol.runs import AddRun, PackedAddRun, answer_adds
from bkctl.server.wire.add_answers import AddAnswers, PendingAdds
from bkctl.server.wire.answer_codes import code_of
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.port import Port
from bkctl.types import ResultCode

_KEY_BYTES = 20


def add_run(connection: Channel, port: Port, run: AddRun) -> None:
    """Hand a run to the engine; one that it does not take as a whole is taken apart."""
    port.adds.begin(connection, len(run), run.size_bytes)
    if not _add_whole(connection, port, run):
        add_one_by_one(connection, port, run)


def _add_whole(connection: Channel, port: Port, run: AddRun) -> bool:
    pending = PendingAdds(connection, run, port.now_s())
    try:
        taken = port.bookie.writes.add_run(_for_engine(run, port.add_answers, pending))
    except BkctlError as error:
        # The journal has failed; whether the engine took the entries makes no difference now.
        port.add_answers.refuse([pending], code_of(error))
        return True
    if taken:
        port.adds.took(len(run), port.now_s() - pending.since_s)
    return taken


def add_one_by_one(connection: Channel, port: Port, run: AddRun) -> None:
    """Add a run that the engine did not take as a whole: some ledger is new, fenced, or has another key.

    Entries of ledgers that are known stay together as far as they stand side by side, the others are
    added each by itself. Each entry is looked at a fixed number of times, however many ledgers are new.
    """
    refused: list[tuple[bytes, ResultCode]] = []
    refused_bytes = index = tried = 0
    while index < len(run):
        if index == tried:
            tried = max(index + 1, port.bookie.writes.end_of_known(run.grants, index))
            if tried - index > 1 and _add_whole(connection, port, _slice(run, index, tried)):
                index = tried
                continue
        code = _add_single(connection, port, run, index)
        if code is not None:
            refused.append((run.tokens[index], code))
            refused_bytes += len(run.bodies[index])
        index += 1
    if refused:
        _refuse(connection, port, run.wire, refused, refused_bytes)


def _add_single(connection: Channel, port: Port, run: AddRun, index: int) -> ResultCode | None:
    """Add one entry of a run; return None when it was taken, else the answer."""
    one = _slice(run, index, index + 1)
    started_s = port.now_s()
    add = SingleAdd(
        run.bodies[index],
        run.grants[index][:_KEY_BYTES],
        port.add_answers,
        PendingAdds(connection, one, started_s),
    )
    try:
        port.bookie.writes.add(add)
    except BkctlError as error:
        return code_of(error)
    port.adds.took(1, port.now_s() - started_s)
    return None


def _refuse(
    connection: Channel, port: Port, wire: Wire, refused: list[tuple[bytes, ResultCode]], size_bytes: int
) -> None:
    for code in {code for _, code in refused}:
        tokens = [token for token, its in refused if its is code]
        connection.write(answer_adds(wire, tokens, code))
        port.adds.refused[code] += len(tokens)
    port.adds.end(len(refused), size_bytes)


def _for_engine(run: AddRun, sink: AddAnswers, pending: PendingAdds) -> EngineAddRun | RecordRun:
    """Return a run as the engine takes it."""

    def as_lists() -> EngineAddRun:
        return EngineAddRun(run.grants, run.keys, run.bodies, run.size_bytes, sink, pending)

    if not isinstance(run, PackedAddRun):
        return as_lists()
    return RecordRun(
        run.distinct_grants,
        run.lacs,
        run.counts,
        run.records,
        len(run),
        run.size_bytes,
        sink,
        pending,
        as_lists,
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

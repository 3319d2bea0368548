"""``index repair`` and ``index limbo`` stopped at every step: taken back or whole, and done again."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterable

import pytest

from bkctl.admin.index.limbo import plan_limbo, set_limbo_on_record
from bkctl.admin.index.repair import plan_repair, repair_on_record
from bkctl.admin.ledgers.known_ledgers import DumpedCluster, KnownLedgers
from bkctl.admin.repairs.repair_chain import last_repair
from bkctl.admin.repairs.repair_undo import settle_unfinished, undo
from bkctl.client.ops.create import NewLedger
from bkctl.codec.cookie import Cookie
from bkctl.codec.file_info import KEY_AT
from bkctl.codec.ledger_data import decode_ledger_data, encode_ledger_data, encode_ledger_key
from bkctl.errors import BkctlError, RefusedError
from bkctl.types import DigestType
from tests.support import cluster_dumps
from tests.support.bookie_in_memory import ROOT, BookieInMemory
from tests.support.grades import steps
from tests.support.manual_clock import ManualClock
from tests.support.truthful_bookie import LIVE, TruthfulBookie

CURRENT = f"{ROOT}/l0/current"
STEPS_MAX = 300
Do = Callable[[BookieInMemory], None]


@pytest.fixture(scope="module", params=["db", "idx"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BookieInMemory:
    """A bookie with a wide row of a ledger, one of a deleted ledger, or with a damaged key in a file."""
    made = TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", request.param, 1)
    found = BookieInMemory.copy_of(made.root)
    files = found.disk.files
    path = f"{CURRENT}/ledgers/rows"
    if path in files:
        rows = json.loads(files[path])
        one, gone = encode_ledger_key(1).hex(), encode_ledger_key(3).hex()
        fenced = dataclasses.replace(decode_ledger_data(bytes.fromhex(rows[one])), fenced=True)
        rows |= {f"{key}{bytes(8).hex()}": encode_ledger_data(fenced).hex() for key in (one, gone)}
        rows.pop(gone, None)
        files[path] = json.dumps(rows).encode()
    else:
        path = sorted(name for name in files if name.endswith(".idx"))[0]
        data = bytearray(files[path])
        data[KEY_AT] ^= 1
        files[path] = bytes(data)
    return BookieInMemory(type(found.disk)(files))


def known_of(ledgers: Iterable[int]) -> KnownLedgers:
    metadata = NewLedger(1, 1, 1, DigestType.CRC32C, b"secret").metadata(("bookie:3181",))
    dump = cluster_dumps.dump_of(dict.fromkeys(ledgers, metadata), marked=False, instance_id=None)
    cookie = Cookie(5, "bookie:3181", "/j", "1\t/l", None)
    return KnownLedgers.of(DumpedCluster(dump, trusted=True), cookie, None)


def repair_it(bookie: BookieInMemory) -> None:
    settle_unfinished(bookie.files, [CURRENT])
    known = known_of(LIVE)
    plan = plan_repair(bookie.files, CURRENT, known, bookie.databases)
    assert plan.changes
    repair_on_record(bookie.files, ManualClock(), [CURRENT], [plan], {CURRENT: known}, bookie.databases)


def put_into_limbo(bookie: BookieInMemory) -> None:
    settle_unfinished(bookie.files, [CURRENT])
    planned = plan_limbo(bookie.files, [CURRENT], [1, 5], limbo=True, databases=bookie.databases)
    set_limbo_on_record(bookie.files, ManualClock(), [CURRENT], planned, bookie.databases)


def without_kept(bookie: BookieInMemory) -> dict[str, bytes]:
    return {path: data for path, data in bookie.content.items() if "/bkctl-" not in path}


@pytest.mark.parametrize("do", [repair_it, put_into_limbo])
def test_a_stop_at_any_step_is_taken_back(whole: BookieInMemory, do: Do) -> None:
    finished = whole.again()
    do(finished)
    assert finished.content != whole.content
    undone = finished.again()
    undo(undone.files, last_repair(undone.files, [CURRENT]))
    assert undone.content == whole.content
    for step in steps(STEPS_MAX):
        stopped = whole.again(crash_after=step)
        try:
            do(stopped)
        except BkctlError:
            assert stopped.files.crashed
        left = stopped.after_power_cut(random.Random(step))
        settle_unfinished(left.files, [CURRENT])
        assert left.content in (whole.content, finished.content)
        if not stopped.files.crashed:
            break
        if left.content == whole.content:
            do(left)
            assert without_kept(left) == without_kept(finished)
    else:
        pytest.fail("it never ends")
    assert step > 10


def test_what_was_not_planned_is_not_done(whole: BookieInMemory) -> None:
    """A ledger that is deleted while the operator thinks would go with locations that no record keeps."""
    bookie = whole.again()
    before = bookie.content
    known, later = known_of([*LIVE, 3]), known_of(LIVE)
    plan = plan_repair(bookie.files, CURRENT, known, bookie.databases)
    if not plan.operations:
        later = known_of([])
    with pytest.raises(RefusedError, match="run it again"):
        repair_on_record(bookie.files, ManualClock(), [CURRENT], [plan], {CURRENT: later}, bookie.databases)
    settle_unfinished(bookie.files, [CURRENT])
    assert bookie.content == before

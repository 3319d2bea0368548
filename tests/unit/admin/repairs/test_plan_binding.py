"""A plan is run on the directories of the bookie that it was made for, and on no others."""

from __future__ import annotations

import pytest

from bkctl.admin.repairs.plan_binding import bound_directories, check_bound
from bkctl.admin.repairs.repair_plan import Bound, Needs, Plan, Step
from bkctl.codec.cookie import LAYOUT_VERSION, Cookie, encode_cookie
from bkctl.errors import RefusedError
from bkctl.vfs.memory import MemoryFileSystem

JOURNAL, LEDGERS = "/b/journal/current", "/b/ledgers/current"
CREATE = Step(1, ("bkctl", "cookie", "create", LEDGERS), Needs.STOPPED, "")
INIT = Step(1, ("bkctl", "bookie", "init"), Needs.STOPPED, "")


def cookie(bookie: str, instance: str | None = "one") -> bytes:
    return encode_cookie(Cookie(LAYOUT_VERSION, bookie, "/b/journal", "1\t/b/ledgers", instance))


def disk(journal: bytes | None, ledgers: bytes | None) -> MemoryFileSystem:
    files = {f"{JOURNAL}/x": b"", f"{LEDGERS}/x": b""}
    for path, content in ((JOURNAL, journal), (LEDGERS, ledgers)):
        if content is not None:
            files[f"{path}/VERSION"] = content
    return MemoryFileSystem(files)


def plan_for(fs: MemoryFileSystem) -> Plan:
    return Plan(("bkctl", "doctor"), (CREATE,), (), bound_directories(fs, [JOURNAL, LEDGERS]))


def test_the_same_bookie_is_run_on() -> None:
    plan = plan_for(disk(cookie("b:1"), cookie("b:1")))
    assert plan.directories[0] == Bound(JOURNAL, "b:1", "one")
    check_bound(disk(cookie("b:1"), cookie("b:1")), plan, [])


@pytest.mark.parametrize(
    ("ledgers", "named"),
    [
        (cookie("c:1"), "bookie c:1"),
        (cookie("b:1", "two"), "instance two"),
        (cookie("b:1", None), "no instance"),
        (None, "without a cookie"),
        (b"no cookie", "without a cookie"),
    ],
)
def test_another_bookie_is_refused_and_both_are_named(ledgers: bytes | None, named: str) -> None:
    plan = plan_for(disk(cookie("b:1"), cookie("b:1")))
    with pytest.raises(RefusedError, match=f"bookie b:1 .instance one.*{named}"):
        check_bound(disk(cookie("b:1"), ledgers), plan, [CREATE])


def test_exchanged_directories_of_two_bookies_are_refused() -> None:
    plan = plan_for(disk(cookie("b:1"), cookie("c:1")))
    with pytest.raises(RefusedError):
        check_bound(disk(cookie("c:1"), cookie("b:1")), plan, [])


def test_a_cookie_that_a_step_brought_back_is_its_bookies() -> None:
    plan = plan_for(disk(cookie("b:1"), None))
    check_bound(disk(cookie("b:1"), None), plan, [])
    check_bound(disk(cookie("b:1"), cookie("b:1")), plan, [CREATE])
    with pytest.raises(RefusedError):
        check_bound(disk(cookie("b:1"), cookie("c:1")), plan, [CREATE])


def test_where_no_directory_had_a_cookie_only_a_step_makes_one() -> None:
    plan = plan_for(disk(None, None))
    check_bound(disk(cookie("b:1"), cookie("b:1")), plan, [INIT])
    with pytest.raises(RefusedError, match="without a cookie"):
        check_bound(disk(cookie("b:1"), cookie("b:1")), plan, [])


def test_a_cookie_that_an_undo_has_is_the_directorys() -> None:
    plan = plan_for(disk(cookie("b:1"), cookie("b:1")))
    undone = disk(cookie("b:1"), None)
    undone.make_directories(f"{LEDGERS}/bkctl-repairs/20261127T000000Z")
    undone.replace(f"{LEDGERS}/bkctl-repairs/20261127T000000Z/VERSION", cookie("b:1"))
    check_bound(undone, plan, [])


def test_a_directory_that_is_gone_is_not_run_on() -> None:
    plan = plan_for(disk(cookie("b:1"), cookie("b:1")))
    with pytest.raises(RefusedError):
        check_bound(MemoryFileSystem(), plan, [])

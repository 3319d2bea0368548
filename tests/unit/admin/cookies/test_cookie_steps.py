"""What is advised where cookies and configuration do not fit."""

from __future__ import annotations

from bkctl.admin.cookies.cookie_steps import of_renamed


def test_a_bookie_that_is_renamed_takes_its_ledgers_along() -> None:
    step = of_renamed("old:3181", "new:3181", ["/data/journal"], ("--conf", "bk.conf"), ())
    told = step.instead or ""
    order = [told.index(f"bkctl {each}") for each in ("cookie create", "cookie delete", "bookies replace-id")]
    assert order == sorted(order)
    assert told.endswith("bkctl bookies replace-id old:3181 new:3181 --conf bk.conf")

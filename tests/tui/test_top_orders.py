"""Keys that have a bookie do something: only with its name, or that of a protected context."""

from __future__ import annotations

import pytest

from bkctl.admin.top.actions import Action, carry_out
from bkctl.errors import ConnectionFailedError, RefusedError
from bkctl.tui.orders import Orders
from tests.support.top_samples import FakeReplay, FakeSource
from tests.support.top_screen import operating, run


class Admin:
    """Takes orders, or says no."""

    def __init__(self) -> None:
        self.given: list[tuple[Action, str | None]] = []
        self.refuses = False

    def carry_out(self, action: Action, url: str | None) -> None:
        if self.refuses:
            raise ConnectionFailedError(f"{url}: connection refused")
        self.given.append((action, url))


@pytest.mark.parametrize(
    ("down", "key", "action"),
    [
        (0, "G", Action.COLLECT),
        (0, "C", Action.COMPACT),
        (0, "O", Action.READ_ONLY),
        (1, "O", Action.WRITABLE),
    ],
)
def test_an_order_goes_out_when_the_name_of_the_bookie_was_typed(down: int, key: str, action: Action) -> None:
    async def test() -> None:
        admin = Admin()
        name = f"bookie-{down + 1}"
        async with operating(FakeSource(), orders=Orders(admin.carry_out), size=(120, 30)) as operator:
            await operator.press(*["down"] * down, key)
            assert f"{name}:3181: {action.value}? type the bookie's name" in operator.rows[-1]
            await operator.press(*f"{name}:3181", "enter")
            await operator.until(lambda: bool(admin.given))
            assert admin.given == [(action, f"http://{name}:8080")]
            await operator.until(lambda: f"{name}:3181: asked to {action.value}" in operator.text)

    run(test)


def test_another_name_and_escape_change_nothing_and_a_refusal_is_shown() -> None:
    async def test() -> None:
        admin = Admin()
        async with operating(FakeSource(), orders=Orders(admin.carry_out), size=(120, 30)) as operator:
            await operator.press("G", *"bookie-2:3181", "enter")
            await operator.until(lambda: "bookie-1:3181: nothing was changed" in operator.text)
            await operator.press("enter", "C", "escape")
            assert admin.given == []
            admin.refuses = True
            await operator.press("O", *"bookie-1:3181", "enter")
            await operator.until(lambda: "connection refused" in operator.text)
            assert admin.given == []

    run(test)


def test_a_protected_context_asks_for_its_own_name() -> None:
    async def test() -> None:
        admin = Admin()
        orders = Orders(admin.carry_out, context="prod")
        async with operating(FakeSource(), orders=orders, size=(120, 30)) as operator:
            await operator.press("G", *"bookie-1:3181", "enter")
            await operator.until(lambda: "nothing was changed" in operator.text)
            await operator.press("G")
            assert "type the context's name, prod" in operator.rows[-1]
            await operator.press(*"prod", "enter")
            await operator.until(lambda: bool(admin.given))

    run(test)


def test_without_leave_in_a_recording_and_for_a_lost_bookie_the_keys_do_nothing() -> None:
    async def test() -> None:
        admin = Admin()
        async with operating(FakeSource()) as operator:
            before = operator.text
            await operator.press("G", "C", "O")
            assert operator.text == before
        async with operating(FakeReplay(), orders=Orders(admin.carry_out)) as replay:
            await replay.press("G")
            assert "type the" not in replay.text
        source = FakeSource()
        async with operating(source, orders=Orders(admin.carry_out)) as operator:
            source.lose("bookie-1:3181")
            await operator.sample()
            await operator.press("G")
            assert "type the" not in operator.text

    run(test)


def test_a_bookie_whose_admin_is_not_known_or_away_is_not_ordered() -> None:
    with pytest.raises(RefusedError, match="no HTTP admin"):
        carry_out(Action.COLLECT, None)
    with pytest.raises(ConnectionFailedError):
        carry_out(Action.READ_ONLY, "http://127.0.0.1:1")

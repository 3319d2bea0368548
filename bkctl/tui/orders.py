"""Orders to a bookie from the screen: a question that names it, then the order, beside the samples."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from textual.app import App

from bkctl.admin.top.actions import Action
from bkctl.admin.top.sample import BookieSample, Mode
from bkctl.errors import BkctlError
from bkctl.tui.prompt_screen import PromptScreen
from bkctl.tui.watch import Watch
from bkctl.tui.watch_screen import WatchScreen

#: For how long the screen says what came of an order.
SAID_S = 15.0


@dataclass(frozen=True, slots=True)
class Orders:
    """The means of giving orders, and the name of the protected context that each one asks for."""

    carry_out: Callable[[Action, str | None], None]
    context: str | None = None


def action_of(name: str, bookie: BookieSample) -> Action:
    """Return the action of a key; the one for the mode goes the way that the bookie is not in."""
    if name == "mode":
        return Action.WRITABLE if bookie.mode is Mode.READ_ONLY else Action.READ_ONLY
    return Action.COMPACT if name == "compact" else Action.COLLECT


def ask(app: App[None], watch: Watch, orders: Orders, name: str, bookie: BookieSample) -> None:
    """Ask on the last line, and give the order when the answer is the bookie's or the context's name."""
    action = action_of(name, bookie)
    wanted = orders.context or bookie.bookie
    kind = "context" if orders.context else "bookie"

    def answered(text: str | None) -> None:
        if text is None or text.strip() != wanted:
            say(app, watch, f"{bookie.bookie}: nothing was changed")
            return
        app.run_worker(_carry_out(app, watch, orders, action, bookie), name="order")

    app.push_screen(
        PromptScreen(f"{bookie.bookie}: {action.value}? type the {kind}'s name, {wanted}"), answered
    )


async def _carry_out(
    app: App[None], watch: Watch, orders: Orders, action: Action, bookie: BookieSample
) -> None:
    say(app, watch, f"{bookie.bookie}: asking it to {action.value}")
    try:
        await asyncio.to_thread(orders.carry_out, action, bookie.url)
    except BkctlError as error:
        say(app, watch, f"{bookie.bookie}: {action.value}: {error}")
    else:
        say(app, watch, f"{bookie.bookie}: asked to {action.value}")


def say(app: App[None], watch: Watch, text: str) -> None:
    """Show a sentence on the screen for a while; a later one stays for its own time."""
    watch.problem = text

    def forget() -> None:
        if watch.problem == text:
            watch.problem = None

    app.set_timer(SAID_S, forget)
    if isinstance(app.screen, WatchScreen):
        app.screen.draw()

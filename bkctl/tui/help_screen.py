"""The screen that explains the keys and the figures."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from bkctl.admin.top.sample import Stage
from bkctl.tui import thresholds
from bkctl.tui.lines import EMPTY, Line, Span, Tone
from bkctl.tui.widgets.line_view import LineView

KEYS: tuple[tuple[str, str], ...] = (
    ("Up Down PgUp PgDn", "move; Home and End go to the first and last line"),
    ("Enter", "open: cluster, bookie, directory, log"),
    ("Esc, Backspace", "back"),
    ("s, S", "sort by the next column, by the one before"),
    ("r", "sort the other way round"),
    ("/", "filter by bookie, mode or bottleneck; Esc clears it"),
    ("1-7, Left Right", "tabs of a bookie"),
    ("l", "ledgers by rate: of all bookies, or of the one that is open"),
    ("a", "alarms: what is wrong now, and what was, since when"),
    ("p, Space", "pause the screen and go on; samples are taken meanwhile"),
    ("+ -", "longer and shorter interval"),
    ("u", "update now"),
    ("t", "the next theme"),
    ("?, h", "this help"),
    ("q, Ctrl+C", "quit"),
)

REPLAY_KEYS: tuple[tuple[str, str], ...] = (
    (". ,", "one sample on, one back (and pause)"),
    ("> <", "ten samples on, ten back"),
    ("g", "go to a sample: number, +N, -N, 50%, or a time HH:MM:SS"),
)

ORDER_KEYS: tuple[tuple[str, str], ...] = (
    ("G", "have the bookie at the cursor collect garbage now; asks for its name"),
    ("C", "the same with minor and major compaction"),
    ("O", "make it read-only, or writable again"),
)

STAGES: tuple[tuple[Stage, str], ...] = (
    (Stage.NONE, "nothing holds the bookie back"),
    (Stage.JOURNAL_DISK, "adds wait for the journal's fsync or write"),
    (Stage.LEDGER_DISK, "write caches fill faster than they are flushed"),
    (Stage.COMPACTION, "the same while collection or compaction uses the disk"),
    (Stage.READ_DISK, "reads wait for the ledger disk"),
    (Stage.READ_CACHE, "the read cache drops entries before they are asked for"),
    (Stage.CPU, "no processor time is left"),
    (Stage.DISK_FULL, "ledger disks are full"),
    (Stage.READ_ONLY, "adds are refused, and no ledger disk is full"),
    (Stage.UNKNOWN, "no answer, or it does not serve yet"),
)


class HelpScreen(ModalScreen[None]):
    """Any key that usually goes back closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,question_mark,h,q", "close", "Back", key_display="Esc"),
    ]

    def __init__(self, *, replay: bool, orders: bool = False) -> None:
        super().__init__()
        self._replay = replay
        self._orders = orders

    def compose(self) -> ComposeResult:
        view = LineView(id="help", focusable=True, more_below=True)
        yield view

    def on_mount(self) -> None:
        view = self.query_one("#help", LineView)
        view.show(help_lines(replay=self._replay, orders=self._orders))
        view.focus()

    def action_close(self) -> None:
        self.dismiss(None)


def help_lines(*, replay: bool, orders: bool = False) -> list[Line]:
    """Return the help as lines; with the keys of a recording, and of orders, where they do something."""
    keys = (*KEYS, *(REPLAY_KEYS if replay else ()), *(ORDER_KEYS if orders else ()))
    return [
        (Span(" bkctl top: keys", Tone.HEADING),),
        *((Span(f"  {key:<20}", Tone.STRONG), Span(text)) for key, text in keys),
        EMPTY,
        (Span(" Bottlenecks", Tone.HEADING),),
        *((Span(f"  {stage.value:<20}", Tone.STRONG), Span(text)) for stage, text in STAGES),
        EMPTY,
        (Span(" Figures", Tone.HEADING),),
        *(
            (Span(f"  {text}"),)
            for text in (
                "Rates are per second of the last interval, MB are 10^6 bytes, sizes K M G are",
                "powers of 1024, times are milliseconds where no unit stands. - is not known:",
                "a Java bookie does not tell everything. A queue's bar is its length over its bound.",
                "A sparkline says its time from left to right and the value of a full cell.",
            )
        ),
        EMPTY,
        (Span(" Colours: yellow from the first value on, red from the second", Tone.HEADING),),
        *((Span(f"  {limit.figure:<40}", Tone.STRONG), Span(limit.limits())) for limit in thresholds.TABLE),
    ]

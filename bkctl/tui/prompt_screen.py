"""One line to type in, over the last line of the screen below."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input, Label


class PromptScreen(ModalScreen[str | None]):
    """Returns the text that was typed; None after Escape. ``changed`` is called with every change."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Cancel")]

    def __init__(self, label: str, text: str = "", changed: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self._label = label
        self._text = text
        self._changed = changed

    def compose(self) -> ComposeResult:
        with Horizontal(id="prompt"):
            yield Label(f" {self._label}: ", id="prompt-label", markup=False)
            yield Input(self._text, id="prompt-input", select_on_focus=False, compact=True, max_length=200)

    @on(Input.Changed)
    def tell(self, event: Input.Changed) -> None:
        """Report every change of the text, at once."""
        if self._changed is not None:
            self._changed(event.value)

    @on(Input.Submitted)
    def finish(self, event: Input.Submitted) -> None:
        """Close the screen with the text when Enter was pressed."""
        self.dismiss(event.value)

    def action_give_up(self) -> None:
        self.dismiss(None)

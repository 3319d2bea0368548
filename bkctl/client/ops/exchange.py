"""A place where the parts of a machine leave instructions, and where each gets the outcomes of its own.

A part asks (:meth:`Exchange.send`, :meth:`Exchange.set_timer`, ...) and names the function that takes the
outcome. The machine hands every event to :meth:`Exchange.deliver` and takes the instructions that came of it.
"""

from __future__ import annotations

from collections.abc import Callable

from bkctl.client.machine import (
    CancelTimer,
    ChooseBookies,
    CreateMetadata,
    DeleteMetadata,
    Event,
    Finished,
    Instruction,
    NewLedgerId,
    Notify,
    ReadMetadata,
    Send,
    SetTimer,
    Token,
    Tokens,
    WriteMetadata,
)
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError
from bkctl.protocol.messages import Request

Heard = Callable[[Event], None]


class Exchange:
    """One machine's instructions and outcomes; after :meth:`finish` it takes no more of either."""

    __slots__ = ("_instructions", "_timers", "_tokens", "_waiting", "finished")

    def __init__(self) -> None:
        self.finished = False
        self._tokens = Tokens()
        self._instructions: list[Instruction] = []
        self._waiting: dict[Token, Heard] = {}
        self._timers: set[Token] = set()

    def take(self) -> list[Instruction]:
        """Return the instructions since the last call, in order."""
        taken = self._instructions
        self._instructions = []
        return taken

    def deliver(self, event: Event) -> None:
        """Call the callback that waits for an outcome; an outcome without one is dropped."""
        heard = self._waiting.pop(event.token, None)
        self._timers.discard(event.token)
        if heard is not None and not self.finished:
            heard(event)

    def forget(self, token: Token) -> None:
        """Drop the callback that waits for an outcome; a timer is cancelled as well."""
        self._waiting.pop(token, None)
        if token in self._timers:
            self._timers.discard(token)
            self._instructions.append(CancelTimer(token))

    def token(self) -> Token:
        """Return a token for a :meth:`notify` to come."""
        return self._tokens.take()

    # --- instructions ---------------------------------------------------------------------------------------

    def send(self, bookie: str, request: Request, heard: Heard) -> Token:
        token = self._tokens.take()
        self._waiting[token] = heard
        self._instructions.append(Send(token, bookie, request))
        return token

    def set_timer(self, seconds: float, fired: Heard) -> Token:
        token = self._tokens.take()
        self._waiting[token] = fired
        self._timers.add(token)
        self._instructions.append(SetTimer(token, seconds))
        return token

    def read_metadata(self, ledger: int, heard: Heard) -> None:
        token = self._tokens.take()
        self._waiting[token] = heard
        self._instructions.append(ReadMetadata(token, ledger))

    def write_metadata(self, ledger: int, metadata: LedgerMetadata, version: int, heard: Heard) -> None:
        token = self._tokens.take()
        self._waiting[token] = heard
        self._instructions.append(WriteMetadata(token, ledger, metadata, version))

    def create_metadata(self, ledger: int, metadata: LedgerMetadata, heard: Heard) -> None:
        token = self._tokens.take()
        self._waiting[token] = heard
        self._instructions.append(CreateMetadata(token, ledger, metadata))

    def delete_metadata(self, ledger: int, version: int, heard: Heard) -> None:
        token = self._tokens.take()
        self._waiting[token] = heard
        self._instructions.append(DeleteMetadata(token, ledger, version))

    def new_ledger_id(self, heard: Heard) -> None:
        token = self._tokens.take()
        self._waiting[token] = heard
        self._instructions.append(NewLedgerId(token))

    def choose_bookies(
        self,
        count: int,
        exclude: frozenset[str],
        heard: Heard,
        *,
        ensemble: tuple[str, ...] = (),
        replace: tuple[int, ...] = (),
        write_quorum: int = 0,
    ) -> None:
        token = self._tokens.take()
        self._waiting[token] = heard
        self._instructions.append(ChooseBookies(token, count, exclude, ensemble, replace, write_quorum))

    def notify(self, token: Token, value: object = None, error: BkctlError | None = None) -> None:
        self._instructions.append(Notify(token, value, error))

    def finish(self, value: object = None, error: BkctlError | None = None) -> None:
        """End the machine: timers that still run are cancelled. A second end says nothing."""
        if self.finished:
            return
        self.finished = True
        self._waiting.clear()
        self._instructions.extend(CancelTimer(token) for token in sorted(self._timers))
        self._timers.clear()
        self._instructions.append(Finished(value, error))


class OperationMachine:
    """A :class:`bkctl.client.machine.Machine` over an exchange; a subclass says how it begins."""

    def __init__(self) -> None:
        self.exchange = Exchange()

    def start(self) -> list[Instruction]:
        self._begin()
        return self.exchange.take()

    def on_event(self, event: Event) -> list[Instruction]:
        self.exchange.deliver(event)
        return self.exchange.take()

    def _begin(self) -> None:
        raise NotImplementedError

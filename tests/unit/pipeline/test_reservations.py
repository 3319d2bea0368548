"""Reservations of a run."""

from __future__ import annotations

from bkctl.pipeline.reservations import Reservations


def test_a_sentence_is_said_once_and_in_its_order() -> None:
    reservations = Reservations()
    for text in ("logs went away", "two copies", "logs went away"):
        reservations.guard(text)
    assert reservations.guards == ["logs went away", "two copies"]

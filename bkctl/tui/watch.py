"""The state of watching: the sample on the screen, those before it, whether it stands still. No widgets."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from bkctl.admin.top.sample import BookieSample, Bottleneck, ClusterSample, Source, Stage
from bkctl.admin.top.source import Replay, SampleSource
from bkctl.errors import CorruptionError
from bkctl.tui.alarms import AlarmLog
from bkctl.tui.history import History

#: Seconds between two samples that the interval keys go through.
INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
#: Samples before the one moved to that are read again for the sparklines.
REREAD_SAMPLES_MAX = 120
#: Bookies whose last answer is kept, to be shown when they answer no more.
LAST_ANSWERS_MAX = 1000
#: For how long a bookie that is no longer registered has a row: long enough to be seen by whoever looks away.
DEPARTED_MS_MAX = 600_000


class Watch:
    """One source and what came out of it.

    While it is paused, samples of live bookies are taken on and go into the history; the one on the screen
    stays. A recording stands still.
    """

    def __init__(self, source: SampleSource, interval_s: float) -> None:
        self.source = source
        self.replay: Replay | None = source if isinstance(source, Replay) else None
        self.interval_s = interval_s
        self.paused = False
        self.history = History()
        self.alarms = AlarmLog()
        self.shown: ClusterSample | None = None
        self.samples_taken = 0
        self.problem: str | None = None
        self._newest: ClusterSample | None = None
        self._position = -1
        self._last_answers: dict[str, BookieSample] = {}
        self._quantiles: dict[str, tuple[tuple[float | None, ...], int]] = {}

    def take(self, sample: ClusterSample) -> bool:
        """Take a new sample; True when it is now the one on the screen."""
        self.samples_taken += 1
        sample = self._newest = self._keep(sample)
        if self.replay is not None:
            self._position = self.replay.position
        if self.paused and self.shown is not None:
            return False
        self.shown = sample
        return True

    def pause(self, paused: bool) -> None:
        """Let the screen stand still, or follow again: then the newest sample is shown at once."""
        self.paused = paused
        if not paused and self._newest is not None:
            self.shown = self._newest

    def change_interval(self, direction: int) -> float:
        """Change to the next longer (1) or shorter (-1) interval; return its seconds."""
        if direction > 0:
            self.interval_s = min(
                (choice for choice in INTERVALS_S if choice > self.interval_s), default=self.interval_s
            )
        else:
            self.interval_s = max(
                (choice for choice in INTERVALS_S if choice < self.interval_s), default=self.interval_s
            )
        return self.interval_s

    def step(self, by: int) -> None:
        """Move in the recording; sparklines are those of the samples before. Nothing happens when live."""
        if self.replay is not None:
            self.seek(max(self._position, 0) + by)

    def seek(self, position: int) -> None:
        """Go to a sample of the recording by its number, from 0; the nearest one there is.

        Raises what the recording raises when that sample is damaged; the one before stays on the screen.
        """
        replay = self.replay
        if replay is None:
            return
        self.problem = None
        position = min(max(position, 0), replay.count - 1)
        first = max(position - REREAD_SAMPLES_MAX + 1, 0)
        if position == self._position + 1 and self.shown is not None:
            first = position
        else:
            self.history.clear()
            self.alarms.clear()
            self._quantiles.clear()
            self._last_answers.clear()
        self._position = position
        for number in range(first, position):
            # A sample of the recording that is damaged is left out, and shows as a gap in the sparklines.
            with contextlib.suppress(CorruptionError):
                self._keep(replay.seek(number))
        self.shown = self._newest = self._keep(replay.seek(position))
        self.samples_taken += 1

    def notices(self) -> list[str]:
        """Return the notices that belong beside the figures."""
        found = [] if self.problem is None else [self.problem]
        if self.shown is None:
            return found or ["waiting for the first answer"]
        if self.shown.discovery_error is not None:
            found.append(f"metadata store: {self.shown.discovery_error}")
        if self.shown.notice is not None:
            found.append(self.shown.notice)
        return found

    def bookie(self, bookie_id: str) -> BookieSample | None:
        """Return a bookie of the sample on the screen."""
        if self.shown is None:
            return None
        return next((bookie for bookie in self.shown.bookies if bookie.bookie == bookie_id), None)

    def last_answer(self, bookie: BookieSample) -> BookieSample:
        """Return the bookie itself, or what it said when it answered last."""
        return bookie if bookie.error is None else self._last_answers.get(bookie.bookie, bookie)

    def silence_ms(self, bookie: BookieSample) -> int | None:
        """Return for how many milliseconds a bookie has not answered; None when it never did."""
        if self.shown is None or bookie.answered_at_ms is None:
            return None
        return max(self.shown.taken_at_ms - bookie.answered_at_ms, 0)

    def quantiles_age_ms(self, bookie: BookieSample) -> int | None:
        """Return for how long a Java bookie has reported the same quantiles, in ms.

        Return None for other bookies, and when no quantiles are known.


        Java's are of the last minute that is over, so they stand still while a minute goes by.
        """
        known = self._quantiles.get(bookie.bookie)
        if known is None or self.shown is None:
            return None
        return max(self.shown.taken_at_ms - known[1], 0)

    def _watch_quantiles(self, sample: ClusterSample) -> None:
        here = {bookie.bookie for bookie in sample.bookies if bookie.source is Source.JAVA}
        for name in self._quantiles.keys() - here:
            del self._quantiles[name]
        for bookie in sample.bookies:
            if bookie.source is not Source.JAVA or bookie.error is not None:
                continue
            told = (bookie.add_p99_ms, bookie.read_p99_ms, bookie.journal_sync_p99_ms)
            known = self._quantiles.get(bookie.bookie)
            if all(value is None for value in told):
                self._quantiles.pop(bookie.bookie, None)
            elif known is None and len(self._quantiles) >= LAST_ANSWERS_MAX:
                continue
            elif known is None or known[0] != told:
                self._quantiles[bookie.bookie] = (told, sample.taken_at_ms)

    def _with_last_time(self, bookie: BookieSample) -> BookieSample:
        """Return a bookie that is silent with the time of its last answer, also where the source forgot it.

        One that is not registered any more is asked as another one, which never answered.
        """
        last = self._last_answers.get(bookie.bookie)
        if last is None or bookie.error is None or bookie.answered_at_ms is not None:
            return bookie
        return replace(bookie, answered_at_ms=last.answered_at_ms)

    def _keep(self, sample: ClusterSample) -> ClusterSample:
        """Remember a sample; return it with the bookies that have departed since they answered."""
        sample = replace(sample, bookies=tuple(map(self._with_last_time, sample.bookies)))
        here = {bookie.bookie for bookie in sample.bookies}
        departed: list[BookieSample] = []
        for name in self._last_answers.keys() - here:
            last = self._last_answers[name]
            if sample.taken_at_ms - (last.answered_at_ms or 0) > DEPARTED_MS_MAX:
                del self._last_answers[name]
            else:
                departed.append(_departed(last))
        for bookie in sample.bookies:
            if bookie.error is None and (
                bookie.bookie in self._last_answers or len(self._last_answers) < LAST_ANSWERS_MAX
            ):
                self._last_answers[bookie.bookie] = bookie
        if departed:
            bookies = sorted([*sample.bookies, *departed], key=lambda bookie: bookie.bookie)
            sample = replace(sample, bookies=tuple(bookies))
        self.history.add(sample)
        self.alarms.add(sample)
        self._watch_quantiles(sample)
        return sample


def _departed(last: BookieSample) -> BookieSample:
    """Return a bookie that is not registered any more, as a row of its own."""
    error = "not registered any more"
    return BookieSample(
        bookie=last.bookie,
        source=last.source,
        url=last.url,
        error=error,
        answered_at_ms=last.answered_at_ms,
        bottleneck=Bottleneck(stage=Stage.UNKNOWN, why=error),
    )

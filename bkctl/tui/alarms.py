"""The alarms of the bookies that are watched: what is wrong now, and what was, since when. No widgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bkctl.admin.top.sample import BookieSample, ClusterSample, Mode, Stage
from bkctl.reporting import counted, noun_of
from bkctl.tui import figures, thresholds
from bkctl.tui.lines import Tone

#: Alarms that are remembered; the oldest that are over go first.
ALARMS_MAX = 200
#: One that comes back within this time is the same again, so that what flickers is one line.
SAME_AGAIN_MS = 60_000
#: The subject of what concerns no single bookie.
CLUSTER = "cluster"

_HANDLED_ELSEWHERE = (Stage.NONE, Stage.UNKNOWN, Stage.DISK_FULL, Stage.READ_ONLY)


@dataclass(slots=True, kw_only=True)
class Alarm:
    """One trouble of one bookie. ``times`` counts how often it came back; without an end it is on now.

    ``from_start`` says that it was there in the first sample, so it may be older than ``began_ms``.
    """

    subject: str
    kind: str
    text: str
    tone: Tone
    began_ms: int
    from_start: bool
    ended_ms: int | None = None
    times: int = 1


class AlarmLog:
    """Alarms by their beginning, bounded in number."""

    def __init__(self, alarms_max: int = ALARMS_MAX) -> None:
        self._alarms_max = alarms_max
        self._alarms: list[Alarm] = []
        self._is_new = True
        #: How many could not be remembered because too many are on at once.
        self.left_out = 0

    def add(self, sample: ClusterSample) -> None:
        """Begin, go on with and end alarms as the sample says."""
        now_ms = sample.taken_at_ms
        by_key = {(alarm.subject, alarm.kind): alarm for alarm in self._alarms}
        silent = {bookie.bookie for bookie in sample.bookies if bookie.error is not None}
        seen = set()
        self.left_out = 0
        for subject, kind, text, tone, since_ms in _troubles(sample):
            seen.add((subject, kind))
            known = by_key.get((subject, kind))
            if known is not None and (known.ended_ms is None or now_ms - known.ended_ms <= SAME_AGAIN_MS):
                known.times += known.ended_ms is not None
                known.text, known.tone, known.ended_ms = text, tone, None
                continue
            if not self._has_room():
                self.left_out += 1
                continue
            began_ms = now_ms if since_ms is None else min(since_ms, now_ms)
            self._alarms.append(
                Alarm(
                    subject=subject,
                    kind=kind,
                    text=text,
                    tone=tone,
                    began_ms=began_ms,
                    from_start=self._is_new and since_ms is None,
                )
            )
        for alarm in self._alarms:
            is_missing = alarm.ended_ms is None and (alarm.subject, alarm.kind) not in seen
            # Of a bookie that is silent nothing but that is known.
            if is_missing and alarm.subject not in silent:
                alarm.ended_ms = now_ms
        self._is_new = False

    def clear(self) -> None:
        """Forget all alarms."""
        self._alarms.clear()
        self._is_new = True
        self.left_out = 0

    def now(self) -> list[Alarm]:
        """Return those that are on, the newest first."""
        return [alarm for alarm in reversed(self._alarms) if alarm.ended_ms is None]

    def over(self) -> list[Alarm]:
        """Return those that are over, the one that ended last first."""
        found = [alarm for alarm in self._alarms if alarm.ended_ms is not None]
        return sorted(found, key=lambda alarm: alarm.ended_ms or 0, reverse=True)

    def _has_room(self) -> bool:
        if len(self._alarms) < self._alarms_max:
            return True
        over = self.over()
        if over:
            self._alarms.remove(over[-1])
        return bool(over)


_Trouble = tuple[str, str, str, Tone, int | None]


def _troubles(sample: ClusterSample) -> Iterator[_Trouble]:
    """Yield subject, kind, text, tone, and the time since when, if the sample itself has it."""
    if sample.discovery_error is not None:
        yield CLUSTER, "metadata store", sample.discovery_error, Tone.BAD, None
    state = sample.autorecovery
    if state is not None:
        if not state.enabled:
            yield CLUSTER, "autorecovery", "switched off", Tone.WARNING, None
        if state.maintenance is not None:
            yield CLUSTER, "maintenance", f"of {state.maintenance} is on", Tone.WARNING, None
        if state.ledgers:
            more = "+" if state.more_ledgers else ""
            lack = "lacks" if state.ledgers == 1 and not more else "lack"
            text = f"{state.ledgers:,}{more} {lack} replicas"
            yield CLUSTER, "ledgers", text, Tone.WARNING, None
    for bookie in sample.bookies:
        for kind, text, tone in _troubles_of(bookie):
            since_ms = bookie.answered_at_ms if kind == "lost" else None
            yield bookie.bookie, kind, text, tone, since_ms


def _troubles_of(bookie: BookieSample) -> Iterator[tuple[str, str, Tone]]:
    if bookie.error is not None:
        yield "lost", bookie.error, Tone.BAD
        return
    if bookie.failure is not None:
        yield "failed", bookie.failure, Tone.BAD
    if bookie.mode is Mode.READ_ONLY:
        yield "read-only", "refuses adds", Tone.WARNING
    for disk in bookie.disks:
        tone = Tone.BAD if disk.full else thresholds.DISK.tone(disk.used_fraction)
        if tone is not Tone.PLAIN:
            yield f"disk {disk.dir}", f"{figures.percent(disk.used_fraction)} in use", tone
    stage = bookie.bottleneck.stage
    if stage not in _HANDLED_ELSEWHERE:
        yield stage.value, bookie.bottleneck.why, Tone.WARNING
    refused = bookie.adds_refused_per_s
    tone = thresholds.REFUSED.tone(refused)
    if tone is not Tone.PLAIN:
        yield "adds refused", f"{figures.count(refused)}/s", tone
    yield from _collections(bookie)


def _collections(bookie: BookieSample) -> Iterator[tuple[str, str, Tone]]:
    for state in bookie.gc:
        if state.set_aside_logs:
            logs = counted(state.set_aside_logs, "entry log")
            yield f"damaged {state.dir}", f"{logs} set aside", Tone.BAD
        if state.held_deletions:
            text = f"{state.held_deletions:,} {noun_of(state.held_deletions, 'deletion')} held back"
            yield f"gc {state.dir}", text, Tone.WARNING

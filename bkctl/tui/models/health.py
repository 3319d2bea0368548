"""Words and tones for how a bookie, a queue or a disk is."""

from __future__ import annotations

from bkctl.admin.top.sample import BookieSample, Disk, Mode, Queue, Stage
from bkctl.tui import figures
from bkctl.tui.lines import Tone

_MODES = {
    Mode.WRITABLE: ("rw", Tone.GOOD),
    Mode.READ_ONLY: ("RO", Tone.WARNING),
    Mode.STARTING: ("up..", Tone.WARNING),
    Mode.STOPPING: ("stop", Tone.WARNING),
    Mode.DOWN: ("DOWN", Tone.BAD),
}


def mode(bookie: BookieSample) -> tuple[str, Tone]:
    """Return the mode of a bookie in at most four characters, and its tone."""
    if bookie.error is not None:
        return "LOST", Tone.BAD
    if bookie.failure is not None:
        return "FAIL", Tone.BAD
    return (figures.UNKNOWN, Tone.DIM) if bookie.mode is None else _MODES[bookie.mode]


def stage_tone(stage: Stage) -> Tone:
    """Return the tone of a bottleneck."""
    if stage is Stage.NONE:
        return Tone.GOOD
    return Tone.BAD if stage in (Stage.DISK_FULL, Stage.UNKNOWN) else Tone.WARNING


def fullest_queue(bookie: BookieSample) -> Queue | None:
    """Return the queue nearest to its bound; None where none with a bound has something in it."""
    filled = [queue for queue in bookie.queues if queue.fullness]
    return max(filled, key=lambda queue: queue.fullness or 0.0, default=None)


def fullest_disk(bookie: BookieSample) -> Disk | None:
    """Return the disk with the greatest share in use."""
    return max(bookie.disks, key=lambda disk: disk.used_fraction, default=None)


def lost(bookie: BookieSample, silence_ms: int | None) -> str:
    """Return why there are no figures, and how old the last ones are."""
    reason = bookie.error or "no answer"
    if silence_ms is None:
        return f"never answered: {reason}"
    return f"last data {figures.age(silence_ms)} ago: {reason}"

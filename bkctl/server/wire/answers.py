"""The one way from the engine's threads to the sockets.

Threads put answers into a queue and wake the event loop once, however many answers there are; the loop then
writes one piece to each connection. The queue is bounded by the requests that were let in: the code that
starts adds and reads counts those in progress.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from bkctl import _kernels
from bkctl.engine.engine_thread import call_all, report, reported
from bkctl.server.wire.untaken_answers import UntakenAnswers

#: So many connections get their answers in one call at least.
TOGETHER_MIN = 4
#: So long after an error in front of all answers they are tried again.
_AGAIN_S = 0.05
#: So often a thread with answers tries again what Python has no memory for, and so long it waits before that:
#: without it their clients would wait in vain.
TRIES = 20
TRY_AGAIN_S = 0.05


class AnswerSink(Protocol):
    """A connection, as far as answers go."""

    #: The account of the answers that its client has not taken.
    untaken: UntakenAnswers

    def write(self, data: bytes, sent_bytes: int = 0, spent_s: float = 0.0) -> None:
        """Send frames, or drop them when the connection is gone.

        Of these, so many bytes were sent before, not all, in so many seconds.
        """

    def free_descriptor(self) -> int:
        """Return the descriptor of the socket, to which frames may be sent before a :meth:`write`.

        -1 where they have to go another way.
        """

    def abort(self) -> None:
        """End the connection at once: its client would wait in vain for an answer that cannot be made."""


#: A connection, its frames or what makes them (on the loop's thread), and what is to be done when they are
#: written.
Answer = tuple[AnswerSink, bytes | Callable[[], bytes], Callable[[], None] | None]


def _uncounted(connections: int, size_bytes: int, spent_s: float) -> None:
    """Do nothing: nobody counts what was sent."""


class AnswerQueue:
    """Thread-safe; see the module's docstring.

    ``on_sent`` is called behind each call that sent frames to many sockets: with the number of connections
    that got all of theirs, the bytes of these, and the seconds that it took. In the account of each they are
    by then.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_sent: Callable[[int, int, float], None] = _uncounted
    ) -> None:
        self._loop = loop
        self._on_sent = on_sent
        #: The answers of one call are one item: the queue gets all of them, or none.
        self._queue: deque[Iterator[Answer]] = deque()
        self._awake = False

    @property
    def is_empty(self) -> bool:
        """Whether all that was posted is written. On the loop's thread."""
        return not self._queue

    def post(self, answers: Sequence[Answer], *, at_once: bool = False) -> None:
        """Have answers written soon. From any thread.

        ``at_once``: on the loop's thread they are written before this returns, where nothing else waits. An
        error that it raises has taken none of them.
        """
        tries = 0
        while True:
            try:
                self._queue.append(iter(answers))
                break
            except MemoryError:
                if tries == TRIES:
                    raise
                tries += 1
                time.sleep(TRY_AGAIN_S)
        # The loop clears the flag before it empties the queue, so what is put in later wakes it again.
        while not self._awake:
            self._awake = True
            try:
                self._wake_loop(at_once=at_once)
                break
            except Exception as error:  # noqa: BLE001 - the answers are in the queue, and no caller's any more
                # The next one wakes the loop for these as well.
                self._awake = False
                if self._loop.is_closed():
                    self._queue.clear()
                    break
                report("waking the loop for answers", error)
                if tries == TRIES or not isinstance(error, MemoryError):
                    break
                tries += 1
                time.sleep(TRY_AGAIN_S)

    def _wake_loop(self, *, at_once: bool) -> None:
        if at_once and self._is_on_loop():
            self._drain()
        else:
            self._loop.call_soon_threadsafe(self._drain)

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _drain(self) -> None:
        self._awake = False
        try:
            self._write_all()
        except Exception as error:  # noqa: BLE001 - what is left in the queue is nobody's else
            report("writing answers", error)
            self._loop.call_later(_AGAIN_S, self._drain)

    def _write_all(self) -> None:
        """Write the answers in the queue. An error that it raises has left the queue as it was."""
        queue = self._queue
        by_sink: dict[AnswerSink, list[bytes]] = {}
        written: list[Callable[[], None]] = []
        # Goes over what will be in the list. Made here, as there may be no memory for it at the end.
        ends = iter(written)
        lost: set[AnswerSink] = set()
        try:
            while queue:
                answer = next(queue[0], None)
                if answer is None:
                    queue.popleft()
                    continue
                try:
                    sink, frames, done = answer
                    # In front of the answer: one whose end cannot be noted ends below, without it.
                    if done is not None:
                        written.append(done)
                    pieces = by_sink.get(sink)
                    if pieces is None:
                        pieces = by_sink[sink] = []
                    pieces.append(frames if isinstance(frames, bytes) else frames())
                except Exception as error:  # noqa: BLE001 - the others must be sent
                    report("making an answer", error)
                    lost.add(answer[0])
                    done = answer[2]
                    if done is not None and not (written and written[-1] is done):
                        reported("ending a request", done)
            self._write_joined(by_sink, lost)
        except Exception as error:  # noqa: BLE001 - it is not known who has got what
            report("writing answers", error)
            end_unanswered([*by_sink, *lost])
        else:
            if lost:
                end_unanswered(lost)
        finally:
            # Requests whose answer could not be made are no longer in progress either.
            call_all("ending a request", ends)

    def _write_joined(self, by_sink: dict[AnswerSink, list[bytes]], lost: set[AnswerSink]) -> None:
        """Join and write the frames of each connection; those for which that fails are ``lost``."""
        self._write(_joined(by_sink, lost))

    def _write(self, frames: dict[AnswerSink, bytes]) -> None:
        """Write to each connection what it is to get."""
        if len(frames) < TOGETHER_MIN or _kernels.IMPL != "native":
            for sink, data in frames.items():
                reported("writing answers", sink.write, data)
            return
        started_s = self._loop.time()
        sent = _sent_together(frames)
        spent_s = (self._loop.time() - started_s) / len(frames)
        whole = whole_bytes = 0
        for (sink, data), sent_bytes in zip(frames.items(), sent, strict=True):
            try:
                if sent_bytes == len(data):
                    whole += 1
                    whole_bytes += sent_bytes
                    sink.untaken.handed(sent_bytes)
                else:
                    sink.write(data, sent_bytes, spent_s)
            except Exception as error:  # noqa: BLE001 - the others must be written
                report("writing answers", error)
        if whole:
            reported("counting answers", self._on_sent, whole, whole_bytes, whole * spent_s)


def end_unanswered(sinks: Iterable[AnswerSink]) -> None:
    """End connections whose clients would wait in vain for an answer: they ask other bookies then."""
    call_all("ending a connection without its answers", [sink.abort for sink in sinks])


def _joined(by_sink: dict[AnswerSink, list[bytes]], lost: set[AnswerSink]) -> dict[AnswerSink, bytes]:
    """Join the frames of each connection; where there is no memory for it the connection is ``lost``."""
    joined: dict[AnswerSink, bytes] = {}
    for sink, pieces in by_sink.items():
        try:
            joined[sink] = b"".join(pieces)
        except Exception as error:  # noqa: BLE001 - the others must be sent
            report("joining answers", error)
            lost.add(sink)
    return joined


def _sent_together(frames: dict[AnswerSink, bytes]) -> list[int]:
    """Send to each connection as much as its socket takes; return how many bytes those were.

    One call, during which the interpreter's lock is free, in place of one with it for each socket.

    An error of the call itself is raised: there may be no memory for the numbers of what was sent, and who
    writes it again answers twice.
    """
    try:
        descriptors, pieces = [sink.free_descriptor() for sink in frames], list(frames.values())
    except Exception as error:  # noqa: BLE001 - nothing was sent: all are still to be written
        report("sending answers together", error)
        return [0] * len(frames)
    return _kernels.send_pieces(descriptors, pieces)

"""An iteration that is one item ahead of who takes the items, on a thread of its own.

So a piece of a log is read and looked up while the piece before it waits for the disk. Unless the iteration
was begun early, its first items are made by the caller itself: a log that has no more of them is not worth a
thread.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import SimpleQueue
from typing import Generic, TypeVar

from bkctl.engine.engine_thread import EngineThread
from bkctl.errors import BkctlError, StorageError

_T = TypeVar("_T")

#: Items in front of those that are made ahead.
FIRST_ITEMS = 2


class _End:
    """The end of the iteration, with the error that ended it."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class OneAhead(Iterator[_T], Generic[_T]):
    """Yields the items of ``items``, and makes one while the caller works on the one before.

    Bound: one item that is made, besides the caller's. An error of the iteration is raised in its place. The
    thread has ended and ``items`` is closed when the context ends, which waits for an item in the making; no
    cycle is left, which a bookie would keep for good (``cyclic_collector``). Where the system gives no
    thread, the caller makes the items.
    """

    def __init__(self, items: Generator[_T], name: str) -> None:
        self._items = items
        self._made: SimpleQueue[_End | tuple[_T]] = SimpleQueue()
        # True for each item that is to be made, False for the end.
        self._wanted: SimpleQueue[bool] = SimpleQueue()
        self._name = name
        self._thread: EngineThread | None = None
        self._begun = 0

    def begin(self) -> None:
        """Have the first item made now, before anybody asks for one. Raises StorageError without a thread."""
        thread = EngineThread(self._name, self._run, self._broken)
        thread.start()
        self._thread = thread
        self._begun = FIRST_ITEMS + 1
        self._wanted.put(True)

    def __enter__(self) -> OneAhead[_T]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, and close the iteration; idempotent."""
        if self._thread is not None:
            self._wanted.put(False)
            self._thread.join()
        self._thread = None
        # With an error that nobody has taken, whose trace leads back here.
        self._made = SimpleQueue()
        self._items.close()

    def __next__(self) -> _T:
        if self._begun < FIRST_ITEMS:
            self._begun += 1
            return next(self._items)
        if self._begun == FIRST_ITEMS:
            try:
                self.begin()
            except StorageError:
                # Without a thread the caller goes on by itself, and asks again for the next item.
                return next(self._items)
        made = self._made.get()
        if isinstance(made, _End):
            # Once more for a caller who asks again.
            self._made.put(_End())
            try:
                raise StopIteration if made.error is None else made.error
            finally:
                # The error's trace has this frame.
                del made
        self._wanted.put(True)
        return made[0]

    def _run(self) -> None:
        while self._wanted.get():
            try:
                item = next(self._items)
            except StopIteration:
                self._made.put(_End())
                return
            except BaseException as error:  # noqa: BLE001 - raised where the item is asked for
                self._made.put(_End(error))
                return
            self._made.put((item,))

    def _broken(self, error: BkctlError) -> None:
        """End the iteration with what ended the thread."""
        self._made.put(_End(error))

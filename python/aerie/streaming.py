"""Replies as they arrive, for threads and for event loops."""

from __future__ import annotations

import asyncio
import select
import weakref
from typing import Any, Dict, Iterator, List, Optional

from . import _core
from .outputs import StreamChunk
from .requests import ReplyReader


class TextStream(Iterator[StreamChunk]):
    """The chunks of a request's replies, in the order in which they come.

    Leaving it early (close(), the end of a `with`, or dropping it) cancels what is not done, within a
    pass of the model.
    """

    def __init__(self, notifier: Any, readers: List[ReplyReader]) -> None:
        self._notifier = notifier
        self._readers = readers
        self._chunks: List[StreamChunk] = []
        self._poll = select.poll()
        self._poll.register(notifier.descriptor, select.POLLIN)

    def __iter__(self) -> "TextStream":
        return self

    def __next__(self) -> StreamChunk:
        try:
            while not self._chunks:
                if all(reader.done for reader in self._readers):
                    raise StopIteration
                # Interrupted by signals, and without the GIL.
                self._poll.poll()
                for tag in self._notifier.drain():
                    chunk = self._readers[tag].read()
                    if chunk is not None:
                        self._chunks.append(chunk)
            return self._chunks.pop(0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancels what is not done."""
        for reader in self._readers:
            reader.handle.cancel()

    def __enter__(self) -> "TextStream":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class LoopNews:
    """Wakes the coroutines of one event loop whose replies have news."""

    _of_loop: "weakref.WeakKeyDictionary[Any, LoopNews]" = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self.notifier = _core.Notifier()
        self._events: Dict[int, asyncio.Event] = {}
        self._next_tag = 0

    @classmethod
    def current(cls) -> "LoopNews":
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        news = cls._of_loop.get(loop)
        if news is None:
            news = cls._of_loop[loop] = cls()
        return news

    def add(self) -> int:
        """A tag for a new reply."""
        if not self._events:
            asyncio.get_running_loop().add_reader(self.notifier.descriptor, self._ring)
        tag, self._next_tag = self._next_tag, self._next_tag + 1
        self._events[tag] = asyncio.Event()
        return tag

    def remove(self, tag: int) -> None:
        del self._events[tag]
        if not self._events:
            asyncio.get_running_loop().remove_reader(self.notifier.descriptor)

    async def wait(self, tag: int) -> None:
        event = self._events[tag]
        await event.wait()
        event.clear()

    def _ring(self) -> None:
        for tag in self.notifier.drain():
            event: Optional[asyncio.Event] = self._events.get(tag)
            if event is not None:
                event.set()

"""What waits between two threads: bounded, and the newest wins."""

from collections import deque
import threading
from typing import Generic, TypeVar

T = TypeVar('T')


class Inbox(Generic[T]):
    """A queue that never blocks who puts: when it is full, the oldest is dropped."""

    def __init__(self, capacity: int):
        self._items: deque[T] = deque(maxlen=capacity)
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_closed(self) -> bool:
        """Whether it takes nothing any more."""
        return self._closed

    def put(self, item: T) -> bool:
        """Add an item; return whether one was dropped: an older one, or this once it is closed."""
        with self._changed:
            if self._closed:
                return True
            dropped = len(self._items) == self._items.maxlen
            self._items.append(item)
            self._changed.notify()
            return dropped

    def get(self) -> T | None:
        """Wait for the oldest item; None once the inbox is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed)
            return None if self._closed else self._items.popleft()

    def clear(self) -> int:
        """Drop what waits; return how many."""
        with self._changed:
            count = len(self._items)
            self._items.clear()
            return count

    def close(self) -> int:
        """End every `get`, also one that waits; drop what is left and return how many."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        return self.clear()

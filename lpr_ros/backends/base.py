"""What an adapter is."""

from typing import Protocol

from lpr_ros.core.records import Keyframe, LoopClosure, Place


class Adapter(Protocol):
    """Hands loops to one back-end; made when the node is configured."""

    def publish(
        self, loop: LoopClosure, query: Keyframe | Place, match: Keyframe | Place
    ) -> None:
        """Hand over one verified loop."""

    def close(self) -> None:
        """Take the topics and services off the node."""

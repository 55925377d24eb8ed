"""What an adapter is, and how the message packages of others are found."""

from importlib import import_module
from typing import Any, Protocol

from lpr_ros.core.errors import BackendError
from lpr_ros.core.records import Keyframe, LoopClosure, Place


class Adapter(Protocol):
    """Hands loops to one back-end; made when the node is configured."""

    def publish(
        self, loop: LoopClosure, query: Keyframe | Place, match: Keyframe | Place
    ) -> None:
        """Hand over one verified loop."""

    def close(self) -> None:
        """Take the topics and services off the node."""


def interface(name: str) -> Any:
    """Return a message or service class by its ROS name, such as std_msgs/msg/String."""
    package, kind, class_name = name.split('/')
    try:
        return getattr(import_module(f'{package}.{kind}'), class_name)
    except (ImportError, AttributeError) as error:
        raise BackendError(f'{name} is not installed: expected the package {package}') from error

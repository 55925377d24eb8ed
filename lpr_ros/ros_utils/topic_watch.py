"""Notice that a topic is silent, and log why: what is published instead, and with which QoS."""

from collections.abc import Iterable, Iterator
import math
import os
import time
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible

from lpr_ros.core.errors import utf8_text

SILENCE_S = 5.0  # longer than discovery takes, and than any LiDAR or odometry pauses
LOG_INTERVAL_S = 30.0
MAX_LISTED = 10
OUR_NODES = ('lpr_node', 'pose_graph_node')


class TopicWatch:
    """Compares the number of received messages with the time that passes. One thread."""

    def __init__(
        self,
        node: Node,
        message: type,
        topic: str,
        qos: QoSProfile,
        *,
        remedy: str = '',
        qos_remedy: str = '',
    ):
        """Watch a subscription; the remedies say what a user can do besides renaming the topic."""
        self._node, self._qos = node, qos
        self._name, self._topic = topic, node.resolve_topic_name(topic)
        self._type = type_name(message)
        self._remedy, self._qos_remedy = remedy, qos_remedy
        self._received = 0
        self._since_s = time.monotonic()
        self._logged, self._logged_s = '', -math.inf

    def restart(self, received: int) -> None:
        """Count the silence from now on."""
        self._received, self._since_s = received, time.monotonic()

    def check(self, received: int) -> str:
        """Return why no message arrives, '' if one arrived in the last seconds; log changes."""
        now_s = time.monotonic()
        if received != self._received:
            self.restart(received)
        if now_s - self._since_s < SILENCE_S:
            self._logged = ''
            return ''
        reason = f'no message on {self._topic} for {SILENCE_S:g} s: {self._explain()}'
        if reason != self._logged and now_s - self._logged_s >= LOG_INTERVAL_S:
            self._node.get_logger().warning(utf8_text(reason))
            self._logged, self._logged_s = reason, now_s
        return reason

    def _explain(self) -> str:
        publishers = self._node.get_publishers_info_by_topic(self._topic)
        if not publishers:
            return self._not_published()
        problems = [text for info in publishers for text in self._problems(info)]
        if problems:
            return '; '.join(problems)
        names = _joined(_node_of(info) for info in publishers)
        return f'{names} publishes the topic but sends nothing'

    def _not_published(self) -> str:
        """Name the topics of the same type: one of them is probably the one that was meant."""
        if self._received:
            return 'nobody publishes it any more'
        others = [
            name
            for name, types in self._node.get_topic_names_and_types()
            if self._type in types and self._is_input(name)
        ]
        if others:
            return (
                f'nobody publishes it. {self._type} is published on {_joined(others)}: '
                f'set {self._name}:={others[0]}{self._remedy}'
            )
        domain = os.environ.get('ROS_DOMAIN_ID', '0')
        return (
            f'nobody publishes it, nor any other {self._type} in ROS_DOMAIN_ID {domain}: start '
            f'the driver or the bag{self._remedy}'
        )

    def _is_input(self, topic: str) -> bool:
        """Return whether another package publishes the topic: ours are results, not inputs."""
        publishers = self._node.get_publishers_info_by_topic(topic)
        return any(info.node_name not in OUR_NODES for info in publishers)

    def _problems(self, info: Any) -> Iterator[str]:
        """Yield why a publisher of the topic and this subscription do not match."""
        if info.topic_type != self._type:
            yield f'{_node_of(info)} publishes {info.topic_type}, expected {self._type}'
            return
        compatibility, reason = qos_check_compatible(info.qos_profile, self._qos)
        if compatibility == QoSCompatibility.ERROR:
            text = reason.replace('ERROR: ', '').rstrip('; ').lower()
            yield (
                f'the QoS of {_node_of(info)} does not match ({text}): change that of the '
                f'publisher{self._qos_remedy}'
            )


def type_name(message: type) -> str:
    """Return the ROS name of a message class, such as sensor_msgs/msg/PointCloud2."""
    package, kind, *_ = message.__module__.split('.')
    return f'{package}/{kind}/{message.__name__}'


def _node_of(info: Any) -> str:
    return f'{info.node_namespace.rstrip("/")}/{info.node_name}'


def _joined(names: Iterable[str]) -> str:
    listed = sorted(set(names))
    more = f' and {len(listed) - MAX_LISTED} more' if len(listed) > MAX_LISTED else ''
    return ', '.join(listed[:MAX_LISTED]) + more

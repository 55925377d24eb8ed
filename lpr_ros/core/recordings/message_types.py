"""The message types read from bags, and the check that a bag defines them as ROS does."""

from functools import cache
from typing import Any

from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from lpr_ros.core.errors import DatasetError, error_text, short_repr

CLOUD_TYPES = ('sensor_msgs/msg/PointCloud2',)
POSE_TYPES = (
    'nav_msgs/msg/Odometry',
    'geometry_msgs/msg/PoseWithCovarianceStamped',
    'geometry_msgs/msg/PoseStamped',
)
TRANSFORM_TYPES = ('tf2_msgs/msg/TFMessage', 'tf/msg/tfMessage')
DECODED_TYPES = frozenset((*CLOUD_TYPES, *POSE_TYPES, *TRANSFORM_TYPES))
MAX_DEFINITION = 100_000  # characters; the longest standard one has 9,000, comments included


@cache
def standard_types(is_ros2: bool) -> Any:
    """Return the type store that decodes bags of ROS 2 or ROS 1."""
    if is_ros2:
        return get_typestore(Stores.ROS2_HUMBLE)
    store = get_typestore(Stores.ROS1_NOETIC)
    for msgtype in TRANSFORM_TYPES:  # not among the ROS 1 types of rosbags
        store.register(get_types_from_msg('geometry_msgs/TransformStamped[] transforms', msgtype))
    return store


def check_definition(msgtype: str, definition: MessageDefinition, is_ros2: bool) -> None:
    """Raise DatasetError unless a bag defines the fields of a type as ROS does.

    Messages are decoded with the standard types only. Compiling the definitions of a bag would
    let it run the machine out of memory: code generation unrolls fixed-size arrays. For the same
    reason IDL, whose constant expressions are evaluated while parsing, is not parsed.
    """
    if definition.format != MessageDefinitionFormat.MSG:
        return
    if len(definition.data) > MAX_DEFINITION:
        raise DatasetError(
            f'the definition of {msgtype} has {len(definition.data)} characters, expected at '
            f'most {MAX_DEFINITION}'
        )
    try:
        defined = get_types_from_msg(definition.data, msgtype)
    except Exception as error:  # the parser raises anything on damaged text
        raise DatasetError(
            f'the definition of {msgtype} is damaged: {error_text(error)}'
        ) from error
    standard = standard_types(is_ros2).fielddefs
    # Types that ROS does not know cannot be reached from the fields of a standard type.
    for name in sorted(defined.keys() & standard.keys()):
        found, expected = defined[name][1], standard[name][1]
        if list(found) != list(expected):
            raise DatasetError(
                f'{msgtype} is not the standard message: {name} has the fields '
                f'{_field_names(found)}, expected {_field_names(expected)}; convert the bag to '
                'the standard definition'
            )


def _field_names(fields: Any) -> str:
    return short_repr([name for name, _ in fields])

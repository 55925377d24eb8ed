"""The message types read from bags, and the check that a bag defines them as ROS does."""

from functools import cache
import re
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
IDL_TEXT = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
IDL_ANNOTATION = re.compile(r'@\w+\s*\([^()]*\)|@\w+')
IDL_BRACES = re.compile(r'\bmodule\s+(\w+)\s*\{|\bstruct\s+(\w+)\s*\{([^{}]*)\}|[{}]')
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
    reason IDL, whose constant expressions are evaluated while parsing, is only searched for the
    names of fields.
    """
    if definition.format == MessageDefinitionFormat.NONE:
        return
    if len(definition.data) > MAX_DEFINITION:
        raise DatasetError(
            f'the definition of {msgtype} has {len(definition.data)} characters, expected at '
            f'most {MAX_DEFINITION}'
        )
    standard = {n: list(fields) for n, (_, fields) in standard_types(is_ros2).fielddefs.items()}
    if definition.format == MessageDefinitionFormat.IDL:
        defined: dict[str, list[Any]] = dict(idl_field_names(definition.data))
        standard = {name: _names(fields) for name, fields in standard.items()}
    else:
        defined = _msg_fields(msgtype, definition.data)
    if msgtype not in defined:
        raise DatasetError(f'the definition of {msgtype} is damaged: it defines other types only')
    # Types that ROS does not know cannot be reached from the fields of a standard type.
    for name in sorted(defined.keys() & standard.keys()):
        if defined[name] != standard[name]:
            raise DatasetError(
                f'{msgtype} is not the standard message: {name} has the fields '
                f'{short_repr(_names(defined[name]))}, expected '
                f'{short_repr(_names(standard[name]))}; convert the bag to the standard definition'
            )


def idl_field_names(text: str) -> dict[str, list[str]]:
    """Return the names of the fields of every struct in an IDL file. Takes linear time."""
    found: dict[str, list[str]] = {}
    scope: list[str] = []  # modules, and '' for other braces
    for part in IDL_BRACES.finditer(IDL_ANNOTATION.sub(' ', IDL_TEXT.sub(' ', text))):
        module, struct, body = part.groups()
        if struct is not None:
            fields = (field.partition('[')[0].split() for field in body.split(';'))
            found['/'.join([*scope, struct])] = [words[-1] for words in fields if words]
        elif part[0] != '}':
            scope.append(module or '')
        elif scope:
            scope.pop()
    return found


def _msg_fields(msgtype: str, text: str) -> dict[str, list[Any]]:
    try:
        types = get_types_from_msg(text, msgtype)
    except Exception as error:  # the parser raises anything on damaged text
        raise DatasetError(
            f'the definition of {msgtype} is damaged: {error_text(error)}'
        ) from error
    return {name: list(fields) for name, (_, fields) in types.items()}


def _names(fields: list[Any]) -> list[str]:
    """Return the names of fields given by name, or by name and type."""
    return [field if isinstance(field, str) else field[0] for field in fields]
